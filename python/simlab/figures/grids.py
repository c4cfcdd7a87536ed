"""Draw heatmaps of one measure, a panel for every grid of two models.

For one task, the panels stand side by side (Phang et al. 2021, figure 1). For several tasks, models
stand below each other and tasks side by side (figures 2 and 5 to 7).
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from simlab.figures import heatmap
from simlab.figures.blocks import outline_blocks
from simlab.figures.names import in_order, task_name
from simlab.figures.pairs import Panel, figures_of, is_dense, line_names, panels_of
from simlab.figures.panels import add_note, centred_title, colour_bar, flow, headline, matrix
from simlab.figures.style import POINTS, STYLE, colour_range, measure_name, measure_words
from simlab.figures.table import MEASURE_COLUMNS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

_INTERVAL_NOTE = "Below a value: its 95 % interval."
_MOST_ROOMY = 9  # panels of a matrix that have room for values
_SMALL_PANEL = 1.6  # inches
_LETTER_INCHES = 0.075


def grid_figures(
    grids: pd.DataFrame, blocks: pd.DataFrame, ordered: bool
) -> Iterator[tuple[str, Figure]]:
    """Yield the figures of grids of two models, at least one for every measure, by name.

    Parameters
    ----------
    blocks, ordered
        As for `draw_panels` and `figures_of`.
    """
    for _, rows in grids.groupby(list(MEASURE_COLUMNS), dropna=False, sort=False):
        words = measure_words(rows.iloc[0])
        for word, panels in figures_of(panels_of(rows), ordered):
            parts = [task_name(panel.task for panel in panels), *words, *([word] if word else [])]
            yield "-".join(parts), draw_panels(panels, blocks)


def draw_panels(panels: Sequence[Panel], blocks: pd.DataFrame | None = None) -> Figure:
    """Draw heatmaps of `panels` of one measure, on one colour scale.

    If `blocks` (rows of `simcore blocks`) has clusters of layers for a grid, they are outlined.
    """
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        if is_dense(panels):
            return _draw_matrix(panels, blocks)
        return _draw_side_by_side(panels, blocks)


def _draw_side_by_side(panels: Sequence[Panel], blocks: pd.DataFrame | None) -> Figure:
    side = _side(panels)
    columns = _columns(panels)
    figure, axes = flow(
        len(panels),
        lambda columns, lines: (columns * (side + 0.6) + 0.9, lines * (side + 0.75) + 0.55),
        columns,
    )
    letters = int(side / _LETTER_INCHES)
    sizes, tasks = ({getattr(p, name) for p in panels} for name in ("n", "task"))
    titles = [panel.title for panel in panels]
    for axis, panel in zip(axes, panels, strict=True):
        image = _draw_panel(axis, panel, _range(panels), side, _has_values(panels))
        repeated = titles.count(panel.title) > 1
        title = panel.heading(with_models=repeated)
        title += f" (n = {panel.n:,})" if len(sizes) > 1 and "n =" not in title else ""
        title = f"{panel.task} · {title}" if len(tasks) > 1 else title
        axis.set_title(textwrap.fill(title, letters), fontweight="bold")
        axis.set_ylabel(textwrap.fill(f"layer of {panel.x}", letters))
        axis.set_xlabel(textwrap.fill(f"layer of {panel.y}", letters))
        if score := _outlined(axis, panel, blocks):
            axis.set_title(f"{axis.get_title()} · {score}", fontweight="bold")
    bar = figure.colorbar(image, ax=axes, shrink=0.7, aspect=32, pad=0.02)
    bar.set_label(measure_name(panels[0].rows))
    bar.outline.set_visible(False)
    add_note(figure, _note(panels, _has_values(panels)))
    centred_title(figure, axes, _headline(panels))
    return figure


def _draw_matrix(panels: Sequence[Panel], blocks: pd.DataFrame | None) -> Figure:
    """Draw models below each other and tasks side by side."""
    roomy = len(panels) <= _MOST_ROOMY and _has_values(panels)
    side = _side(panels) if roomy else _SMALL_PANEL
    places = line_names(panels)
    lines, tasks = in_order(places), in_order(panel.task for panel in panels)
    columns = [_column_name(task, panels) for task in tasks]
    figure, axes = matrix(lines, columns, (side, side), (0.35, 0.35))
    used = set()
    for panel, line in zip(panels, places, strict=True):
        axis = axes[lines.index(line), tasks.index(panel.task)]
        used.add(axis)
        image = _draw_panel(axis, panel, _range(panels), side, roomy)
        if score := _outlined(axis, panel, blocks):
            axis.set_xlabel(score, fontsize=7, labelpad=1)
    for axis in set(axes.ravel()) - used:
        axis.set_axis_off()
    colour_bar(figure, image, measure_name(panels[0].rows))
    arrows = "↑ The layers of this model go upwards, → of this one to the right. "
    note = (arrows if any("↑" in line for line in lines) else "") + _note(panels, roomy)
    headline(figure, _headline(panels), note)
    return figure


def _side(panels: Sequence[Panel]) -> float:
    """Return the width of a panel in inches that has room for its values."""
    most = max(max(panel.values.shape) for panel in panels)
    return max(heatmap.SMALLEST_PANEL, heatmap.CELL_INCHES * most)


def _columns(panels: Sequence[Panel]) -> int:
    """Return how many panels stand side by side: as many as each comparison has, if equal."""
    counts = list(Counter(panel.comparison for panel in panels).values())
    if len(counts) > 1 and len(set(counts)) == 1 and 1 < counts[0] <= 5:
        return counts[0]
    return int(np.ceil(np.sqrt(len(panels))))


def _range(panels: Sequence[Panel]) -> tuple[float, float]:
    first = panels[0].rows.iloc[0]
    measure = "" if first["quantity"] else first["measure"]
    return colour_range(measure, [panel.values for panel in panels])


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


def _has_values(panels: Sequence[Panel]) -> bool:
    most = max(max(panel.values.shape) for panel in panels)
    return most <= heatmap.MOST_LAYERS_WITH_VALUES


def _outlined(axis: Axes, panel: Panel, blocks: pd.DataFrame | None) -> str:
    if blocks is None:
        return ""
    return outline_blocks(axis, panel.rows, panel.x_layers, blocks)


def _column_name(task: str, panels: Sequence[Panel]) -> str:
    sizes = {panel.n for panel in panels if panel.task == task}
    return f"{task}\nn = {sizes.pop():,}" if len(sizes) == 1 else task


def _headline(panels: Sequence[Panel]) -> str:
    """Return the measure, and the comparison, task and n that all panels have."""
    first = panels[0].rows.iloc[0]
    name = measure_name(panels[0].rows)
    parts = [f"{name[0].upper()}{name[1:]} between layers"]
    tasks, kinds, sizes = (
        {getattr(panel, name) for panel in panels} for name in ("task", "kind", "n")
    )
    parts += [kinds.pop()] if len(tasks) > 1 and len(kinds) == 1 else []
    parts += [f"task {first['task']}"] if len(tasks) == 1 else []
    parts += [str(first["kind"])] if isinstance(first["kind"], str) else []
    parts += [f"n = {sizes.pop():,}"] if len(sizes) == 1 else []
    return " · ".join(parts)


def _note(panels: Sequence[Panel], with_values: bool) -> str:
    """Return a legend for grey cells, dots and small numbers, where there are any."""
    notes = []
    if any(np.isnan(panel.values).any() for panel in panels):
        notes.append(f"{heatmap.undefined_note(str(panels[0].rows.iloc[0]['kind']))}.")
    if with_values and any(np.isfinite(panel.low).any() for panel in panels):
        notes.append(_INTERVAL_NOTE)
    notes.append(heatmap.p_note(panel.pvalue for panel in panels))
    return " ".join(note for note in notes if note)
