"""Outline blocks of layers on a heatmap, from the rows of `simcore blocks`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

from simlab.figures.style import DASHES, short
from simlab.store.results import BLOCK_SCORE, BLOCKS, GRID_COLUMNS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def outline_blocks(
    axis: Axes, grid: pd.DataFrame, layers: Sequence[int], blocks: pd.DataFrame
) -> str:
    """Draw a frame around each cluster of a grid's blocks, and return their score as text.

    The text is empty if `blocks`, rows of a results table, has no blocks of the grid. A grid of two
    models gets no outlines, nor does one of two grids with the same labels, because the blocks may
    belong to the other one.
    """
    mine = _of_grid(grid, blocks)
    # Two files may have other numbers of clusters for the same grid.
    clusters = mine[mine["experiment"] == BLOCKS].dropna(subset="value")
    for dashes, (_, of_file) in zip(cycle(DASHES), clusters.groupby("source"), strict=False):
        for _, cluster in of_file.groupby("value"):
            _draw_frame(axis, [layers.index(int(layer)) for layer in cluster["layer_x"]], dashes)
    scores = mine[mine["experiment"] == BLOCK_SCORE]
    words = [_scored(row.value, row.pvalue) for row in scores.itertuples()]
    return f"block score {', '.join(words)}" if words else ""


def _scored(score: float, pvalue: float) -> str:
    """Return the score, and its p-value if there is one."""
    return short(score) if _missing(pvalue) else f"{short(score)} (p {short(pvalue)})"


def clusters_of(grid: pd.DataFrame, blocks: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the rows of `blocks` of each cluster of a grid; the parameters of `outline_blocks`."""
    mine = _of_grid(grid, blocks)
    rows = mine[mine["experiment"] == BLOCKS].dropna(subset="value")
    return [cluster for _, cluster in rows.groupby(["source", "value"])]


def pvalues_of(grid: pd.DataFrame, blocks: pd.DataFrame) -> list[float]:
    """Return the p-values of the block scores of a grid; the parameters of `outline_blocks`."""
    mine = _of_grid(grid, blocks)
    return [float(p) for p in mine.loc[mine["experiment"] == BLOCK_SCORE, "pvalue"].dropna()]


def _of_grid(grid: pd.DataFrame, blocks: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `blocks` that belong to a grid."""
    first = grid.iloc[0]
    # The page has models by label and seed: a grid there has no columns of steps.
    facts = [name for name in ("label", "seed", "step") if f"{name}_x" in first]
    own = all(_same(first[f"{name}_x"], first[f"{name}_y"]) for name in facts)
    if not own or first["source"] or first["quantity"]:
        return blocks[:0]
    for name in first.index.intersection(GRID_COLUMNS):
        same = blocks[name].isna() if _missing(first[name]) else blocks[name] == first[name]
        blocks = blocks[same.fillna(False).astype(bool)]
    return blocks


def _draw_frame(axis: Axes, places: Sequence[int], dashes: str) -> None:
    from matplotlib.patches import Rectangle

    corner, side = min(places) - 0.5, max(places) - min(places) + 1
    look: dict[str, Any] = {"fill": False, "edgecolor": "#D55E00", "linewidth": 2.0, "zorder": 4}
    frame = Rectangle((corner, corner), side, side, linestyle=dashes, **look)
    frame.set_clip_on(False)
    axis.add_patch(frame)


def _same(one: object, other: object) -> bool:
    return bool(one == other) if not (_missing(one) or _missing(other)) else one is other


def _missing(value: object) -> bool:
    import pandas as pd

    return bool(pd.isna(value))
