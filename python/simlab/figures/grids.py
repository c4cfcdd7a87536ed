"""Draw heatmaps of one measure, a panel for every comparison (Phang et al. 2021, figure 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from simlab.figures.blocks import outline_blocks
from simlab.figures.style import (
    STYLE,
    heat_colours,
    layer_names,
    lowest_colour,
    measure_name,
    short,
)
from simlab.representations.kinds import CLS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_UNDEFINED_NOTE = "Grey: undefined, because the layer does not vary over the examples"
_CLS_NOTE = " (at the embedding output, “emb”, CLS is always the same vector)"
# A panel has room for two digits in every cell. With more layers than this, no digits are shown.
_CELL_INCHES, _SMALLEST_PANEL, _MOST_LAYERS_WITH_VALUES = 0.36, 2.6, 30


@dataclass(frozen=True)
class Panel:
    """A heatmap: `values` is [layers of x, layers of y], with x upwards as in Phang et al. 2021."""

    title: str
    side: str
    bottom: str
    values: np.ndarray
    x_layers: list[int]
    y_layers: list[int]
    rows: pd.DataFrame


def plot_grids(rows: pd.DataFrame, blocks: pd.DataFrame | None = None) -> Figure:
    """Draw heatmaps of all comparisons in `rows` (one measure, one estimator), on one colour scale.

    If `blocks` (rows of `simcore blocks`) has clusters of layers for a grid, they are outlined.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    panels = _panels(rows)
    columns = int(np.ceil(np.sqrt(len(panels))))
    lines = -(-len(panels) // columns)
    most = max(max(panel.values.shape) for panel in panels)
    side = max(_SMALLEST_PANEL, _CELL_INCHES * most)
    low = min(lowest_colour(rows.iloc[0]["measure"], panel.values) for panel in panels)
    with mpl.rc_context(STYLE):
        size = (columns * (side + 0.6) + 0.9, lines * (side + 0.75) + 0.55)
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(lines, columns, squeeze=False).ravel()
        for axis, panel in zip(axes, panels, strict=False):
            image = _draw_panel(axis, panel, low)
            if blocks is not None:
                outline_blocks(axis, panel.rows, panel.x_layers, blocks)
        for axis in axes[len(panels) :]:
            axis.set_axis_off()
        bar = figure.colorbar(image, ax=axes, shrink=0.7, aspect=32, pad=0.02)
        bar.set_label(measure_name(rows))
        bar.outline.set_visible(False)
        figure.suptitle(_headline(rows), fontsize=11)
        if any(np.isnan(panel.values).any() for panel in panels):
            note = _UNDEFINED_NOTE + (_CLS_NOTE if str(rows.iloc[0]["kind"]) == CLS else "")
            figure.supxlabel(f"{note}.", fontsize=7.5, color="0.35")
    return figure


def _panels(rows: pd.DataFrame) -> list[Panel]:
    """Return a panel for each comparison; of several pairs of models, the first is shown."""
    panels = []
    for comparison, grid in rows.groupby("comparison", observed=True):
        first = grid.iloc[0]
        same = (grid["model_x"] == first["model_x"]) & (grid["model_y"] == first["model_y"])
        table = grid[same].pivot(index="layer_x", columns="layer_y", values="value")
        table = table.sort_index().sort_index(axis=1)
        panels.append(
            Panel(
                str(comparison).replace("-", "–"),
                first["model_x"],
                first["model_y"],
                table.to_numpy(),
                [int(layer) for layer in table.index],
                [int(layer) for layer in table.columns],
                grid[same],
            )
        )
    return panels


def _draw_panel(axis: Axes, panel: Panel, low: float):
    values = panel.values
    image = axis.imshow(values, origin="lower", cmap=heat_colours(), vmin=low, vmax=1.0)
    axis.set_title(panel.title, fontweight="bold")
    axis.set_ylabel(f"layer of {panel.side}")
    axis.set_xlabel(f"layer of {panel.bottom}")
    axis.set_yticks(range(values.shape[0]), layer_names(panel.x_layers))
    axis.set_xticks(range(values.shape[1]), layer_names(panel.y_layers))
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    if max(values.shape) <= _MOST_LAYERS_WITH_VALUES:
        for (row, column), value in np.ndenumerate(values):
            light = image.norm(value) < 0.6
            axis.text(
                column,
                row,
                short(value),
                ha="center",
                va="center",
                fontsize=7.5,
                color="white" if light else "black",
            )
    return image


def _headline(rows: pd.DataFrame) -> str:
    first = rows.iloc[0]
    name = measure_name(rows)
    return f"{name[0].upper()}{name[1:]} between layers · task {first['task']} · n = {first['n']:,}"
