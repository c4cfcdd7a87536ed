"""The cells of every heatmap: colours, values, intervals, and marks of high p-values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from simlab.figures.style import heat_colours, layer_names, short, tick_places
from simlab.representations.kinds import CLS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.image import AxesImage

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
    axis: Axes, image: AxesImage, low: np.ndarray | None = None, high: np.ndarray | None = None
) -> None:
    """Write the value of every cell, and below it the interval from `low` to `high`, if any."""
    values = cast("np.ma.MaskedArray", image.get_array()).filled(np.nan)
    for (row, column), value in np.ndenumerate(values):
        colour = _on(image, value)
        axis.text(column, row, short(value), ha="center", va="center", fontsize=7.5, color=colour)
        if low is not None and high is not None and np.isfinite(low[row, column]):
            text = f"{short(float(low[row, column]))}–{short(float(high[row, column]))}"
            axis.text(column, row - 0.33, text, ha="center", va="center", fontsize=4, color=colour)


def mark_cells(
    axis: Axes, image: AxesImage, marked: np.ndarray, points: float, above: float = 0.0
) -> None:
    """Put a dot into the cells where `marked` is true.

    A cell is `points` wide. `above` moves the dot up: 0 is the middle of the cell, 0.5 its upper
    edge.
    """
    values = cast("np.ma.MaskedArray", image.get_array()).filled(np.nan)
    rows, columns = np.nonzero(marked)
    colours = [_on(image, values[place]) for place in zip(rows, columns, strict=True)]
    size = min(3.0, 0.4 * points)
    axis.scatter(columns, rows + above, s=size**2, c=colours, linewidths=0, zorder=3)


def p_note(pvalues: Iterable[np.ndarray]) -> str:
    """Return the meaning of dots, or that there are none; empty if no p-value is known."""
    defined = [values[np.isfinite(values)] for values in pvalues]
    if any((values > LARGEST_P).any() for values in defined):
        return f"Dots: p > {short(LARGEST_P)}, permutation test."
    tested = any(len(values) for values in defined)
    return f"All p ≤ {short(LARGEST_P)}, permutation test." if tested else ""


def undefined_note(kind: str | None) -> str:
    """Return why cells are grey, for a kind of rows."""
    note = "Grey: undefined, because the layer does not vary over the rows"
    always = " (at the embedding output, “emb”, CLS is always the same vector)"
    return note + (always if kind == CLS else "")


def _on(image: AxesImage, value: float) -> str:
    """Return the colour in which text is read on a cell."""
    share = cast("Normalize", image.norm)(value)
    if image.get_cmap().name.endswith("_r"):
        share = 1 - share
    return "white" if share < 0.6 else "black"


def label_layers(axis: Axes, x: Sequence[int], y: Sequence[int], points: float) -> None:
    """Label the layers along both axes, or some of many, where a cell is `points` wide."""
    every = max(1, int(np.ceil(_TICK_POINTS / points)))
    size = min(9.0, 0.9 * every * points)
    for label, layers in ((axis.set_xticks, x), (axis.set_yticks, y)):
        places = tick_places(len(layers), every)
        label(places, layer_names([layers[place] for place in places]), fontsize=size)
