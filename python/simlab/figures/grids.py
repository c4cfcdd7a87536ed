"""Heatmaps of one measure, a panel for every grid of two models; and which panels share a figure.

For one task, the panels stand side by side (Phang et al. 2021, figure 1). For several tasks, models
stand below each other and tasks side by side (figures 2 and 5 to 7).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simlab.figures.style import (
    CELL_INCHES,
    LARGEST_P,
    LETTER_INCHES,
    MOST_LAYERS_WITH_VALUES,
    POINTS,
    SMALL_PANEL,
    SMALLEST_PANEL,
    colour_bar,
    draw_cells,
    finish,
    flow,
    label_layers,
    leave_empty,
    mark_cells,
    matrix,
    outline_blocks,
    p_note,
    styled,
    undefined_note,
    wrapped,
    write_values,
)
from simlab.figures.table import (
    MEASURED,
    Measured,
    describe,
    in_order,
    steps_in_words,
    task_name,
    tell_apart,
)
from simlab.results.results import ORIG, without_task

FIGURE_1 = ("ORIG-ORIG", "FT-ORIG", "FT-FT", "FT[1]-FT[2]")
_PAIR = tuple(f"{name}_{side}" for side in "xy" for name in ("label", "seed", "step"))
MOST_PANELS = 12  # of a figure; lines of a figure with lines and columns
_MOST_ROOMY = 9  # panels of a matrix that have room for values
_INTERVAL_NOTE = "Below a value: its 95 % interval."
_BEYOND_NOTE = "Intervals are symmetric, so that an end may leave the range of the measure."
_ARROWS = "↑ The layers of this model go upwards, → of this one to the right."


@dataclass(frozen=True, eq=False)
class Panel:
    """A grid of two models: arrays are [layers of x, layers of y]."""

    rows: pd.DataFrame
    task: str
    n: int  # number of rows of the representations
    comparison: str
    x: str
    y: str
    x_layers: list[int]
    y_layers: list[int]
    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    pvalue: np.ndarray

    @property
    def models(self) -> frozenset[str]:
        """Names of both models without the task; two directions of a measure have the same."""
        return frozenset(without_task(name, self.task) for name in (self.x, self.y))

    @property
    def base(self) -> str | None:
        """The base model of both models; None if they have two, or if a base is not known."""
        bases = self.rows[["base_x", "base_y"]].iloc[0]
        return None if bases.isna().any() or bases.nunique() > 1 else str(bases.iloc[0])

    @property
    def kind(self) -> str:
        """Name of the comparison without the task."""
        return without_task(self.comparison, self.task)

    @property
    def details(self) -> dict[str, str]:
        """What tells the panel from others with the same models and comparison."""
        first = self.rows.iloc[0]
        seeds = [first[f"seed_{side}"] for side in "xy"]
        words = ["no seed" if pd.isna(seed) else f"seed {seed}" for seed in seeds]
        steps = [int(first[f"step_{side}"]) for side in "xy" if pd.notna(first[f"step_{side}"])]
        told = {"seeds": " and ".join(words), "steps": steps_in_words(steps), "n": self.n}
        return describe({"task": self.task, "comparison": self.comparison, **told})


def panels_of(rows: pd.DataFrame) -> list[Panel]:
    """Return a panel for every task, comparison, and pair of models, seeds and steps."""
    panels, planes = [], ["value", "low", "high", "pvalue"]
    columns = ["task", "comparison", *_PAIR, "n"]
    for key, grid in rows.groupby(columns, dropna=False, sort=False, observed=True):
        facts = dict(zip(columns, key, strict=True))
        tables = grid.pivot(index="layer_x", columns="layer_y", values=planes)
        tables = tables.sort_index().sort_index(axis=1)
        panels.append(
            Panel(
                grid,
                str(facts["task"]),
                int(facts["n"]),
                str(facts["comparison"]),
                str(facts["label_x"]),
                str(facts["label_y"]),
                [int(layer) for layer in tables.index],
                [int(layer) for layer in tables["value"]],
                *(tables[name].to_numpy(float) for name in planes),
            )
        )
    return panels


def headings(panels: Sequence[Panel]) -> list[str]:
    """Return titles that differ: the comparisons, or both models where a comparison has several."""
    counts = Counter((panel.task, panel.comparison) for panel in panels)
    with_models = max(counts.values()) > 1
    names = [f"{p.x} × {p.y}" if with_models else p.comparison for p in panels]
    if len({panel.task for panel in panels}) > 1:
        names = [f"{p.task} · {name}" for p, name in zip(panels, names, strict=True)]
    return tell_apart(names, [panel.details for panel in panels])


@dataclass(frozen=True, eq=False)
class Sheet:
    """The panels of one figure: grids of one measure, on one colour scale."""

    panels: Sequence[Panel]
    word: str = ""  # tells the name of its file from other files of the measure; may be empty

    @cached_property
    def measure(self) -> Measured:
        """The measure of the panels."""
        measure: Measured = self.panels[0].rows[MEASURED].iloc[0]
        return measure

    @property
    def name(self) -> str:
        """The name of the file of the figure, which several sheets may have."""
        return "-".join(filter(None, [task_name(self.tasks), *self.measure.words, self.word]))

    @cached_property
    def tasks(self) -> list[str]:
        """The tasks of the panels."""
        return in_order(panel.task for panel in self.panels)

    @cached_property
    def lines(self) -> list[str]:
        """For every panel, the name of its line in a matrix of models and tasks."""
        titled = len({panel.kind for panel in self.panels}) > 1
        names = []
        for panel in self.panels:
            x, y = (without_task(name, panel.task) for name in (panel.x, panel.y))
            pair = x if x == y else f"{x} ↑\n{y} →"
            in_title = titled and panel.kind not in (f"{x}-{y}", x)
            names.append(
                f"{panel.task}\n{panel.kind}\n{pair}" if in_title else f"{panel.task}\n{pair}"
            )
        apart = tell_apart(names, [panel.details for panel in self.panels])
        return [name.partition("\n")[2] for name in apart]

    @cached_property
    def is_dense(self) -> bool:
        """Whether the panels of several tasks fill most of a matrix of models and tasks."""
        places = len(self.tasks) * len(set(self.lines))
        return len(self.tasks) > 1 and 3 * len(self.panels) >= 2 * places

    def common(self, name: str) -> Any:
        """Return the value of attribute `name` that all panels have; None if they differ."""
        values = {getattr(panel, name) for panel in self.panels}
        return values.pop() if len(values) == 1 else None

    def parts(self) -> Iterator[Sheet]:
        """Yield the sheet, or its lines or panels in figures of one size, `MOST_PANELS` at most."""
        keys = self.lines if self.is_dense else [str(number) for number in range(len(self.panels))]
        every = in_order(keys)
        size = math.ceil(len(every) / math.ceil(len(every) / MOST_PANELS))
        for start in range(0, len(every), size):
            chosen = set(every[start : start + size])
            panels = [p for p, key in zip(self.panels, keys, strict=True) if key in chosen]
            yield Sheet(panels, self.word)


def sheets_of(rows: pd.DataFrame, ordered: bool = False) -> Iterator[Sheet]:
    """Yield the figures of the grids in `rows`, of which `panels_of` makes panels.

    All panels are in one figure, or in a figure for every comparison if they are many and a
    comparison has several pairs of models. Unless the comparisons are `ordered` by the user, those
    of Phang et al.'s figure 1 are in a figure before the others; where there are several tasks or
    base models, each model has figure 1 of each task besides, if one figure holds its seeds.
    """
    panels = panels_of(rows)
    if ordered:
        first: list[Panel] = []
    else:
        rank = (*FIGURE_1, *in_order(panel.comparison for panel in panels))
        panels.sort(key=lambda panel: rank.index(panel.comparison))
        tasks = in_order(panel.task for panel in panels)
        of_tasks = [[panel for panel in panels if panel.task == task] for task in tasks]
        of_models = [sheet for panels_of_task in of_tasks for sheet in _of_models(panels_of_task)]
        if len(of_models) > 1 or len(tasks) > 1:
            yield from of_models
        first = [] if len(tasks) > 1 else _figure_1(panels)
    others = [panel for panel in panels if panel not in first]
    for word, part in (("", first), ("others" if first else "", others)):
        several = len(part) > MOST_PANELS and _has_several_pairs(part)
        for name, some in (_by_kind(part) if several else {word: part}).items():
            if some:
                yield from Sheet(some, name).parts()


def _figure_1(panels: Sequence[Panel]) -> list[Panel]:
    """Return the panels of the comparisons of figure 1, or none if one of the four is missing."""
    first = [panel for panel in panels if panel.comparison in FIGURE_1]
    return first if len({panel.comparison for panel in first}) == len(FIGURE_1) else []


def _of_models(panels: Sequence[Panel]) -> Iterator[Sheet]:
    """Yield figure 1 of each base model of a task, with all seeds of its fine-tuning."""
    bases = dict.fromkeys(panel.base for panel in panels)
    for base in bases:
        first = _figure_1([panel for panel in panels if panel.base == base])
        if 0 < len(first) <= MOST_PANELS and (base is not None or not _has_several_pairs(first)):
            name = without_task(first[0].x, first[0].task).removesuffix(f"-{ORIG.upper()}")
            yield Sheet(first, name if len(bases) > 1 else "")


def _by_kind(panels: Sequence[Panel]) -> dict[str, list[Panel]]:
    kinds: dict[str, list[Panel]] = {}
    for panel in panels:
        kinds.setdefault(panel.kind, []).append(panel)
    return kinds


def _has_several_pairs(panels: Sequence[Panel]) -> bool:
    return any(len({p.models for p in part}) > 1 for part in _by_kind(panels).values())


@styled
def draw_sheet(sheet: Sheet, blocks: pd.DataFrame | None = None) -> Figure:
    """Draw a heatmap for each panel of a sheet."""
    most_layers = max(max(panel.values.shape) for panel in sheet.panels)
    side = max(SMALLEST_PANEL, CELL_INCHES * most_layers)
    with_values = most_layers <= MOST_LAYERS_WITH_VALUES
    if sheet.is_dense:
        with_values &= len(sheet.panels) <= _MOST_ROOMY
        side = side if with_values else SMALL_PANEL
    figure, axes = (_axes_of_matrix if sheet.is_dense else _axes_side_by_side)(sheet, side)
    scale = sheet.measure.colours(panel.values for panel in sheet.panels)
    for axis, panel in zip(axes, sheet.panels, strict=True):
        image = draw_cells(axis, panel.values, *scale)
        label_layers(axis, panel.y_layers, panel.x_layers, side)
        if with_values:
            write_values(axis, image, panel.low, panel.high)
        points, above = side * POINTS / max(panel.values.shape), 0.33 if with_values else 0.0
        mark_cells(axis, image, panel.pvalue > LARGEST_P, points, above)
        score = ""
        if blocks is not None:
            score = outline_blocks(axis, panel.rows, panel.x_layers, blocks)
        if score and sheet.is_dense:
            axis.set_xlabel(score, fontsize=7, labelpad=1)
        elif score:
            title = f"{axis.get_title()}\n{wrapped(score, int(side / LETTER_INCHES))}"
            axis.set_title(title, fontweight="bold")
    colour_bar(figure, image, figure.axes, sheet.measure.name, fraction=0.05)
    finish(figure, _headline(sheet), _note(sheet, with_values))
    return figure


def _axes_side_by_side(sheet: Sheet, side: float) -> tuple[Figure, list[Axes]]:
    counts = list(Counter(panel.comparison for panel in sheet.panels).values())
    columns = math.ceil(math.sqrt(len(sheet.panels)))
    if len(counts) > 1 and len(set(counts)) == 1 and 1 < counts[0] <= 5:
        columns = counts[0]  # a line for each comparison
    figure, axes = flow(len(sheet.panels), (side + 0.6, side + 0.75), columns)
    letters, several = int(side / LETTER_INCHES), sheet.common("n") is None
    for axis, panel, title in zip(axes, sheet.panels, headings(sheet.panels), strict=True):
        title += f" (n = {panel.n:,})" if several and "n =" not in title else ""
        axis.set_title(wrapped(title, letters), fontweight="bold")
        axis.set_ylabel(wrapped(f"layer of {panel.x}", letters))
        axis.set_xlabel(wrapped(f"layer of {panel.y}", letters))
    return figure, axes


def _axes_of_matrix(sheet: Sheet, side: float) -> tuple[Figure, list[Axes]]:
    sizes = {task: {p.n for p in sheet.panels if p.task == task} for task in sheet.tasks}
    names = {t: f"{t}\nn = {min(n):,}" if len(n) == 1 else t for t, n in sizes.items()}
    figure, axes = matrix(in_order(sheet.lines), [*names.values()], (side + 0.35, side + 0.35))
    lines = zip(sheet.panels, sheet.lines, strict=True)
    used = [axes[line, names[panel.task]] for panel, line in lines]
    for axis in set(axes.values()) - {*used}:
        leave_empty(axis)
    return figure, used


def _headline(sheet: Sheet) -> str:
    """Return the measure, and the comparison, task and n that all panels have."""
    n, kind = sheet.common("n"), sheet.measure.kind
    about = f"task {sheet.tasks[0]}" if len(sheet.tasks) == 1 else sheet.common("kind")
    parts = [f"{sheet.measure.title} between layers", about, kind, n and f"n = {n:,}"]
    return " · ".join(part for part in parts if part is not None)


def _note(sheet: Sheet, with_values: bool) -> str:
    """Return a legend for arrows, grey cells, dots and small numbers, where there are any."""
    panels: Sequence[Panel] = sheet.panels
    notes = [_ARROWS] if sheet.is_dense and any("↑" in line for line in sheet.lines) else []
    if any(np.isnan(panel.values).any() for panel in panels):
        notes.append(f"{undefined_note(sheet.measure.kind)}.")
    if with_values and any(np.isfinite(panel.low).any() for panel in panels):
        notes.append(_INTERVAL_NOTE)
        if any((panel.high > 1).any() and np.nanmax(panel.values) <= 1 for panel in panels):
            notes.append(_BEYOND_NOTE)
    notes.append(p_note(panel.pvalue for panel in panels))
    return " ".join(note for note in notes if note)
