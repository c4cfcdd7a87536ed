"""``simcore localize``: compute localization scores from stored joint grids."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simlab.commands.options import Overwrite, duration, explain_interrupt


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(localize)


def localize(
    results: Annotated[
        list[Path], typer.Argument(help="Results files with joint grids, or folders of such files.")
    ],
    out: Annotated[Path, typer.Option(help="Results file (.parquet) to write.")],
    overwrite: Overwrite = False,
) -> None:
    """Compute the localization score of every layer from joint grids of neuronsim and svcca.

    Example: `simcore localize runs/results --out runs/results/localization.parquet`
    """
    from simlab.similarity import localization
    from simlab.store import console

    with explain_interrupt(out):
        outcome = localization.localize(results, out, overwrite=overwrite)
    console.out.print(f"{out}: written ({duration(outcome.skipped, outcome.seconds)})")
