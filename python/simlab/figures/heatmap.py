"""The cells of every heatmap: colours, values, intervals, marks of high p-values, and blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from simlab.figures.style import ORANGE, POINTS, heat_colours, layer_names, short, tick_places
from simlab.representations.kinds import CLS
from simlab.results.results import BLOCK_SCORE, BLOCKS, GRID_COLUMNS

LARGEST_P = 0.05  # of a value that is not marked
# A cell of this size has room for two digits.
CELL_INCHES, SMALLEST_PANEL, MOST_LAYERS_WITH_VALUES = 0.36, 2.6, 30
_TICK_POINTS = 10.0  # from one label of a tick to the next


def draw_cells(axis: Axes, values: np.ndarray, low: float, high: float = 1.0) -> AxesImage:
    """Draw `values`, row 0 at the bottom, without ticks and frame.

    `low` and `high` are the values of the first and of the last colour; `low` may be above `high`.
    """
    colours = heat_colours() if low <= high else heat_colours().reversed()
    scale: dict[str, Any] = {"vmin": min(low, high), "vmax": max(low, high)}
    image = axis.imshow(values, origin="lower", cmap=colours, **scale)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    return image


def write_values(
    axis: Axes,
    image: AxesImage,
    low: np.ndarray | None = None,
    high: np.ndarray | None = None,
    *,
    form: Callable[[float], str] = short,
    size: float = 7.5,
) -> None:
    """Write the value of every cell, and below it the interval from `low` to `high`, if any."""
    centred: dict[str, Any] = {"ha": "center", "va": "center"}
    for (row, column), value in np.ndenumerate(_values(image)):
        colour = _on(image, value)
        axis.text(column, row, form(value), fontsize=size, color=colour, **centred)
        if low is not None and high is not None and np.isfinite(low[row, column]):
            text = f"{short(float(low[row, column]))}–{short(float(high[row, column]))}"
            axis.text(column, row - 0.33, text, fontsize=4, color=colour, **centred)


def mark_cells(
    axis: Axes, image: AxesImage, marked: np.ndarray, points: float, above: float = 0.0
) -> None:
    """Put a dot into the cells where `marked` is true.

    A cell is `points` wide. `above` moves the dot up: 0 is the middle of the cell, 0.5 its upper
    edge.
    """
    rows, columns = np.nonzero(marked)
    colours = [_on(image, value) for value in _values(image)[rows, columns]]
    size = min(3.0, 0.4 * points)
    axis.scatter(columns, rows + above, s=size**2, c=colours, linewidths=0, zorder=3)


def _values(image: AxesImage) -> np.ndarray:
    return cast("np.ma.MaskedArray", image.get_array()).filled(np.nan)


def _on(image: AxesImage, value: float) -> str:
    """Return the colour in which text is read on a cell."""
    share = cast("Normalize", image.norm)(value)
    if image.get_cmap().name.endswith("_r"):
        share = 1 - share
    return "white" if share < 0.6 else "black"


def p_note(pvalues: Iterable[np.ndarray]) -> str:
    """Return the meaning of dots, or that there are none; empty if no p-value is known."""
    defined = np.concatenate([[], *(values[np.isfinite(values)] for values in pvalues)])
    if (defined > LARGEST_P).any():
        return f"Dots: p > {short(LARGEST_P)}, permutation test."
    return f"All p ≤ {short(LARGEST_P)}, permutation test." if len(defined) else ""


def undefined_note(kind: str | None) -> str:
    """Return why cells are grey, for a kind of rows."""
    note = "Grey: undefined, because the layer does not vary over the rows"
    always = " (at the embedding output, “emb”, CLS is always the same vector)"
    return note + (always if kind == CLS else "")


def label_layers(axis: Axes, x: Sequence[int], y: Sequence[int], inches: float) -> None:
    """Label the layers along both axes, or some of many, of a panel that is `inches` wide."""
    points = inches * POINTS / max(len(x), len(y))
    every = max(1, math.ceil(_TICK_POINTS / points))
    size = min(9.0, 0.9 * every * points)
    for label, layers in ((axis.set_xticks, x), (axis.set_yticks, y)):
        places = tick_places(len(layers), every)
        label(places, layer_names([layers[place] for place in places]), fontsize=size)


def outline_blocks(
    axis: Axes, grid: pd.DataFrame, layers: Sequence[int], blocks: pd.DataFrame
) -> str:
    """Draw a frame around each cluster of a grid's blocks, and return their score as text.

    The text is empty if `blocks`, rows of a results table, has no blocks of the grid.
    """
    mine = blocks_of(grid, blocks)
    clusters = mine[mine["experiment"] == BLOCKS].dropna(subset="value")
    for _, cluster in clusters.groupby("value"):
        places = [layers.index(int(layer)) for layer in cluster["layer_x"]]
        corner, side = min(places) - 0.5, max(places) - min(places) + 1
        line: dict[str, Any] = {"edgecolor": ORANGE, "linewidth": 2.0, "zorder": 4}
        frame = Rectangle((corner, corner), side, side, fill=False, clip_on=False, **line)
        axis.add_patch(frame)
    scores = mine[mine["experiment"] == BLOCK_SCORE]
    words = [
        short(row.value) + (f" (p {short(row.pvalue)})" if np.isfinite(row.pvalue) else "")
        for row in scores.itertuples()
    ]
    return f"block score {', '.join(words)}" if words else ""


def blocks_of(grid: pd.DataFrame, blocks: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `blocks` that belong to a grid; a grid of two models has none."""
    first = grid.iloc[0]
    # The page has models by label and seed: a grid there has no columns of steps.
    for name in ("label", "seed", "step"):
        if f"{name}_x" in first:
            x, y = first[f"{name}_x"], first[f"{name}_y"]
            if pd.isna(x) != pd.isna(y) or (pd.notna(x) and x != y):
                return blocks[:0]
    for name in first.index.intersection(GRID_COLUMNS):
        same = blocks[name].isna() if pd.isna(first[name]) else blocks[name] == first[name]
        blocks = blocks[same.fillna(False).astype(bool)]
    return blocks
