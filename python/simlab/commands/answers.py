"""Commands that answer a question about models that are named: ``compare`` and ``check``."""

from __future__ import annotations

import json
from typing import Any

import typer

from simlab.commands.options import explain_interrupt
from simlab.errors import require_known
from simlab.steps.catalogue import CHECK, COMPARE


def run_compare(values: dict[str, Any]) -> None:
    """Write layers, grids, figures and the page, and print which layers match."""
    from simlab.answers.compare import compare
    from simlab.store import console

    given = COMPARE.arguments(values)
    with explain_interrupt(values["out"]):
        found = compare(*given.pop("models"), **given)
    console.out.print(str(found), markup=False)
    for file in found.files:
        console.out.print(str(file), markup=False)


def run_check(values: dict[str, Any]) -> None:
    """Print a verdict for each layer; the exit code is 1 if a layer is not equal or allowed."""
    from simlab.answers.check import ALLOWED, check
    from simlab.store import console

    allow, given = values["allow"], CHECK.arguments(values)
    if allow is not None:
        require_known("allow", allow, ALLOWED)
    found = check(*given.pop("models"), **given)
    alike = found.is_alike(allow)
    facts = found.to_dict() | {"alike": alike, "allow": allow}
    text = json.dumps(facts, indent=1) if values["json"] else found.report(allow)
    console.out.print(text, markup=False)
    if not alike:
        raise typer.Exit(1)
