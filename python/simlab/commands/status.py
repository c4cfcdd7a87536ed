"""``simcore status``: the state of the jobs in the folder of a sweep."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import Any

import typer

from simlab.steps.catalogue import STATUS
from simlab.steps.record import Step

STEPS = (STATUS,)
_SECONDS = 5.0


def run(step: Step, values: dict[str, Any], paper: str | None) -> None:
    """Print the status, once or until Ctrl-C."""
    watch, as_json = values.pop("watch"), values.pop("json")
    try:
        _print_status(step, values, as_json)
        while watch:
            time.sleep(_SECONDS)
            _print_status(step, values, as_json)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _print_status(step: Step, values: dict[str, Any], as_json: bool | None) -> None:
    from simlab.store import console

    status = step.call(**values)
    if as_json:
        print(json.dumps(status.as_dict()), flush=True)
        return
    counts = {kind: asdict(count) for kind, count in (*status.kinds.items(), ("all", status.total))}
    table = [(kind, *(f"{n:,}" for n in count.values())) for kind, count in counts.items()]
    console.print_rows(("jobs", *counts["all"]), table)
    left = status.seconds_left
    when = "unknown" if left is None else console.span(left)
    console.out.print(f"{status.per_hour:,.0f} jobs an hour; time left: {when}", markup=False)
    if status.last_error:
        console.out.print(f"last error: {status.last_error}", markup=False)
