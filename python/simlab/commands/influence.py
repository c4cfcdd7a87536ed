"""``simcore influence``: how far spans of layers turn the states; a decoder without such a span."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from simlab.commands.options import explain_interrupt, of_export, took
from simlab.errors import Argument, UserError, argument, spelled
from simlab.steps.catalogue import INFLUENCE, LEAVE_OUT
from simlab.steps.record import Step
from simlab.steps.words import as_option

STEPS = (INFLUENCE,)


def run(step: Step, values: dict[str, Any], paper: str | None) -> None:
    """Write the results file, and export the model without the span that turns the states least."""
    from simlab.experiments.leave_out import spans_to_leave_out
    from simlab.store import console
    from simlab.store.jobs import named_after

    out, export = values["out"], values.pop("export")
    if export is not None and values["random_init_seed"] is not None:
        raise UserError(
            f"{argument('export')}: wanted a model with its weights, found "
            f"{argument('random_init_seed', values['random_init_seed'])}"
        )
    with explain_interrupt(Path(out), export and Path(export[1])):
        if export is None:
            outcome = step.call(**values)
        else:
            layers, folder = export
            able = _of_export(spans_to_leave_out, values["model"], layers)
            with named_after(Path(out), lambda made: _export(values, made, able, folder)):
                outcome = step.call(**values)
        console.out.print(f"{out}: written ({took(outcome)})")


def _export(
    values: dict[str, Any], results: Path, able: list[tuple[int, int]], folder: str
) -> None:
    """Write the model without the one of these spans that turns the states least by `results`."""
    from simlab.experiments.influence import least_span
    from simlab.experiments.leave_out import RECORD
    from simlab.store import console
    from simlab.store.files import read_json

    start, end = least_span(results, able)
    chosen = {"start": start, "end": end, "out": folder}
    outcome = _of_export(LEAVE_OUT.call, **of_export(LEAVE_OUT, values) | chosen)
    record = read_json(Path(folder) / RECORD)
    whole, without = (record["perplexity"][part] for part in ("whole", "without"))
    console.out.print(
        f"{folder}: written without layers {start + 1} to {end} of {record['layers']}; perplexity "
        f"{without:.2f}, of the whole model {whole:.2f} "
        f"({took(outcome)})"
    )


def _of_export(call: Callable[..., Any], *values: Any, **named: Any) -> Any:
    """Call a part of the export, with its messages spelled as the option --export."""
    try:
        return call(*values, **named)
    except UserError as error:
        error.message = spelled(error.message, _as_export)  # of the class that it has
        raise


def _as_export(named: Argument) -> str:
    """Spell an argument of `leave_out`, whose span and folder are the two values of --export."""
    if named.name in ("layers", "start", "end", "out"):
        return f"--export {named.value}" if named.has_value else "--export"
    return as_option("influence")(named)
