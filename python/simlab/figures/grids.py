"""Heatmaps of one measure, a panel for every grid of two models.

For one task, the panels stand side by side (Phang et al. 2021, figure 1). For several tasks, models
stand below each other and tasks side by side (figures 2 and 5 to 7).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from simlab.figures import heatmap
from simlab.figures.names import in_order
from simlab.figures.pairs import Panel, Sheet, headings
from simlab.figures.style import (
    POINTS,
    STYLE,
    colour_bar,
    finish,
    flow,
    leave_empty,
    matrix,
    wrapped,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_ROOMY = 9  # panels of a matrix that have room for values
_SMALL_PANEL = 1.6  # inches
_LETTER_INCHES = 0.075
_INTERVAL_NOTE = "Below a value: its 95 % interval."
_BEYOND_NOTE = "Intervals are symmetric, so that an end may leave the range of the measure."
_ARROWS = "↑ The layers of this model go upwards, → of this one to the right."


def draw_sheet(sheet: Sheet, blocks: pd.DataFrame | None = None) -> Figure:
    """Draw a heatmap for each panel of a sheet.

    If `blocks` (rows of `simcore blocks`) has clusters of layers for a grid, they are outlined.
    """
    import matplotlib as mpl

    most_layers = max(max(panel.values.shape) for panel in sheet.panels)
    side = max(heatmap.SMALLEST_PANEL, heatmap.CELL_INCHES * most_layers)
    with_values = most_layers <= heatmap.MOST_LAYERS_WITH_VALUES
    with mpl.rc_context(STYLE):
        if sheet.is_dense:
            with_values &= len(sheet.panels) <= _MOST_ROOMY
            side = side if with_values else _SMALL_PANEL
            figure, axes = _axes_of_matrix(sheet, side)
        else:
            figure, axes = _axes_side_by_side(sheet, side)
        scale = sheet.measure.colours(panel.values for panel in sheet.panels)
        for axis, panel in zip(axes, sheet.panels, strict=True):
            image = heatmap.draw_cells(axis, panel.values, *scale)
            heatmap.label_layers(axis, panel.y_layers, panel.x_layers, side)
            if with_values:
                heatmap.write_values(axis, image, panel.low, panel.high)
            points, above = side * POINTS / max(panel.values.shape), 0.33 if with_values else 0.0
            heatmap.mark_cells(axis, image, panel.pvalue > heatmap.LARGEST_P, points, above)
            if blocks is not None:
                score = heatmap.outline_blocks(axis, panel.rows, panel.x_layers, blocks)
                _write_score(axis, score, side, sheet.is_dense)
        colour_bar(figure, image, figure.axes, sheet.measure.name, fraction=0.05)
        arrows = _ARROWS if sheet.is_dense and any("↑" in line for line in sheet.lines) else ""
        finish(figure, _headline(sheet), f"{arrows} {_note(sheet, with_values)}".strip())
    return figure


def _axes_side_by_side(sheet: Sheet, side: float) -> tuple[Figure, list[Axes]]:
    counts = list(Counter(panel.comparison for panel in sheet.panels).values())
    columns = math.ceil(math.sqrt(len(sheet.panels)))
    if len(counts) > 1 and len(set(counts)) == 1 and 1 < counts[0] <= 5:
        columns = counts[0]  # a line for each comparison
    figure, axes = flow(len(sheet.panels), (side + 0.6, side + 0.75), columns)
    letters, several = int(side / _LETTER_INCHES), sheet.common("n") is None
    for axis, panel, title in zip(axes, sheet.panels, headings(sheet.panels), strict=True):
        title += f" (n = {panel.n:,})" if several and "n =" not in title else ""
        axis.set_title(wrapped(title, letters), fontweight="bold")
        axis.set_ylabel(wrapped(f"layer of {panel.x}", letters))
        axis.set_xlabel(wrapped(f"layer of {panel.y}", letters))
    return figure, axes


def _axes_of_matrix(sheet: Sheet, side: float) -> tuple[Figure, list[Axes]]:
    sizes = {task: {p.n for p in sheet.panels if p.task == task} for task in sheet.tasks}
    columns = [f"{t}\nn = {min(n):,}" if len(n) == 1 else t for t, n in sizes.items()]
    figure, axes = matrix(in_order(sheet.lines), columns, (side + 0.35, side + 0.35))
    of_task = dict(zip(sheet.tasks, columns, strict=True))
    used = [
        axes[line, of_task[panel.task]]
        for panel, line in zip(sheet.panels, sheet.lines, strict=True)
    ]
    for axis in set(axes.values()) - {*used}:
        leave_empty(axis)
    return figure, used


def _write_score(axis: Axes, score: str, side: float, small: bool) -> None:
    """Write the score of blocks below a small panel, and in the title of others."""
    if small and score:
        axis.set_xlabel(score, fontsize=7, labelpad=1)
    elif score:
        score = wrapped(score, int(side / _LETTER_INCHES))
        axis.set_title(f"{axis.get_title()}\n{score}", fontweight="bold")


def _headline(sheet: Sheet) -> str:
    """Return the measure, and the comparison, task and n that all panels have."""
    comparison, n, kind = sheet.common("kind"), sheet.common("n"), sheet.measure.kind
    parts = [f"{sheet.measure.title} between layers"]
    if len(sheet.tasks) == 1:
        parts.append(f"task {sheet.tasks[0]}")
    elif comparison is not None:
        parts.append(comparison)
    parts += [kind] if kind is not None else []
    parts += [f"n = {n:,}"] if n is not None else []
    return " · ".join(parts)


def _note(sheet: Sheet, with_values: bool) -> str:
    """Return a legend for grey cells, dots and small numbers, where there are any."""
    panels: Sequence[Panel] = sheet.panels
    notes = []
    if any(np.isnan(panel.values).any() for panel in panels):
        notes.append(f"{heatmap.undefined_note(sheet.measure.kind)}.")
    if with_values and any(np.isfinite(panel.low).any() for panel in panels):
        notes.append(_INTERVAL_NOTE)
        if any((panel.high > 1).any() and np.nanmax(panel.values) <= 1 for panel in panels):
            notes.append(_BEYOND_NOTE)
    notes.append(heatmap.p_note(panel.pvalue for panel in panels))
    return " ".join(note for note in notes if note)
