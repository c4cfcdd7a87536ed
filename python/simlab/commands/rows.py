"""Commands that write results files: ``grid``, ``localize``, ``skip`` and ``align-study``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simlab.commands.options import explain_interrupt, took
from simlab.steps.catalogue import ALIGN_STUDY, GRID, LOCALIZE, SKIP
from simlab.steps.record import Step

STEPS = (GRID, LOCALIZE, SKIP, ALIGN_STUDY)


def run(step: Step, values: dict[str, Any], paper: str | None) -> None:
    """Write the files, and print their place."""
    from simlab.store import console

    out = values["out"]
    with explain_interrupt(Path(out)):
        made = step.call(**values)
    outcomes = made if isinstance(made, list) else [made]
    count = f"{len(outcomes)} files" if step is ALIGN_STUDY else "written"
    console.out.print(f"{out}: {count} ({took(*outcomes)})")
