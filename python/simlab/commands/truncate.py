"""``simcore truncate``: feed every layer straight to a head; export the first layers as a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simlab.commands.options import explain_interrupt, of_export, opened, took
from simlab.errors import Argument, UserError, argument, spelled
from simlab.steps.catalogue import SHORTEN, TRUNCATE
from simlab.steps.record import Step
from simlab.steps.words import as_option

STEPS = (TRUNCATE,)


def run(step: Step, values: dict[str, Any], paper: str | None) -> None:
    """Write the results file, print the advice, and export the shorter model."""
    from simlab.store.jobs import named_after

    out, export = values["out"], values.pop("export")
    if out is None and (export is None or values["tolerance"] is not None):
        raise UserError(f"{argument('out')}: wanted a results file, found none")
    with explain_interrupt(out and Path(out), export and Path(export[1])):
        if export is None:
            _write_results(step, values)
            return
        values = opened(step, values, "checkpoint")  # both steps take what is opened here
        layers, folder = export
        with named_after(Path(folder), lambda _: _write_results(step, values)):
            _export(values, layers, folder)


def _write_results(step: Step, values: dict[str, Any]) -> None:
    """Write the results file, if there is to be one, and print the advice."""
    from simlab.experiments.advice import describe_advice
    from simlab.results.reading import read_results
    from simlab.store import console

    if values["out"] is None:
        return
    outcome = step.call(**values)
    for line in describe_advice(read_results(outcome.path)):
        console.out.print(line)
    console.out.print(f"{outcome.path}: written ({took(outcome)})")


def _export(values: dict[str, Any], layers: int, folder: str) -> None:
    """Write the shorter model, and print its metric."""
    from simlab.models.checkpoint import Checkpoint
    from simlab.store import console

    try:
        outcome = SHORTEN.call(**of_export(SHORTEN, values) | {"layers": layers, "out": folder})
    except UserError as error:
        error.message = spelled(error.message, _as_export)  # of the class that it has
        raise
    scored = Checkpoint.open(folder).evaluation
    console.out.print(
        f"{folder}: written with {layers} layers; {scored['metric']} {scored['value']:.3f} "
        f"({took(outcome)})"
    )


def _as_export(named: Argument) -> str:
    """Spell an argument of `shorten`, whose layers and folder are the two values of --export."""
    if named.name in ("layers", "out"):
        return f"--export {named.value}" if named.has_value else "--export"
    return as_option("truncate")(named)
