"""``simcore grid``: compute a measure between all layers of stored representations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simlab.commands.options import (
    Overwrite,
    Paper,
    ResamplingSeed,
    count_or_share,
    duration,
    explain_interrupt,
)
from simlab.similarity.catalogue import help_lines


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command(epilog="\n\n".join(["Measures:", *help_lines()]))(grid)


def grid(
    folders: Annotated[
        list[Path],
        typer.Argument(help="Representation folders: X (rows) and Y (columns), or X alone."),
    ],
    out: Annotated[Path, typer.Option(help="Results file (.parquet) to write.")],
    measure: Annotated[str, typer.Option(help="Name of a measure, see below.")] = "cka",
    comparison: Annotated[
        str | None,
        typer.Option(help="Name of the grid, such as FT-ORIG; default: the labels of the folders."),
    ] = None,
    joint: Annotated[
        bool, typer.Option("--joint", help="Compare all layers of all FOLDERS in one grid.")
    ] = False,
    estimator: Annotated[
        str | None, typer.Option(help="Estimator of CKA, CKNNA: `biased`, `unbiased` or `both`.")
    ] = None,
    kernel: Annotated[str | None, typer.Option(help="Kernel of CKA: `linear` or `rbf`.")] = None,
    bandwidth: Annotated[
        float | None, typer.Option(help="Width of the RBF kernel, in median distances.")
    ] = None,
    reduction: Annotated[
        str | None, typer.Option(help="Reduction of canonical correlations: `mean` or `r2`.")
    ] = None,
    truncation: Annotated[
        str | None,
        typer.Option(help="Components to keep: a share of the variance (0.99) or a count (20)."),
    ] = None,
    standardize: Annotated[
        bool, typer.Option("--standardize", help="Scale columns to unit variance first.")
    ] = False,
    top_k: Annotated[
        str | None,
        typer.Option(
            help="Average only the best neurons of X, or the largest canonical correlations: a "
            "count (50) or a share (0.1)."
        ),
    ] = None,
    correlation: Annotated[
        str | None, typer.Option(help="Correlation of RSA: `pearson` or `spearman`.")
    ] = None,
    causal: Annotated[
        bool, typer.Option("--causal", help="For attention: use the lower triangle only.")
    ] = False,
    k: Annotated[
        int | None, typer.Option("--k", help="Number of neighbours (knn-..., cknna), such as 10.")
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="What is near: `cosine`, `euclidean` or `inner` products.")
    ] = None,
    norm: Annotated[
        str | None, typer.Option(help="Norm of the RSM difference: `frobenius` or `spectral`.")
    ] = None,
    ridge: Annotated[
        float | None, typer.Option(help="Ridge of GULP, in units of the total variance.")
    ] = None,
    bootstrap: Annotated[
        int,
        typer.Option(
            min=0,
            help="Halves of the examples to draw for 95 % intervals, such as 200; whole texts are "
            "drawn where rows are words. CKA re-uses its Gram matrices; any other measure computes "
            "the grid anew for each.",
        ),
    ] = 0,
    permutations: Annotated[
        int,
        typer.Option(
            min=0,
            help="Permutations of the examples for p-values, and for values calibrated to 0 at "
            "chance; the cost is as for --bootstrap.",
        ),
    ] = 0,
    resampling_seed: ResamplingSeed = 0,
    paper: Paper = None,
    overwrite: Overwrite = False,
) -> None:
    """Compare every layer of X with every layer of Y.

    Example: `simcore grid runs/reps/ft-1 runs/reps/orig --comparison FT-ORIG
    --out runs/results/ft-orig.parquet`

    Example: `simcore grid runs/reps/words-* --joint --measure svcca --truncation 0.95
    --out runs/results/svcca.parquet`

    Example: `simcore grid runs/reps/words-* --joint --measure neuronsim --top-k 50
    --out runs/results/top-50.parquet`

    Example: `simcore grid runs/reps/ft-1 runs/reps/orig --bootstrap 200 --permutations 200
    --out runs/results/ft-orig.parquet`
    """
    from simlab.similarity import grids
    from simlab.store import console

    options = {
        "estimator": estimator,
        "kernel": kernel,
        "bandwidth": bandwidth,
        "reduction": reduction,
        "truncation": count_or_share(truncation),
        "standardize": standardize or None,
        "top_k": count_or_share(top_k),
        "correlation": correlation,
        "causal": causal or None,
        "k": k,
        "metric": metric,
        "norm": norm,
        "ridge": ridge,
    }
    given = {name: value for name, value in options.items() if value is not None}
    with explain_interrupt(out):
        outcome = grids.grid(
            folders,
            out,
            measure=measure,
            comparison=comparison,
            joint=joint,
            bootstrap=bootstrap,
            permutations=permutations,
            resampling_seed=resampling_seed,
            overwrite=overwrite,
            **given,
        )
    console.out.print(f"{out}: written ({duration(outcome.skipped, outcome.seconds)})")
