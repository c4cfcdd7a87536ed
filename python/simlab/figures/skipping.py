"""Draw a value of every contiguous span of layers: the metric without it (Phang et al. 2021,
figure 4), or its influence on the states.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from simlab.figures import heatmap
from simlab.figures.style import (
    LETTER_INCHES,
    POINTS,
    SMALL_PANEL,
    colour_bar,
    finish,
    flow,
    heat_colours,
    leave_empty,
    matrix,
    row_count,
    short,
    styled,
    task_names,
    wrapped,
)
from simlab.figures.table import in_order, with_models
from simlab.results.results import ANGULAR, BLOCK_INFLUENCE

_MOST_COLUMNS = 3
_MEANT = {BLOCK_INFLUENCE: "1 - cosine", ANGULAR: "angle (1 is a half turn)"}


def plot_skipping(rows: pd.DataFrame) -> Figure:
    """Draw the metric without every span of layers; see `plot_influence`.

    `layer_x` is i and `layer_y` is j of span [i, j); both are 0 for the whole model.
    """
    ends = ("first skipped layer", "last skipped layer")
    return _plot(rows, "Without a span of layers", ends, "held-out {}")


def plot_influence(rows: pd.DataFrame) -> Figure:
    """Draw a triangle for every model and seed, on one colour scale for each task.

    Models of one task stand side by side; models of several tasks stand below each other, and the
    tasks side by side. `layer_x` is i and `layer_y` is j of span [i, j).
    """
    ends = ("first layer of the span", "last layer of the span")
    return _plot(rows, "Influence of a span of layers", ends, "{} of input and output")


@styled
def _plot(rows: pd.DataFrame, title: str, ends: tuple[str, str], bar: str) -> Figure:
    """Draw triangles whose colour bar has the text `bar`, with ``{}`` for the measure."""
    rows = with_models(rows, ["task", "measure"], together=False)
    columns = [part for _, part in rows.groupby(["task", "measure"], sort=False)]
    models = in_order(rows["model"])
    if len(columns) > 1:
        return _draw_matrix(columns, models, title, ends[0])
    side = max(heatmap.SMALLEST_PANEL, heatmap.CELL_INCHES * int(rows["layer_y"].max()))
    figure, axes = flow(len(models), (side + 0.6, side + 0.75), _MOST_COLUMNS)
    for axis, model in zip(axes, models, strict=True):
        image, whole = _draw_triangle(axis, rows, model, side)
        heading = wrapped(f"{model} ({whole})" if whole else model, int(side / LETTER_INCHES))
        axis.set_title(heading, fontweight="bold")
        axis.set(xlabel=ends[1], ylabel=ends[0])
    first = rows.iloc[0]
    colour_bar(figure, image, axes, bar.format(_MEANT.get(first["measure"], first["measure"])))
    finish(figure, " · ".join([title, f"task {first['task']}", *row_count(rows)]))
    return figure


def _draw_matrix(
    columns: Sequence[pd.DataFrame], models: Sequence[str], title: str, first: str
) -> Figure:
    """Draw models below each other and tasks side by side, a colour bar below each task."""
    names = task_names(columns)
    figure, axes = matrix(models, names, (SMALL_PANEL + 0.35, SMALL_PANEL + 0.35))
    for name, rows in zip(names, columns, strict=True):
        for model in models:
            axis = axes[model, name]
            if (rows["model"] == model).any():
                image, whole = _draw_triangle(axis, rows, model, SMALL_PANEL)
                axis.set_xlabel(whole, fontsize=7, labelpad=1)
            else:
                leave_empty(axis)
        below = [axes[model, name] for model in models]
        colour_bar(figure, image, below, "", location="bottom", aspect=16)
    finish(figure, title, f"The {first} goes upwards, the last to the right.")
    return figure


def _draw_triangle(
    axis: Axes, rows: pd.DataFrame, model: str, side: float
) -> tuple[AxesImage, str]:
    """Draw the first layer of spans upwards and the last to the right; return the model's metric.

    `rows` are of all models that share the colour scale.
    """
    scale = float(rows["value"].min()), float(rows["value"].max())
    rows = rows[rows["model"] == model]
    count = int(rows["layer_y"].max())
    values = np.full((count, count), np.nan)
    skipped = rows[rows["layer_y"] > rows["layer_x"]]
    # Span [i, j) skips layers i + 1 to j.
    values[skipped["layer_x"].astype(int), skipped["layer_y"].astype(int) - 1] = skipped["value"]
    layers = range(1, count + 1)
    image = heatmap.draw_cells(axis, values, *scale)
    image.set_cmap(heat_colours().with_extremes(bad="white"))
    heatmap.label_layers(axis, layers, layers, side)
    if count <= heatmap.MOST_LAYERS_WITH_VALUES and side > SMALL_PANEL:
        heatmap.write_values(axis, image)
    for row, column in zip(*np.nonzero(np.isnan(np.triu(values))), strict=True):
        size = min(7.5, 0.6 * side * POINTS / count)
        axis.text(column, row, "–", ha="center", va="center", fontsize=size)  # undefined
    whole = rows.loc[rows["layer_y"] == rows["layer_x"], "value"]
    return image, f"whole: {short(whole.iloc[0])}" if whole.notna().any() else ""
