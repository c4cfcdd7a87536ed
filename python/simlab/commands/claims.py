"""``simcore claims``: judge what the papers claim on results files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from simlab.commands.options import Overwrite, Paper, explain_interrupt
from simlab.errors import UserError, argument


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(claims)


def claims(
    results: Annotated[
        list[Path] | None,
        typer.Argument(help="Results files (.parquet or .csv), or folders of .parquet files."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File (.parquet) for the table of claims.")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="Metric of truncation, skipping, freezing; default: a task's main one."),
    ] = None,
    tolerance: Annotated[
        float, typer.Option(help="Loss of the metric that is tolerated when top layers go.")
    ] = 0.01,
    family: Annotated[
        list[str] | None,
        typer.Option(help="NAME=PATTERN of the labels of a family of models, repeatable."),
    ] = None,
    tuned: Annotated[
        str | None,
        typer.Option(help="Pattern of the labels of fine-tuned models, where rows do not say it."),
    ] = None,
    pretrained: Annotated[
        str | None,
        typer.Option(help="Pattern of the labels of pretrained models, where rows do not say it."),
    ] = None,
    csv: Annotated[
        bool, typer.Option("--csv", help="Write the table also as csv, beside --out.")
    ] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Write the table also as Markdown, beside --out.")
    ] = False,
    paper: Paper = None,
    overwrite: Overwrite = False,
    list_rules: Annotated[
        bool, typer.Option("--list", help="Print every claim and its rule; judge nothing.")
    ] = False,
) -> None:
    """Judge the claims of the papers on RESULTS: estimate, interval over models, verdict.

    A claim holds, fails or is undecided. `--list` prints the rules.

    Example: `simcore claims runs/results --out runs/claims.parquet --csv`

    Example: `simcore claims --list`
    """
    if list_rules:
        _print_rules()
        return
    if not results:
        raise UserError("RESULTS: wanted results files or folders, or --list, found none")
    from simlab.evidence import table
    from simlab.evidence.catalogue import CLAIMS
    from simlab.store import console

    with explain_interrupt(out):
        frame = table.claims(
            results,
            out,
            metric=metric,
            tolerance=tolerance,
            families=_families(family or ()),
            tuned=tuned,
            pretrained=pretrained,
            csv=csv,
            markdown=markdown,
            overwrite=overwrite,
        )
    console.print_rows(table.NAMES, table.claims_text(frame))
    missing = table.without_rows(frame)
    for claim in CLAIMS:
        if claim.name in missing:
            console.out.print(f"no rows: {claim.name}; they come from {claim.made_by}")
    if out is not None:
        console.out.print(f"{out}: written")


def _families(pairs: Sequence[str]) -> dict[str, str]:
    for pair in pairs:
        name, _, pattern = pair.partition("=")
        if not (name and pattern):
            raise UserError(
                f"{argument('families', pair)}: wanted NAME=PATTERN, such as BERT=BERT*"
            )
    return dict(pair.split("=", 1) for pair in pairs)


def _print_rules() -> None:
    from simlab.evidence.catalogue import CLAIMS, INTERVALS, ROLES
    from simlab.store import console

    rows = [(claim.name, claim.text, claim.source, claim.rule) for claim in CLAIMS]
    console.print_rows(("claim", "says", "source", "rule"), rows)
    for text in (INTERVALS, ROLES):
        console.out.print(text, markup=False)
