"""Commands that write a representation folder: ``extract`` and ``import``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simlab.commands.options import duration, explain_interrupt
from simlab.steps.catalogue import EXTRACT, IMPORT
from simlab.steps.record import Step

STEPS = (EXTRACT, IMPORT)


def run(step: Step, values: dict[str, Any], paper: str | None) -> None:
    """Write the folder, and print what it holds."""
    from simlab.representations import folder as representations
    from simlab.store import console

    out = Path(values["out"])
    with explain_interrupt(out):
        outcome = step.call(**values)
    console.out.print(
        f"{out}: {representations.describe(out)} ({duration(outcome.skipped, outcome.seconds)})"
    )
