"""Draw the metric without every contiguous span of layers (Phang et al. 2021, figure 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simlab.figures.style import STYLE, heat_colours, short

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

_CELL_INCHES, _SMALLEST_PANEL, _MOST_LAYERS_WITH_VALUES, _MOST_COLUMNS = 0.36, 2.6, 30, 3


def plot_skipping(rows: pd.DataFrame) -> Figure:
    """Draw a triangle for every model in `rows`, on one colour scale.

    Parameters
    ----------
    rows
        Rows of one task with comparison ``skipping``: `layer_x` is i and `layer_y` is j of span
        [i, j); both are 0 for the whole model.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    models = list(rows.groupby("model_x", sort=False))
    layers = int(rows["layer_y"].max())
    columns = min(_MOST_COLUMNS, len(models))
    lines = -(-len(models) // columns)
    side = max(_SMALLEST_PANEL, _CELL_INCHES * layers)
    low, high = rows["value"].min(), rows["value"].max()
    with mpl.rc_context(STYLE):
        size = (columns * (side + 0.6) + 0.9, lines * (side + 0.75) + 0.55)
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(lines, columns, squeeze=False).ravel()
        for axis, (model, grid) in zip(axes, models, strict=False):
            image = _draw_triangle(axis, str(model), grid, low, high)
        for axis in axes[len(models) :]:
            axis.set_axis_off()
        first = rows.iloc[0]
        bar = figure.colorbar(image, ax=axes, shrink=0.7, aspect=32, pad=0.02)
        bar.set_label(f"held-out {first['measure']}")
        bar.outline.set_visible(False)
        title = f"Without a span of layers · task {first['task']} · n = {first['n']:,}"
        figure.suptitle(title, fontsize=11)
    return figure


def _draw_triangle(
    axis: Axes, model: str, rows: pd.DataFrame, low: float, high: float
) -> AxesImage:
    """Draw the first skipped layer upwards and the last to the right; half the square is empty."""
    layers = int(rows["layer_y"].max())
    values = np.full((layers, layers), np.nan)
    skipped = rows[rows["layer_y"] > rows["layer_x"]]
    # Span [i, j) skips layers i + 1 to j.
    values[skipped["layer_x"].astype(int), skipped["layer_y"].astype(int) - 1] = skipped["value"]
    colours = heat_colours().with_extremes(bad="white")
    image = axis.imshow(values, origin="lower", cmap=colours, vmin=low, vmax=high)
    whole = rows.loc[rows["layer_y"] == rows["layer_x"], "value"]
    axis.set_title(f"{model} (whole: {short(whole.iloc[0])})", fontweight="bold")
    axis.set_ylabel("first skipped layer")
    axis.set_xlabel("last skipped layer")
    names = [str(layer + 1) for layer in range(layers)]
    axis.set_yticks(range(layers), names)
    axis.set_xticks(range(layers), names)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    if layers <= _MOST_LAYERS_WITH_VALUES:
        for (row, column), value in np.ndenumerate(values):
            colour = "white" if image.norm(value) < 0.6 else "black"
            text = short(value) if row > column or not np.isnan(value) else "–"  # undefined
            axis.text(column, row, text, ha="center", va="center", fontsize=7.5, color=colour)
    return image
