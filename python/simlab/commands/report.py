"""``simcore report``: write one page that shows results."""

from __future__ import annotations

from typing import Any

from simlab.steps.catalogue import REPORT
from simlab.steps.record import Step

STEPS = (REPORT,)


def run(step: Step, values: dict[str, Any], paper: str | None) -> None:
    """Write the page, and print its name and size."""
    from simlab.store import console

    file = step.call(**values)
    size = file.stat().st_size / 2**20
    console.out.print(f"{file} ({size:.1f} MB): open it in a browser", markup=False)
