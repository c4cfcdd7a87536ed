"""Draw several models in one heatmap per measure, and their localization scores.

`plot_models` follows Wu et al. 2020: figures 1 and 4 (all layers of all models on both axes, with
lines between models), figures 3 and 7 (localization score per layer, before and after fine-tuning).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from simlab.figures.style import (
    STYLE,
    draw_curves,
    heat_colours,
    layer_names,
    lowest_colour,
    measure_name,
)
from simlab.similarity.catalogue import MEASURES
from simlab.store.results import Layer, joint_table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL_INCHES = 4.0
_MOST_COLUMNS = 3
_MOST_TICKS = 24
_NOTE = "X is on the vertical axis, Y on the horizontal axis. White lines separate the models."
_UNDEFINED_NOTE = " Grey: undefined, because the layer does not vary over the rows."
_ORDER = {name: place for place, name in enumerate(MEASURES)}
MEASURE_COLUMNS = ("measure", "kind", "kernel", "estimator", "options")


def plot_models(rows: pd.DataFrame, localization: pd.DataFrame) -> Figure:
    """Draw a heatmap for every measure in `rows`, and a panel of `localization` scores, if any.

    Parameters
    ----------
    rows
        Rows of joint grids: one comparison, any measures.
    localization
        Localization scores of the same models, or an empty table.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    rows = rows.sort_values("measure", key=lambda names: names.map(_ORDER.get), kind="stable")
    grids = [grid for _, grid in rows.groupby(list(MEASURE_COLUMNS), dropna=False, sort=False)]
    count = len(grids) + bool(len(localization))
    columns = min(_MOST_COLUMNS, count)
    lines = -(-count // columns)
    with mpl.rc_context(STYLE):
        size = (columns * (_PANEL_INCHES + 0.8), lines * _PANEL_INCHES + 0.5)
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(lines, columns, squeeze=False).ravel()
        undefined = [_draw_grid(axis, grid) for axis, grid in zip(axes, grids, strict=False)]
        if len(localization):
            _draw_localization(axes[len(grids)], localization)
        for axis in axes[count:]:
            axis.set_axis_off()
        task = (rows if len(rows) else localization).iloc[0]["task"]
        figure.suptitle(f"All layers of all models · task {task}", fontsize=11)
        note = _NOTE + (_UNDEFINED_NOTE if any(undefined) else "")
        figure.supxlabel(note, fontsize=7.5, color="0.35")
    return figure


def _draw_grid(axis: Axes, rows: pd.DataFrame) -> bool:
    """Draw a heatmap, and return whether it has undefined values."""
    layers, values = joint_table(rows)
    first = rows.iloc[0]
    low = lowest_colour(first["measure"], values)
    image = axis.imshow(values, origin="lower", cmap=heat_colours(), vmin=low, vmax=1.0)
    name = measure_name(rows)
    axis.set_title(f"{name[0].upper()}{name[1:]}", fontweight="bold")
    _label_layers(axis, layers)
    axis.spines[:].set_visible(False)
    bar = axis.figure.colorbar(image, ax=axis, shrink=0.75, aspect=24, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=7, length=2)
    rows_of = "sentences" if str(first["kind"]).startswith("attention") else "rows"
    bar.set_label(f"{first['kind']}, n = {first['n']:,} {rows_of}", fontsize=7.5, color="0.35")
    return bool(np.isnan(values).any())


def _label_layers(axis: Axes, layers: Sequence[Layer]) -> None:
    """Label every layer (or some of many) and every model, and draw lines between models."""
    blocks = [(model, list(group)) for model, group in groupby(layers, lambda l: l.model)]
    step = -(-len(layers) // _MOST_TICKS)
    ticks, names, centres, edges = [], [], [], []
    start = 0
    for _, group in blocks:
        labels = layer_names([layer.number for layer in group])
        ticks += range(start, start + len(group), step)
        names += labels[::step]
        centres.append(start + (len(group) - 1) / 2)
        start += len(group)
        edges.append(start - 0.5)
    for edge in edges[:-1]:
        axis.axhline(edge, color="white", linewidth=1.8)
        axis.axvline(edge, color="white", linewidth=1.8)
    models = [model for model, _ in blocks]
    axis.set_xticks(ticks, names, fontsize=5)
    axis.set_yticks(ticks, names, fontsize=5)
    axis.tick_params(length=0, pad=1.5)
    outer = (axis.secondary_xaxis(-0.05), axis.secondary_yaxis(-0.06))
    outer[0].set_xticks(centres, models)
    outer[1].set_yticks(centres, models, rotation=90, va="center")
    for side in outer:
        side.tick_params(length=0)
        side.spines[:].set_visible(False)


def _draw_localization(axis: Axes, rows: pd.DataFrame) -> None:
    draw_curves(axis, rows)
    axis.axhline(0.0, color="0.35", linestyle=(0, (5, 3)), linewidth=1.0)
    axis.set_title("Localization score", fontweight="bold")
    axis.set_xlabel("layer")
    axis.set_ylabel("mean neuronsim − mean SVCCA")
    axis.legend(frameon=False)
