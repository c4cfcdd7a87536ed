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
    from simlab.experiments.advice import describe_advice
    from simlab.store import console
    from simlab.store.reading import read_results

    out, export = values["out"], values.pop("export")
    if out is None and (export is None or values["tolerance"] is not None):
        raise UserError(f"{argument('out')}: wanted a results file, found none")
    with explain_interrupt(out and Path(out), export and Path(export[1])):
        if export is not None:  # both steps take what is opened here
            values = opened(step, values, "checkpoint")
        if out is not None:
            outcome = step.call(**values)
            for line in describe_advice(read_results(out)):
                console.out.print(line)
            console.out.print(f"{out}: written ({took(outcome)})")
        if export is not None:
            _export(values, *export)


def _export(values: dict[str, Any], layers: int, folder: str) -> None:
    """Write the shorter model, and print its size, speed and metrics beside the whole model's."""
    from rich.table import Table

    from simlab.experiments.shorten import measure_checkpoint
    from simlab.models.checkpoint import chosen_length
    from simlab.models.place import AUTO
    from simlab.store import console

    checkpoint, task = values["checkpoint"], values["task"]
    shared = of_export(SHORTEN, values)
    try:
        outcome = SHORTEN.call(**shared | {"layers": layers, "out": folder})
    except UserError as error:
        error.message = spelled(error.message, _as_export)  # of the class that it has
        raise
    table = Table("", "layers", "parameters", "MB", "ms per example", *task.all_metrics)
    length = chosen_length([checkpoint], values["max_length"])
    for name in (checkpoint.path, Path(folder)):
        measured = measure_checkpoint(name, task, length, shared["device"] or AUTO)
        table.add_row(
            str(name),
            str(measured.layers),
            f"{measured.parameters:,}",
            f"{measured.megabytes:.1f}",
            f"{measured.ms_per_example:.2f}",
            *(f"{value:.3f}" for value in measured.scores.values()),
        )
    console.print_table(table)
    console.out.print(f"{folder}: written ({took(outcome)})")


def _as_export(named: Argument) -> str:
    """Spell an argument of `shorten`, whose layers and folder are the two values of --export."""
    if named.name in ("layers", "out"):
        return f"--export {named.value}" if named.has_value else "--export"
    return as_option("truncate")(named)
