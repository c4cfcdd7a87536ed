"""Commands that train models, and those that run them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.commands.options import explain_interrupt, folder_of_several, took
from simlab.errors import Argument, UserError, argument, spelled
from simlab.steps.catalogue import (
    EXTRACT,
    FINETUNE,
    FREEZE_STUDY,
    IMPORT,
    INFLUENCE,
    INJECT,
    LEAVE_OUT,
    PRETRAIN,
    SHORTEN,
    TRUNCATE,
)
from simlab.steps.words import as_option

if TYPE_CHECKING:
    import pandas as pd

    from simlab.models.checkpoint import Checkpoint
    from simlab.store.jobs import Outcome


def run_pretrain(values: dict[str, Any]) -> None:
    """Make the model of every seed, and print its losses on held-out texts."""
    from simlab.store import console
    from simlab.tasks.corpus import load_texts
    from simlab.training.pretrain import pretrain, read_pretraining

    folders = _seed_folders(values)
    with explain_interrupt(values["out"]):
        if len(folders) > 1:  # every seed takes the texts that are read here
            options = PRETRAIN.task_options(values)
            values["texts"] = [load_texts(name, options) for name in values["texts"]]
        for seed, folder in folders.items():  # each folder is a job of its own
            outcome = pretrain(**PRETRAIN.arguments(values | {"out": folder, "seed": seed}))
            record = read_pretraining(outcome.path)
            console.out.print(
                f"{outcome.path}: held-out loss {record['loss']:.3f} (frequencies of words alone "
                f"{record['unigram_loss']:.3f}), accuracy {record['accuracy']:.3f} "
                f"(n = {record['n']:,} predicted tokens, {took(outcome)})"
            )


def run_finetune(values: dict[str, Any]) -> None:
    """Make the checkpoint of every seed, and print its held-out metrics."""
    from simlab.training.finetune import finetune

    paper, recipe = values["paper"], values["recipe"]
    if paper is not None and paper != recipe:
        raise UserError(
            f"{argument('paper', paper)}, {argument('recipe', recipe)}: wanted one recipe, found "
            "two; here both options name the recipe"
        )
    folders = _seed_folders(values)
    with explain_interrupt(values["out"]):
        checkpoints = [
            _print_scores(finetune(**FINETUNE.arguments(values | {"out": folder, "seed": seed})))
            for seed, folder in folders.items()  # each folder is a job of its own
        ]
    if values["seeds"] is not None:
        _summarise([checkpoint.scores for checkpoint in checkpoints])


def run_freeze_study(values: dict[str, Any]) -> None:
    """Do the study, draw its figures, and print a table of all ways of freezing."""
    from simlab.experiments.freeze_study import freeze_study, summary
    from simlab.figures.draw import plot
    from simlab.results.reading import read_results
    from simlab.store import console

    out, paper, recipe = Path(values["out"]), values["paper"], values["recipe"]
    if paper is not None and paper != recipe:
        console.note(
            f"{argument('recipe', recipe)} takes the place of the recipe of "
            f"{argument('paper', paper)}"
        )
    with explain_interrupt(out):
        outcome = freeze_study(**FREEZE_STUDY.arguments(values), tell=_print_scores)
        frame = read_results(outcome.path)
        figures = plot(frame, out / "figures")
    _print_ways(summary(frame), frame["task"].iloc[0])
    for file in (outcome.path, *figures):
        console.out.print(str(file))


def _seed_folders(values: Mapping[str, Any]) -> dict[int | None, Path]:
    """Return the checkpoint folder of every seed: `out` itself, or with --seeds ``out/seed-N``.

    None is the seed of the recipe.
    """
    from simlab.training.recipes import parse_seeds

    seed, seeds = values["seed"], values["seeds"]
    if seeds is None:
        return {seed: Path(values["out"])}
    if seed is not None:
        raise UserError(
            f"{argument('seeds')}: wanted {argument('seeds')} or {argument('seed')}, found both"
        )
    out = folder_of_several(values, "seeds", "a folder that is itself a checkpoint")
    return {number: out / f"seed-{number}" for number in parse_seeds(seeds)}


def _print_scores(outcome: Outcome) -> Checkpoint:
    """Open the checkpoint that was made, and print its held-out metrics."""
    from simlab.models.checkpoint import Checkpoint
    from simlab.store import console

    checkpoint = Checkpoint.open(outcome.path)
    scores = ", ".join(f"{name} {value:.3f}" for name, value in checkpoint.scores.items())
    console.out.print(
        f"{outcome.path}: held-out {scores} (n = {checkpoint.evaluation['n']:,}, {took(outcome)})"
    )
    return checkpoint


def _summarise(scores: Sequence[Mapping[str, float]]) -> None:
    import numpy as np

    from simlab.store import console

    for metric in scores[0]:
        values = np.array([of_seed[metric] for of_seed in scores])
        spread = f", standard deviation {values.std(ddof=1):.3f}" if len(values) > 1 else ""
        console.out.print(f"{len(values)} seeds: mean {metric} {values.mean():.3f}{spread}")


def _print_ways(summary: pd.DataFrame, task: str) -> None:
    import math

    from simlab.store import console

    console.out.print(f"{task}: frozen layers, mean over {summary['seeds'].max()} seeds")
    metrics = summary["metric"].unique()
    headings = [heading for metric in metrics for heading in (metric, "± sd")]
    table = []
    for freeze, rows in summary.groupby("freeze", sort=False):
        row, of_metric = rows.iloc[0], rows.set_index("metric")
        values = of_metric.loc[:, ["mean", "standard_deviation"]].reindex(metrics).to_numpy()
        cells = ["" if math.isnan(value) else f"{value:.3f}" for value in values.ravel()]
        cost = (
            f"{row.trained_parameters:,}",
            f"{1000 * row.seconds_per_step:.0f}",
            f"{row.time_saved:.0%}",
        )
        table.append((str(freeze), *cells, *cost))
    names = ("frozen", *headings, "trained parameters", "ms per step", "time saved")
    console.print_rows(names, table)


def run_import(values: dict[str, Any]) -> None:
    """Write the folder, and print what it holds."""
    from simlab.representations.imported import import_representations

    with explain_interrupt(values["out"]):
        _print_folder(import_representations(**IMPORT.arguments(values)))


def run_extract(values: dict[str, Any]) -> None:
    """Write a folder for each step of training, or the only one, and print what it holds."""
    from simlab.models.sources import equal_steps
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
    from simlab.models.sources import training_runs
    from simlab.results.results import at_step

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
    """Write the results file, and export the shorter model."""
    from simlab.experiments.shorten import shorten
    from simlab.models.checkpoint import Checkpoint
    from simlab.store import console
    from simlab.store.jobs import named_after

    out, export = values["out"], values["export"]
    if out is None and export is None:
        raise UserError(f"{argument('out')}: wanted a results file, found none")
    with explain_interrupt(out, export and export[1]):
        if export is None:
            _write_truncation(values)
            return
        layers, folder = export
        whole = values | _of_whole_model(values) | {"layers": layers, "out": folder}
        with named_after(Path(folder), lambda _: _write_truncation(values)):
            with _spelled_as_export("truncate"):
                outcome = shorten(**SHORTEN.arguments(whole))
            scored = Checkpoint.open(folder).evaluation
            console.out.print(
                f"{folder}: written with {layers} layers; {scored['metric']} "
                f"{scored['value']:.3f} ({took(outcome)})"
            )


def _write_truncation(values: dict[str, Any]) -> None:
    """Write the results file, if there is to be one."""
    from simlab.experiments.truncate import truncate
    from simlab.store import console

    if values["out"] is None:
        return
    outcome = truncate(**TRUNCATE.arguments(values))
    console.out.print(f"{outcome.path}: written ({took(outcome)})")


def run_influence(values: dict[str, Any]) -> None:
    """Write the results file, and export the model without the span that turns the states least."""
    from simlab.experiments.influence import influence, require_span
    from simlab.models.architectures import COUNT, text_config
    from simlab.models.load import load_config
    from simlab.models.sources import resolve
    from simlab.store import console
    from simlab.store.jobs import named_after

    out, export = values["out"], values["export"]
    if export is not None and values["random_init_seed"] is not None:
        raise UserError(
            f"{argument('export')}: wanted a model with its weights, found "
            f"{argument('random_init_seed', values['random_init_seed'])}"
        )
    with explain_interrupt(out, export and export[1]):
        if export is None:
            outcome = influence(**INFLUENCE.arguments(values))
        else:
            with _spelled_as_export("influence"):  # before any text is read
                config = text_config(load_config(resolve(values["model"])))
                require_span(export[0], getattr(config, COUNT, sys.maxsize))  # some do not say
            with named_after(Path(out), lambda path: _leave_out(values, path, *export)):
                outcome = influence(**INFLUENCE.arguments(values))
        console.out.print(f"{out}: written ({took(outcome)})")


def _leave_out(values: dict[str, Any], results: Path, layers: int, folder: str) -> None:
    """Write the model without the `layers` in a row that turn the states least by `results`."""
    from simlab.experiments.influence import least_span
    from simlab.experiments.shorten import LEFT_OUT, leave_out
    from simlab.store import console
    from simlab.store.files import read_json

    with _spelled_as_export("influence"):
        start, end = least_span(results, layers)
        values = values | _of_whole_model(values) | {"start": start, "end": end, "out": folder}
        outcome = leave_out(**LEAVE_OUT.arguments(values))
    record = read_json(Path(folder) / LEFT_OUT)
    whole, without = (record["perplexity"][name] for name in ("whole", "without"))
    console.out.print(
        f"{folder}: written without layers {start + 1} to {end} of {record['layers']}; "
        f"perplexity {without:.2f}, of the whole model {whole:.2f} ({took(outcome)})"
    )


def _of_whole_model(values: dict[str, Any]) -> dict[str, Any]:
    """Return the device of an export, which writes the model whole: it has to fit."""
    from simlab.models.place import OFFLOAD

    return {"device": None if values["device"] == OFFLOAD else values["device"]}


@contextmanager
def _spelled_as_export(command: str) -> Iterator[None]:
    """Let errors name layers and folder as the two values of --export."""

    def spell(named: Argument) -> str:
        if named.name in ("layers", "start", "end", "out"):
            return f"--export {named.value}" if named.has_value else "--export"
        return as_option(command)(named)

    try:
        yield
    except UserError as error:
        error.message = spelled(error.message, spell)  # of the class that it has
        raise


def run_inject(values: dict[str, Any]) -> None:
    """Write a results file for one pair of models, or a folder of them for several."""
    from simlab.experiments.inject import inject
    from simlab.results.reading import read_results
    from simlab.store import console

    with explain_interrupt(values["out"]):
        outcomes = inject(**INJECT.arguments(values))
    frame = read_results(list(dict.fromkeys(outcome.path for outcome in outcomes)))
    frame = frame[frame["grid"].isin({outcome.key for outcome in outcomes})]  # not all of a sweep
    for line in _describe_undefined(frame):
        console.note(line)
    is_file = Path(values["out"]).suffix == outcomes[0].path.suffix  # a folder has many
    count = "written" if is_file else f"{len(outcomes)} pairs"
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
