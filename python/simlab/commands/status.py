"""``simcore status``: the state of the jobs in the folder of a sweep."""

from __future__ import annotations

import json
import time
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
    from simlab.sweeps.status import status_lines, status_table

    status = step.call(**values)
    if as_json:
        print(json.dumps(status.as_dict()), flush=True)
        return
    console.print_rows(*status_table(status))
    for line in status_lines(status):
        console.out.print(line, markup=False)
