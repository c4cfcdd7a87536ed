"""``simcore blocks``: clusters of consecutive layers, and how block diagonal a grid is."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simlab.commands.options import Overwrite, continues

if TYPE_CHECKING:
    from simlab.similarity.blocks import Blocks


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(blocks)


def blocks(
    results: Annotated[
        list[Path], typer.Argument(help="Results files with grids, or folders of them.")
    ],
    clusters: Annotated[
        int | None, typer.Option(min=1, help="How many clusters; default: what the grid says.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Results file (.parquet) to write; `plot` outlines them.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Split the layers of every model-with-itself grid (FT-FT) into clusters, and score them.

    The score is 1 for perfect blocks, and 0 where similarity depends on distance alone. A single
    cluster scores 0: nothing is split.

    Example: `simcore blocks runs/results --out runs/results/blocks.parquet`
    """
    from rich.markup import escape
    from rich.table import Table

    from simlab.similarity import blocks as step
    from simlab.store import console

    with continues(out):
        found = step.blocks(results, out, clusters, overwrite=overwrite)
    table = Table(title="How block diagonal: 1 perfect blocks, 0 no more than distance explains")
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
    """The clusters by their first and last layer; 0 is the embedding output."""
    spans = (
        f"{cluster[0]}–{cluster[-1]}" if len(cluster) > 1 else f"{cluster[0]}"
        for cluster in layers.clusters
    )
    return " | ".join(spans)
