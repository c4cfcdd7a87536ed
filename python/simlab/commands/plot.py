"""``simcore plot``: figures from results files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(plot)


def plot(
    results: Annotated[list[Path], typer.Argument(help="Results files, or folders of them.")],
    out: Annotated[Path, typer.Option(help="Folder for the figures.")],
    comparison: Annotated[
        list[str] | None, typer.Option(help="Grid to show, repeatable; default: P's four, or all.")
    ] = None,
    format: Annotated[
        list[str] | None, typer.Option(help="png, pdf or svg, repeatable; default: png and pdf.")
    ] = None,
) -> None:
    """Draw every figure that results files have rows for; computes nothing.

    Example: `simcore plot runs/demo/results --out runs/demo/figures --format svg`
    """
    from simlab.figures import draw
    from simlab.store import console

    for file in draw.plot(results, out, format or ("png", "pdf"), comparison or ()):
        console.out.print(str(file))
