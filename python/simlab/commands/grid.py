"""``simcore grid``: a measure between all layers of stored representations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simlab.commands.options import Overwrite, continues, when
from simlab.similarity.catalogue import help_lines


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command(epilog="\n\n".join(["Measures:", *help_lines()]))(grid)


def grid(
    folders: Annotated[
        list[Path],
        typer.Argument(help="X and Y, representation folders: the rows and the columns; or X."),
    ],
    out: Annotated[Path, typer.Option(help="Results file (.parquet) to write.")],
    measure: Annotated[str, typer.Option(help="One of the names below.")] = "cka",
    comparison: Annotated[
        str | None, typer.Option(help="Name of the grid, e.g. FT-ORIG; default: the labels.")
    ] = None,
    joint: Annotated[
        bool, typer.Option("--joint", help="All layers of all FOLDERS in one grid.")
    ] = False,
    estimator: Annotated[str | None, typer.Option(help="`biased`, `unbiased`, `both`.")] = None,
    kernel: Annotated[str | None, typer.Option(help="`linear` or `rbf`.")] = None,
    bandwidth: Annotated[float | None, typer.Option(help="RBF width in medians.")] = None,
    reduction: Annotated[str | None, typer.Option(help="`mean` or `r2`.")] = None,
    truncation: Annotated[
        str | None, typer.Option(help="Components kept: share of variance (0.99) or count (20).")
    ] = None,
    standardize: Annotated[
        bool, typer.Option("--standardize", help="Columns of unit variance first.")
    ] = False,
    correlation: Annotated[str | None, typer.Option(help="`pearson` or `spearman`.")] = None,
    causal: Annotated[
        bool, typer.Option("--causal", help="Attention: the lower triangle alone counts.")
    ] = False,
    overwrite: Overwrite = False,
) -> None:
    """Compare every layer of X with every layer of Y.

    Example: `simcore grid runs/reps/ft-1 runs/reps/orig --comparison FT-ORIG
    --out runs/results/ft-orig.parquet`

    Example: `simcore grid runs/reps/words-* --joint --measure svcca --truncation 0.95
    --out runs/results/svcca.parquet`
    """
    from simlab.similarity import grids
    from simlab.store import console

    options = {
        "estimator": estimator,
        "kernel": kernel,
        "bandwidth": bandwidth,
        "reduction": reduction,
        "truncation": _number(truncation),
        "standardize": standardize or None,
        "correlation": correlation,
        "causal": causal or None,
    }
    given = {name: value for name, value in options.items() if value is not None}
    with continues(out):
        outcome = grids.grid(
            folders,
            out,
            measure=measure,
            comparison=comparison,
            joint=joint,
            overwrite=overwrite,
            **given,
        )
    console.out.print(f"{out}: written ({when(outcome.skipped, outcome.seconds)})")


def _number(text: str | None) -> int | float | str | None:
    """An integer is a count, another number a share; what is no number is refused further on."""
    if text is None or text.isdecimal():
        return None if text is None else int(text)
    try:
        return float(text)
    except ValueError:
        return text
