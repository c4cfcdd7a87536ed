"""``simcore blocks``: split layers into clusters, and score how block diagonal a grid is."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simlab.commands.options import Overwrite, explain_interrupt

if TYPE_CHECKING:
    from simlab.similarity.blocks import Blocks


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(blocks)


def blocks(
    results: Annotated[
        list[Path], typer.Argument(help="Results files with grids, or folders of such files.")
    ],
    clusters: Annotated[
        int | None, typer.Option(min=1, help="Number of clusters; default: the best number.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Results file (.parquet) for the clusters; `plot` outlines them."),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Split the layers of every grid of a model with itself (FT-FT) into clusters; score the split.

    The score is 1 for perfect blocks, and 0 if similarity depends on distance alone. The score of a
    single cluster is 0.

    Example: `simcore blocks runs/results --out runs/results/blocks.parquet`
    """
    from rich.markup import escape
    from rich.table import Table

    from simlab.similarity import blocks as step
    from simlab.store import console

    with explain_interrupt(out):
        found = step.blocks(results, out, clusters, overwrite=overwrite)
    table = Table(title="Score: 1 for perfect blocks, 0 if similarity depends on distance alone")
    for name in ("task", "model", "measure", "clusters"):
        table.add_column(name)
    for name in ("score", "within", "between"):
        table.add_column(name, justify="right")
    if any(len(layers.clusters) == 1 for layers, _ in found):
        table.caption = (
            "A single cluster scores 0, and no pairs of layers are between clusters (–)."
        )
    for layers, rows in found:
        first = rows[0]
        parts = (first.measure, first.kernel, first.estimator, first.kind, first.options)
        measure = " ".join(part for part in parts if part)
        numbers = map(_number, (layers.score, layers.within, layers.between))
        names = (first.task, first.model_x, measure, _spans(layers))
        table.add_row(*map(escape, names), *numbers)
    console.print_table(table)
    if out is not None:
        console.out.print(f"{out}: written")


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"


def _spans(layers: Blocks) -> str:
    """Return the clusters as text, by first and last layer; 0 is the embedding output."""
    spans = (
        f"{cluster[0]}–{cluster[-1]}" if len(cluster) > 1 else f"{cluster[0]}"
        for cluster in layers.clusters
    )
    return " | ".join(spans)
