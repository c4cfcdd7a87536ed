"""Draw a value of every contiguous span of layers: the metric without it (Phang et al. 2021,
figure 4), or its influence on the states.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from simlab.figures import heatmap
from simlab.figures.names import in_order, models_of, name_models
from simlab.figures.panels import flow, headline, matrix
from simlab.figures.style import POINTS, STYLE, heat_colours, short
from simlab.store.results import ANGULAR, BLOCK_INFLUENCE

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

_MOST_COLUMNS = 3
_SMALL_PANEL, _GAP = 1.6, (0.35, 0.5)  # inches


@dataclass(frozen=True)
class Words:
    """The texts of a figure: titles, axes and colour bar, with ``{}`` for the measure."""

    title: str
    first: str
    last: str
    bar: str

    @property
    def note(self) -> str:
        """Return how to read a small panel, which has no labels of axes."""
        return f"The {self.first} goes upwards, the last to the right."


_SKIPPED = Words(
    "Without a span of layers", "first skipped layer", "last skipped layer", "held-out {}"
)
_TURNED = Words(
    "Influence of a span of layers",
    "first layer of the span",
    "last layer of the span",
    "{} of input and output",
)
_MEANT = {BLOCK_INFLUENCE: "1 - cosine", ANGULAR: "angle (1 is a half turn)"}


@dataclass(frozen=True, eq=False)
class Triangle:
    """A model with a seed: `values` is [first skipped layer, last skipped layer]."""

    column: str
    model: str
    rows: pd.DataFrame
    values: np.ndarray
    whole: float


def plot_skipping(rows: pd.DataFrame) -> Figure:
    """Draw the metric without every span of layers; see `plot_influence`.

    `layer_x` is i and `layer_y` is j of span [i, j); both are 0 for the whole model.
    """
    return _plot(rows, _SKIPPED)


def plot_influence(rows: pd.DataFrame) -> Figure:
    """Draw a triangle for every model and seed, on one colour scale for each task.

    Models of one task stand side by side; models of several tasks stand below each other, and the
    tasks side by side. `layer_x` is i and `layer_y` is j of span [i, j).
    """
    return _plot(rows, _TURNED)


def _plot(rows: pd.DataFrame, words: Words) -> Figure:
    import matplotlib as mpl

    triangles = _triangles(rows)
    columns = in_order(triangle.column for triangle in triangles)
    with mpl.rc_context(STYLE):
        if len(columns) == 1:
            return _draw_side_by_side(triangles, words)
        return _draw_matrix(triangles, columns, words)


def _triangles(rows: pd.DataFrame) -> list[Triangle]:
    measures = rows.groupby("task")["measure"].nunique()
    cells, models = [], []
    for key, part in rows.groupby(["task", "measure"], sort=False):
        of_part = models_of(part, task=key[0] if len(measures) > 1 else "", together=False)
        models += of_part
        cells += [f"{key[0]}\n{key[1]}"] * len(of_part)
    names = name_models(models, cells)
    return [
        Triangle(cell, name, model.rows, *_square(model.rows))
        for cell, name, model in zip(cells, names, models, strict=True)
    ]


def _square(rows: pd.DataFrame) -> tuple[np.ndarray, float]:
    """Return the metric without each span, nan below the diagonal; and the model's metric."""
    layers = int(rows["layer_y"].max())
    values = np.full((layers, layers), np.nan)
    skipped = rows[rows["layer_y"] > rows["layer_x"]]
    # Span [i, j) skips layers i + 1 to j.
    values[skipped["layer_x"].astype(int), skipped["layer_y"].astype(int) - 1] = skipped["value"]
    whole = rows.loc[rows["layer_y"] == rows["layer_x"], "value"]
    return values, float(whole.iloc[0]) if len(whole) else float("nan")


