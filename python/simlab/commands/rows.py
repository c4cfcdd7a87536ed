"""Commands that write one results file: ``grid``, ``localize`` and ``skip``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simlab.commands.options import duration, explain_interrupt
from simlab.steps.catalogue import GRID, LOCALIZE, SKIP
from simlab.steps.record import Step

STEPS = (GRID, LOCALIZE, SKIP)


def run(step: Step, values: dict[str, Any], paper: str | None) -> None:
    """Write the file, and print its name."""
    from simlab.store import console

    out = values["out"]
    with explain_interrupt(Path(out)):
        outcome = step.call(**values)
    console.out.print(f"{out}: written ({duration(outcome.skipped, outcome.seconds)})")
