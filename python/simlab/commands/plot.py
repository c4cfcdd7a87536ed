"""``simcore plot``: draw figures from results files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simlab.commands.options import Paper


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(plot)


def plot(
    results: Annotated[
        list[Path], typer.Argument(help="Results files, or folders of results files.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the figures.")],
    comparison: Annotated[
        list[str] | None,
        typer.Option(
            help="Comparison to show, repeatable, in order; default: all, and the four of Phang et "
            "al. 2021 (figure 1) first."
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="Metric to show, such as `accuracy`; default: the main metric of each task."
        ),
    ] = None,
    format: Annotated[
        list[str] | None,
        typer.Option(help="Format: `png`, `pdf` or `svg`, repeatable; default: png and pdf."),
    ] = None,
    paper: Paper = None,
) -> None:
    """Draw every figure that the results files have rows for.

    Example: `simcore plot runs/demo/results --out runs/demo/figures --format svg`
    """
    from simlab.figures import draw
    from simlab.store import console

    for file in draw.plot(results, out, format or ("png", "pdf"), comparison or (), metric):
        console.out.print(str(file))
