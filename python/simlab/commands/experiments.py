"""Commands that run models: ``extract`` and ``import``, ``truncate``, ``influence``, ``inject``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.commands.options import explain_interrupt, folder_of_several, opened, took
from simlab.errors import Argument, UserError, argument, spelled
from simlab.steps.catalogue import (
    EXTRACT,
    IMPORT,
    INFLUENCE,
    INJECT,
    INJECT_ONE,
    SHORTEN,
    TRUNCATE,
)
from simlab.steps.words import as_option

if TYPE_CHECKING:
    import pandas as pd

    from simlab.store.jobs import Outcome


def run_import(values: dict[str, Any]) -> None:
    """Write the folder, and print what it holds."""
    from simlab.representations.imported import import_representations

    with explain_interrupt(values["out"]):
        _print_folder(import_representations(**IMPORT.arguments(values)))


def run_extract(values: dict[str, Any]) -> None:
    """Write a folder for each step of training, or the only one, and print what it holds."""
    from simlab.models.revisions import equal_steps
    from simlab.representations.extract import extract
    from simlab.representations.folder import load_representations
    from simlab.store import console

    with explain_interrupt(values["out"]):
        if values["revisions"] is None:
            _print_folder(extract(**EXTRACT.arguments(values)))
            return
        same: dict[str, list[int]] = {}
        for changes in _steps(values):
            outcome = extract(**EXTRACT.arguments(values | changes))
            _print_folder(outcome)
            rows = load_representations(outcome.path).manifest["data_sha256"]
            same.setdefault(rows, []).append(changes["step"])
        for steps in same.values():
            if len(steps) > 1:  # a revision may serve the weights of another one
                console.note(f"steps {equal_steps(steps)} have equal rows, bit by bit")


def _print_folder(outcome: Outcome) -> None:
    from simlab.representations.folder import describe
    from simlab.store import console

    console.out.print(f"{outcome.path}: {describe(outcome.path)} ({took(outcome)})")


def _steps(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return model, step, label and folder of every step of a training run."""
    from simlab.models.revisions import training_runs
    from simlab.results.labels import at_step

    if values["step"] is not None:
        raise UserError(
            f"{argument('revisions')}: wanted steps in the names of revisions, found "
            f"{argument('step', values['step'])}"
        )
    out = folder_of_several(values, "revisions", "the folder of one extraction")
    label = values["label"] or Path(str(values["model"])).name
    return [
        {
            "model": model.name,
            "step": model.step,
            "label": at_step(label, model.step),
            "out": out / f"step-{model.step}",
        }
        for model in training_runs(str(values["model"]), (), values["revisions"].split())
    ]


def run_truncate(values: dict[str, Any]) -> None:
    """Write the results file, print the advice, and export the shorter model."""
    from simlab.experiments.shorten import shorten
    from simlab.models.checkpoint import Checkpoint
    from simlab.models.place import OFFLOAD
    from simlab.store import console
    from simlab.store.jobs import named_after

    out, export = values["out"], values["export"]
    if out is None and (export is None or values["tolerance"] is not None):
        raise UserError(f"{argument('out')}: wanted a results file, found none")
    with explain_interrupt(out, export and export[1]):
        if export is None:
            _write_truncation(values)
            return
        values = opened(TRUNCATE, values, "checkpoint")  # both functions take what is opened here
        layers, folder = export
        whole = values | {"layers": layers, "out": folder}
        # An export writes the model whole: it has to fit.
        whole["device"] = None if values["device"] == OFFLOAD else values["device"]
        with named_after(Path(folder), lambda _: _write_truncation(values)):
            with _spelled_as_export():
                outcome = shorten(**SHORTEN.arguments(whole))
            scored = Checkpoint.open(folder).evaluation
            console.out.print(
                f"{folder}: written with {layers} layers; {scored['metric']} "
                f"{scored['value']:.3f} ({took(outcome)})"
            )


def _write_truncation(values: dict[str, Any]) -> None:
    """Write the results file, if there is to be one, and print the advice."""
    from simlab.experiments.advice import describe_advice
    from simlab.experiments.truncate import truncate
    from simlab.results.reading import read_results
    from simlab.store import console

    if values["out"] is None:
        return
    outcome = truncate(**TRUNCATE.arguments(values))
    for line in describe_advice(read_results(outcome.path)):
        console.out.print(line)
    console.out.print(f"{outcome.path}: written ({took(outcome)})")


def run_influence(values: dict[str, Any]) -> None:
    """Write the results file, and print its name."""
    from simlab.experiments.influence import influence
    from simlab.store import console

    with explain_interrupt(values["out"]):
        outcome = influence(**INFLUENCE.arguments(values))
        console.out.print(f"{values['out']}: written ({took(outcome)})")


@contextmanager
def _spelled_as_export() -> Iterator[None]:
    """Let errors name layers and folder as the two values of --export."""

    def spell(named: Argument) -> str:
        if named.name in ("layers", "out"):
            return f"--export {named.value}" if named.has_value else "--export"
        return as_option("truncate")(named)

    try:
        yield
    except UserError as error:
        error.message = spelled(error.message, spell)  # of the class that it has
        raise


def run_inject(values: dict[str, Any]) -> None:
    """Write a results file for one pair of models, or a folder of them for several."""
    from simlab.experiments.inject import inject, inject_pairs
    from simlab.results.reading import read_results
    from simlab.store import console

    models = values["models"]
    several = len(models) != 2 or bool(values["into"]) or values["pairs"] not in (None, 1)
    with explain_interrupt(values["out"]):
        if several:
            outcomes = inject_pairs(**INJECT.arguments(values))
        else:
            pair = values | {"a": models[0], "b": models[1]}
            outcomes = [inject(**INJECT_ONE.arguments(pair))]
    frame = read_results(list(dict.fromkeys(outcome.path for outcome in outcomes)))
    frame = frame[frame["grid"].isin({outcome.key for outcome in outcomes})]  # not all of a sweep
    for line in _describe_undefined(frame):
        console.note(line)
    count = f"{len(outcomes)} pairs" if several else "written"
    console.out.print(f"{values['out']}: {count} ({took(*outcomes)})")


def _describe_undefined(frame: pd.DataFrame) -> list[str]:
    """Return a line for each reason why methods in a results table have no value."""
    from simlab.results.results import INJECTION

    methods: dict[tuple[int, str], dict[str, None]] = {}
    for row in frame[frame["experiment"] == INJECTION].itertuples():
        options = json.loads(row.options)
        if "undefined" in options:
            names = methods.setdefault((row.layer_x, options["undefined"]), {})
            names[options["method"]] = None  # one name for all metrics of a method
    return [
        f"{', '.join(names)}: no value at layer {layer}: {reason}"
        for (layer, reason), names in methods.items()
    ]
