"""Draw heatmaps of one measure, a panel for every grid of two models.

For one task, the panels stand side by side (Phang et al. 2021, figure 1). For several tasks, models
stand below each other and tasks side by side (figures 2 and 5 to 7).
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from simlab.figures import heatmap
from simlab.figures.blocks import outline_blocks
from simlab.figures.names import in_order
from simlab.figures.pairs import Panel, Sheet, headings
from simlab.figures.panels import add_note, centred_title, colour_bar, flow, headline, matrix
from simlab.figures.style import POINTS, STYLE

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

_INTERVAL_NOTE = "Below a value: its 95 % interval."
_BEYOND_NOTE = "Intervals are symmetric, so that an end may leave the range of the measure."
_MOST_ROOMY = 9  # panels of a matrix that have room for values
_SMALL_PANEL = 1.6  # inches
_LETTER_INCHES = 0.075


def draw_sheet(sheet: Sheet, blocks: pd.DataFrame | None = None) -> Figure:
    """Draw a heatmap for each panel of a sheet.

    If `blocks` (rows of `simcore blocks`) has clusters of layers for a grid, they are outlined.
    """
    import matplotlib as mpl

    draw = _draw_matrix if sheet.is_dense else _draw_side_by_side
    with mpl.rc_context(STYLE):
        return draw(sheet, blocks)


def _draw_side_by_side(sheet: Sheet, blocks: pd.DataFrame | None) -> Figure:
    panels, side, with_values = sheet.panels, _side(sheet), _has_values(sheet)
    figure, axes = flow(
        len(panels),
        lambda columns, lines: (columns * (side + 0.6) + 0.9, lines * (side + 0.75) + 0.55),
        _columns(panels),
    )
    letters = int(side / _LETTER_INCHES)
    scale, several = _range(sheet), sheet.common("n") is None
    for axis, panel, title in zip(axes, panels, headings(panels), strict=True):
        image = _draw_panel(axis, panel, scale, side, with_values)
        title += f" (n = {panel.n:,})" if several and "n =" not in title else ""
        title = f"{panel.task} · {title}" if len(sheet.tasks) > 1 else title
        axis.set_title(textwrap.fill(title, letters), fontweight="bold")
        axis.set_ylabel(textwrap.fill(f"layer of {panel.x}", letters))
        axis.set_xlabel(textwrap.fill(f"layer of {panel.y}", letters))
        if score := _outlined(axis, panel, blocks):
            score = textwrap.fill(score, letters)
            axis.set_title(f"{axis.get_title()}\n{score}", fontweight="bold")
    bar = figure.colorbar(image, ax=axes, shrink=0.7, aspect=32, pad=0.02)
    bar.set_label(sheet.measure.name)
    bar.outline.set_visible(False)
    add_note(figure, _note(sheet, with_values))
    centred_title(figure, axes, _headline(sheet))
    return figure


def _draw_matrix(sheet: Sheet, blocks: pd.DataFrame | None) -> Figure:
    """Draw models below each other and tasks side by side."""
    panels, tasks, lines = sheet.panels, sheet.tasks, in_order(sheet.line_names)
    roomy = len(panels) <= _MOST_ROOMY and _has_values(sheet)
    side = _side(sheet) if roomy else _SMALL_PANEL
    columns = [_column_name(task, panels) for task in tasks]
    figure, axes = matrix(lines, columns, (side, side), (0.35, 0.35))
    scale, used = _range(sheet), set()
    for panel, line in zip(panels, sheet.line_names, strict=True):
        axis = axes[lines.index(line), tasks.index(panel.task)]
        used.add(axis)
        image = _draw_panel(axis, panel, scale, side, roomy)
        if score := _outlined(axis, panel, blocks):
            axis.set_xlabel(score, fontsize=7, labelpad=1)
    for axis in set(axes.ravel()) - used:
        axis.set_axis_off()
    colour_bar(figure, image, sheet.measure.name)
    arrows = "↑ The layers of this model go upwards, → of this one to the right. "
    note = (arrows if any("↑" in line for line in lines) else "") + _note(sheet, roomy)
    headline(figure, _headline(sheet), note)
    return figure


def _side(sheet: Sheet) -> float:
    """Return the width of a panel in inches that has room for its values."""
    return max(heatmap.SMALLEST_PANEL, heatmap.CELL_INCHES * sheet.most_layers)


def _has_values(sheet: Sheet) -> bool:
    return sheet.most_layers <= heatmap.MOST_LAYERS_WITH_VALUES


def _columns(panels: Sequence[Panel]) -> int:
    """Return how many panels stand side by side: as many as each comparison has, if equal."""
    counts = list(Counter(panel.comparison for panel in panels).values())
    if len(counts) > 1 and len(set(counts)) == 1 and 1 < counts[0] <= 5:
        return counts[0]
    return int(np.ceil(np.sqrt(len(panels))))


def _range(sheet: Sheet) -> tuple[float, float]:
    return sheet.measure.colours(panel.values for panel in sheet.panels)


def _draw_panel(
    axis: Axes, panel: Panel, scale: tuple[float, float], side: float, with_values: bool
) -> AxesImage:
    image = heatmap.draw_cells(axis, panel.values, *scale)
    points = side * POINTS / max(panel.values.shape)
    heatmap.label_layers(axis, panel.y_layers, panel.x_layers, points)
    if with_values:
        heatmap.write_values(axis, image, panel.low, panel.high)
    above = 0.33 if with_values else 0.0
    heatmap.mark_cells(axis, image, panel.pvalue > heatmap.LARGEST_P, points, above)
    return image


def _outlined(axis: Axes, panel: Panel, blocks: pd.DataFrame | None) -> str:
    if blocks is None:
        return ""
    return outline_blocks(axis, panel.rows, panel.x_layers, blocks)


def _column_name(task: str, panels: Sequence[Panel]) -> str:
    sizes = {panel.n for panel in panels if panel.task == task}
    return f"{task}\nn = {sizes.pop():,}" if len(sizes) == 1 else task


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
    panels, notes = sheet.panels, []
    if any(np.isnan(panel.values).any() for panel in panels):
        notes.append(f"{heatmap.undefined_note(sheet.measure.kind)}.")
    if with_values and any(np.isfinite(panel.low).any() for panel in panels):
        notes.append(_INTERVAL_NOTE)
        if any((panel.high > 1).any() and np.nanmax(panel.values) <= 1 for panel in panels):
            notes.append(_BEYOND_NOTE)
    notes.append(heatmap.p_note(panel.pvalue for panel in panels))
    return " ".join(note for note in notes if note)
