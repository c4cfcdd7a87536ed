"""``simcore localize``: compute localization scores from stored joint grids."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simlab.commands.options import Overwrite, ResamplingSeed, duration, explain_interrupt


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(localize)


def localize(
    results: Annotated[
        list[Path],
        typer.Argument(
            help="Results files with joint grids, or folders of such files; with --bootstrap also "
            "the representation folders of the grids."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Results file (.parquet) to write.")],
    bootstrap: Annotated[
        int,
        typer.Option(
            min=0,
            help="Halves of the examples to draw for 95 % intervals of the scores, such as 200.",
        ),
    ] = 0,
    resampling_seed: ResamplingSeed = 0,
    overwrite: Overwrite = False,
) -> None:
    """Compute the localization score of every layer from joint grids of neuronsim and svcca.

    Example: `simcore localize runs/results --out runs/results/localization.parquet`

    Example: `simcore localize runs/results runs/words/* --bootstrap 200
    --out runs/results/localization.parquet`
    """
    from simlab.similarity import localization
    from simlab.store import console

    with explain_interrupt(out):
        outcome = localization.localize(
            results,
            out,
            bootstrap=bootstrap,
            resampling_seed=resampling_seed,
            overwrite=overwrite,
        )
    console.out.print(f"{out}: written ({duration(outcome.skipped, outcome.seconds)})")
