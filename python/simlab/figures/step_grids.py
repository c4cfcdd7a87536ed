"""Draw one layer at every step of a training with itself at every other step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from simlab.figures import heatmap
from simlab.figures.joint import Grid, joint_grids
from simlab.figures.measured import MEASURED
from simlab.figures.panels import add_note, centred_title, flow
from simlab.figures.style import (
    POINTS,
    STYLE,
    layer_names,
    tick_places,
)
from simlab.store.labels import split_step

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL_INCHES = 3.6
_MOST_COLUMNS = 3
_TICK_INCHES = 0.16  # from one step below a panel to the next
_NOTE = "X is on the vertical axis, Y on the horizontal axis."


def step_figures(rows: pd.DataFrame) -> Iterator[tuple[str, Figure]]:
    """Yield a figure for each task, measure and layer of rows that `is_of_steps` chose, by name."""
    by = ["task", MEASURED, "layer_x"]
    for (task, measure, layer), part in rows.groupby(by, sort=False, observed=True):
        words = [task, "steps", layer_names([int(layer)])[0], *measure.words]
        yield "-".join(words), draw_steps(part)


def draw_steps(rows: pd.DataFrame) -> Figure:
    """Draw a heatmap of steps by steps for each run; `rows` have one layer and one measure."""
    import matplotlib as mpl

    runs = [part for _, part in rows.groupby(["comparison", "source"], dropna=False, sort=False)]
    grids = [grid for run in runs for grid in joint_grids(run)]
    first, measure = rows.iloc[0], grids[0].measure
    scale = measure.colours(grid.values for grid in grids)
    with mpl.rc_context(STYLE):
        figure, axes = flow(
            len(grids),
            lambda columns, lines: (columns * _PANEL_INCHES + 0.8, lines * _PANEL_INCHES + 0.6),
            _MOST_COLUMNS,
        )
        for axis, grid in zip(axes, grids, strict=True):
            image = heatmap.draw_cells(axis, grid.values, *scale)
            points = POINTS * _PANEL_INCHES / len(grid.layers)
            heatmap.mark_cells(axis, image, grid.pvalue > heatmap.LARGEST_P, points)
            _label(axis, grid)
        bar = figure.colorbar(image, ax=axes, shrink=0.8, aspect=30, pad=0.02)
        bar.set_label(measure.name)
        bar.outline.set_visible(False)
        notes = [_NOTE, heatmap.p_note(grid.pvalue for grid in grids)]
        add_note(figure, " ".join(note for note in notes if note))
        layer = layer_names([int(first["layer_x"])])[0]
        sizes = sorted(set(rows["n"]))
        about = [f"Layer {layer} at every step", f"task {first['task']}", str(first["kind"])]
        about += [f"n = {size:,}" for size in sizes if len(sizes) == 1]
        centred_title(figure, axes, " · ".join(about))
    return figure


def _label(axis: Axes, grid: Grid) -> None:
    """Name the run above a panel, and steps along its axes as far as they have room."""
    both = [split_step(model) for model in grid.models]
    axis.set_title(both[0][0], fontweight="bold")
    steps = [f"{step:,}" for _, step in both]
    every = math.ceil(len(steps) * _TICK_INCHES / _PANEL_INCHES)
    places = tick_places(len(steps), every)
    shown = [steps[place] for place in places]
    axis.set_xticks(places, shown, fontsize=7, rotation=90)
    axis.set_yticks(places, shown, fontsize=7)
    axis.set_xlabel("step")
    axis.set_ylabel("step")
