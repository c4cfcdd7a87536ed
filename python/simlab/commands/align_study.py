"""``simcore align-study``: maps between the layers of several models, and their errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simlab.commands.options import duration, explain_interrupt
from simlab.steps.catalogue import ALIGN_STUDY
from simlab.steps.record import Step

STEPS = (ALIGN_STUDY,)


def run(step: Step, values: dict[str, Any], paper: str | None) -> None:
    """Do the study, and print how many files there are."""
    from simlab.store import console

    out = values["out"]
    with explain_interrupt(Path(out)):
        outcomes = step.call(**values)
    seconds = sum(outcome.seconds for outcome in outcomes)
    skipped = all(outcome.skipped for outcome in outcomes)
    console.out.print(f"{out}: {len(outcomes)} files ({duration(skipped, seconds)})")
