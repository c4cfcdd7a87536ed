"""``simcore plot``: draw figures from results files."""

from __future__ import annotations

from typing import Any

from simlab.steps.catalogue import PLOT
from simlab.steps.record import Step

STEPS = (PLOT,)


def run(step: Step, values: dict[str, Any], paper: str | None) -> None:
    """Draw the figures, and print the names of their files."""
    from simlab.store import console

    for file in step.call(**values):
        console.out.print(str(file))
