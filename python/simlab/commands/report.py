"""``simcore report``: write one page that shows results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simlab.steps.catalogue import REPORT
from simlab.steps.record import Step

STEPS = (REPORT,)


def run(step: Step, values: dict[str, Any], paper: str | None) -> None:
    """Write the page, and write it anew when results change if the command watches them."""
    from simlab.errors import UserError, WriteError
    from simlab.report.watch import watched
    from simlab.report.write import require_page
    from simlab.store import console

    watch = values.pop("watch")
    if values["out"] is not None:
        require_page(Path(values["out"]))
    for _ in watched([Path(name) for name in values["results"]], watch):
        try:
            file = step.call(**values, renewed=watch)
        except UserError as error:
            if watch is None or isinstance(error, WriteError):
                raise
            console.note(f"waiting for results that can be shown: {error}")
            continue
        size = file.stat().st_size / 2**20
        console.out.print(f"{file} ({size:.1f} MB): open it in a browser", markup=False)