def _draw_side_by_side(triangles: Sequence[Triangle], words: Words) -> Figure:
    layers = max(len(triangle.values) for triangle in triangles)
    side = max(heatmap.SMALLEST_PANEL, heatmap.CELL_INCHES * layers)
    figure, axes = flow(
        len(triangles),
        lambda columns, lines: (columns * (side + 0.6) + 0.9, lines * (side + 0.75) + 0.55),
        _MOST_COLUMNS,
    )
    names = in_order(triangle.model for triangle in triangles)
    for axis, triangle in zip(
        axes, sorted(triangles, key=lambda t: names.index(t.model)), strict=True
    ):
        image = _draw_triangle(axis, triangle, _range(triangles), side)
        if layers <= heatmap.MOST_LAYERS_WITH_VALUES:
            heatmap.write_values(axis, image)
        title = " ".join([triangle.model, *(f"({whole})" for whole in _whole(triangle))])
        axis.set_title(textwrap.fill(title, int(side / 0.075)), fontweight="bold")
        axis.set_ylabel(words.first)
        axis.set_xlabel(words.last)
    first = triangles[0].rows.iloc[0]
    bar = figure.colorbar(image, ax=axes, shrink=0.7, aspect=32, pad=0.02)
    bar.set_label(words.bar.format(_MEANT.get(first["measure"], first["measure"])))
    bar.outline.set_visible(False)
    parts = [words.title, f"task {first['task']}", *_size(triangles)]
    figure.suptitle(" · ".join(parts), fontsize=11)
    return figure


def _draw_matrix(triangles: Sequence[Triangle], columns: Sequence[str], words: Words) -> Figure:
    """Draw models below each other and tasks side by side, a colour bar below each task."""
    models = in_order(triangle.model for triangle in triangles)
    of_column = {name: [t for t in triangles if t.column == name] for name in columns}
    names = [", ".join([name, *_size(mine)]) for name, mine in of_column.items()]
    figure, axes = matrix(models, names, (_SMALL_PANEL, _SMALL_PANEL), _GAP)
    for column, mine in enumerate(of_column.values()):
        for axis in axes[:, column]:
            axis.set_axis_off()
        for triangle in mine:
            axis = axes[models.index(triangle.model), column]
            axis.set_axis_on()
            image = _draw_triangle(axis, triangle, _range(mine), _SMALL_PANEL)
            axis.set_xlabel("".join(_whole(triangle)), fontsize=7, labelpad=1)
        bar = figure.colorbar(
            image, cax=axes[-1, column].inset_axes((0, -0.5, 1, 0.06)), orientation="horizontal"
        )
        bar.outline.set_visible(False)
        bar.ax.tick_params(labelsize=6.5)
        bar.ax.locator_params(nbins=4)
    headline(figure, words.title, words.note)
    return figure


def _whole(triangle: Triangle) -> list[str]:
    """Return the value of the whole model, if there is one."""
    return [] if np.isnan(triangle.whole) else [f"whole: {short(triangle.whole)}"]


def _range(triangles: Sequence[Triangle]) -> tuple[float, float]:
    """Return the lowest and the highest metric, which are the ends of the colour scale."""
    import pandas as pd

    values = pd.concat([triangle.rows["value"] for triangle in triangles])
    return values.min(), values.max()


def _draw_triangle(
    axis: Axes, triangle: Triangle, scale: tuple[float, float], side: float
) -> AxesImage:
    """Draw the first skipped layer upwards and the last to the right; half the square is empty."""
    layers = range(1, len(triangle.values) + 1)
    image = heatmap.draw_cells(axis, triangle.values, *scale)
    image.set_cmap(heat_colours().with_extremes(bad="white"))
    points = side * POINTS / len(layers)
    heatmap.label_layers(axis, layers, layers, points)
    for row, column in zip(*np.nonzero(np.isnan(np.triu(triangle.values))), strict=True):
        size = min(7.5, 0.6 * points)
        axis.text(column, row, "–", ha="center", va="center", fontsize=size)  # undefined
    return image


def _size(triangles: Sequence[Triangle]) -> list[str]:
    """Return the number of held-out rows, if it is the same for all triangles."""
    sizes = {int(n) for triangle in triangles for n in triangle.rows["n"]}
    return [f"n = {sizes.pop():,}"] if len(sizes) == 1 else []
