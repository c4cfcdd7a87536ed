"""``simcore blocks``: split layers into clusters, and score how block diagonal a grid is."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simlab.commands.options import Overwrite, Paper, ResamplingSeed, explain_interrupt

if TYPE_CHECKING:
    from simlab.similarity.block_scores import Blocks
    from simlab.store.results import ResultRow


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(blocks)


def blocks(
    results: Annotated[
        list[Path],
        typer.Argument(
            help="Results files with grids, or folders of such files; with --bootstrap also the "
            "representation folders of the grids."
        ),
    ],
    clusters: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Number of clusters of the first score, by default 2; the second score is that "
            "of the best number.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Results file (.parquet) for the clusters; `plot` outlines the best."),
    ] = None,
    bootstrap: Annotated[
        int,
        typer.Option(
            min=0,
            help="Halves of the examples to draw for 95 % intervals of the scores, such as 200.",
        ),
    ] = 0,
    permutations: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Grids to draw for chance, by default 200: the same similarities at each "
            "distance, in any order.",
        ),
    ] = None,
    resampling_seed: ResamplingSeed = 0,
    paper: Paper = None,
    overwrite: Overwrite = False,
) -> None:
    """Split the layers of every grid of a model with itself (FT-FT) into clusters; score the split.

    The score is 1 for perfect blocks, and 0 if similarity depends on distance alone. Every grid has
    two rows: at --clusters clusters, and at the best number, whose score lies the furthest above
    chance. Scores of different numbers of clusters are compared by `calibrated`. Grids of errors of
    maps (`align-study --within`) count as grids of the similarity 1 - error.

    Example: `simcore blocks runs/results --out runs/results/blocks.parquet`

    Example: `simcore blocks runs/results runs/reps/ft-1 runs/reps/ft-2 --bootstrap 200
    --out runs/results/blocks.parquet`
    """
    from rich.table import Table

    from simlab.similarity import blocks as step
    from simlab.similarity.block_scores import PERMUTATIONS
    from simlab.store import console

    clusters, permutations = clusters or step.CLUSTERS, permutations or PERMUTATIONS
    with explain_interrupt(out):
        found = step.blocks(
            results,
            out,
            clusters,
            bootstrap=bootstrap,
            permutations=permutations,
            resampling_seed=resampling_seed,
            overwrite=overwrite,
        )
    table = Table(title="Score: 1 for perfect blocks, 0 if similarity depends on distance alone")
    for name in ("task", "model", "measure", "clusters"):
        table.add_column(name)
    for name in ("score", *(["95 %"] if bootstrap else []), "calibrated", "p", "within", "between"):
        table.add_column(name, justify="right")
    for layers, rows in found:
        table.add_row(*_cells(layers, rows, bool(bootstrap)))
    console.print_table(table)
    for line in _LEGEND:
        console.out.print(line.format(clusters=clusters), markup=False)
    if out is not None:
        console.out.print(f"{out}: written")


_LEGEND = (
    "First row of each grid: {clusters} clusters; second row: the number whose score lies the "
    "furthest above chance.",
    "calibrated: the score with chance removed, 0 at chance; chance grows with the number of "
    "clusters.",
    "p: the share of permuted grids that score as high, in the first row with {clusters} clusters, "
    "in the second each with its own best number. So p may be larger in the second row even where "
    "both rows have the same clusters.",
    "within, between: mean similarity of two layers of one cluster, and of different clusters.",
)


def _cells(layers: Blocks, rows: list[ResultRow], intervals: bool) -> list[str]:
    from rich.markup import escape

    first = rows[0]
    options = json.loads(first.options) if first.options else {}
    options.pop("clusters", None)  # the column of clusters shows their number
    shown = ", ".join(f"{name} {value}" for name, value in options.items())
    parts = (first.measure, first.kernel, first.estimator, first.kind, shown)
    measure = " ".join(part for part in parts if part)
    model = first.label_x + (f" → {first.label_y}" if first.label_y else "")
    names = (first.task, model, measure, _spans(layers))
    bounds = f"{_number(layers.low)} to {_number(layers.high)}"
    return [
        *map(escape, names),
        _number(layers.score),
        *([bounds if not math.isnan(layers.low) else "–"] if intervals else []),
        _number(layers.calibrated),
        f"{layers.pvalue:.3f}",
        _number(layers.within),
        _number(layers.between),
    ]


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"


def _spans(layers: Blocks) -> str:
    """Return the clusters as text, by first and last layer; 0 is the embedding output."""
    spans = (
        f"{cluster[0]}–{cluster[-1]}" if len(cluster) > 1 else f"{cluster[0]}"
        for cluster in layers.clusters
    )
    return " | ".join(spans)
