"""Outline blocks of layers on a heatmap, from the rows of `simcore blocks`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from simlab.figures.style import short
from simlab.store.results import BLOCK_SCORE, BLOCKS, GRID_COLUMNS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def outline_blocks(
    axis: Axes, grid: pd.DataFrame, layers: Sequence[int], blocks: pd.DataFrame
) -> None:
    """Draw a frame around each cluster that `blocks` has for a grid of a model with itself.

    The score is added to the title.

    Parameters
    ----------
    grid
        Rows of the grid that `axis` shows. A grid of two models gets no outlines.
    layers
        Numbers of the layers along both axes.
    blocks
        Rows of the results table whose comparison is `results.BLOCKS` or `results.BLOCK_SCORE`.
    """
    from matplotlib.patches import Rectangle

    first = grid.iloc[0]
    if first["model_x"] != first["model_y"]:
        return
    mine = blocks
    for name in GRID_COLUMNS:
        same = mine[name].isna() if _missing(first[name]) else mine[name] == first[name]
        mine = mine[same.fillna(False).astype(bool)]
    for score in mine.loc[mine["comparison"] == BLOCK_SCORE, "value"][:1]:
        axis.set_title(f"{axis.get_title()} · blocks {short(score)}", fontweight="bold")
    mine = mine[mine["comparison"] == BLOCKS]
    for _, cluster in mine.dropna(subset="value").groupby("value"):
        members = [layers.index(int(layer)) for layer in cluster["layer_x"]]
        corner, side = min(members) - 0.5, max(members) - min(members) + 1
        frame = Rectangle(
            (corner, corner), side, side, fill=False, edgecolor="#D55E00", linewidth=2.0, zorder=4
        )
        frame.set_clip_on(False)
        axis.add_patch(frame)


def _missing(value: object) -> bool:
    import pandas as pd

    return bool(pd.isna(value))
