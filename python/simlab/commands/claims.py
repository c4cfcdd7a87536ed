"""``simcore claims``: judge what the papers claim on results files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simlab.commands.options import explain_interrupt
from simlab.errors import UserError, argument
from simlab.steps.catalogue import CLAIMS
from simlab.steps.record import Step

STEPS = (CLAIMS,)


def run(step: Step, values: dict[str, Any], paper: str | None) -> None:
    """Print the verdicts, and write them if a file is named; or print the rules."""
    if values.pop("list"):
        _print_rules()
        return
    if not values["results"]:
        raise UserError(
            f"RESULTS: wanted results files or folders, or {argument('list')}, found none"
        )
    from simlab.evidence import table
    from simlab.store import console

    out = values["out"]
    with explain_interrupt(out and Path(out)):
        frame = step.call(**values)
    console.print_rows(table.NAMES, table.claims_text(frame))
    missing = table.without_rows(frame)
    for claim in table.CLAIMS:
        if claim.name in missing:
            console.out.print(f"no rows: {claim.name}; they come from {claim.made_by}")
    if out is not None:
        console.out.print(f"{out}: written")


def _print_rules() -> None:
    from simlab.evidence.claim import TEXTS
    from simlab.evidence.table import CLAIMS
    from simlab.store import console

    rows = [(claim.name, claim.text, claim.source, claim.rule) for claim in CLAIMS]
    console.print_rows(("claim", "says", "source", "rule"), rows)
    for name in ("verdicts", "intervals", "roles"):
        console.out.print(" ".join(TEXTS[name].split()), markup=False)
