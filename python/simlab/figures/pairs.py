"""Grids of two models as panels, and which panels share a figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from simlab.figures.names import describe, in_order, steps_in_words, task_name, tell_apart
from simlab.figures.table import MEASURED, Measured
from simlab.results.labels import without_task
from simlab.results.results import ORIG

if TYPE_CHECKING:
    import pandas as pd

_T = TypeVar("_T")
FIGURE_1 = ("ORIG-ORIG", "FT-ORIG", "FT-FT", "FT[1]-FT[2]")
_PAIR = tuple(f"{name}_{side}" for side in "xy" for name in ("label", "seed", "step"))
MOST_PANELS = 12  # of a figure; lines of a figure with lines and columns


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
        import pandas as pd

        x, y = (self.rows[f"base_{side}"].iloc[0] for side in "xy")
        return None if pd.isna(x) or pd.isna(y) or x != y else str(x)

    @property
    def kind(self) -> str:
        """Name of the comparison without the task."""
        return without_task(self.comparison, self.task)

    @property
    def details(self) -> dict[str, str]:
        """What tells the panel from others with the same models and comparison."""
        import pandas as pd

        first = self.rows.iloc[0]
        seeds = [first[f"seed_{side}"] for side in "xy"]
        words = ["no seed" if pd.isna(seed) else f"seed {seed}" for seed in seeds]
        steps = [int(first[f"step_{side}"]) for side in "xy" if pd.notna(first[f"step_{side}"])]
        told = {"seeds": " and ".join(words), "steps": steps_in_words(steps), "n": self.n}
        return describe({"task": self.task, "comparison": self.comparison, **told})


def headings(panels: Sequence[Panel]) -> list[str]:
    """Return titles that differ: the comparisons, or both models where a comparison has several."""
    counts = Counter((panel.task, panel.comparison) for panel in panels)
    with_models = max(counts.values()) > 1
    names = [f"{p.x} × {p.y}" if with_models else p.comparison for p in panels]
    if len({panel.task for panel in panels}) > 1:
        names = [f"{p.task} · {name}" for p, name in zip(panels, names, strict=True)]
    return tell_apart(names, [panel.details for panel in panels])


def panels_of(rows: pd.DataFrame) -> list[Panel]:
    """Return a panel for every task, comparison, and pair of models, seeds and steps.

    `rows` are of one measure.
    """
    columns = ["task", "comparison", *_PAIR, "n"]
    groups = rows.groupby(columns, dropna=False, sort=False, observed=True)
    return [_panel(grid) for _, grid in groups]


def _panel(grid: pd.DataFrame) -> Panel:
    columns = ["value", "low", "high", "pvalue"]
    tables = grid.pivot(index="layer_x", columns="layer_y", values=columns)
    tables = tables.sort_index().sort_index(axis=1)
    first = grid.iloc[0]
    return Panel(
        grid,
        str(first["task"]),
        int(first["n"]),
        str(first["comparison"]),
        str(first["label_x"]),
        str(first["label_y"]),
        [int(layer) for layer in tables.index],
        [int(layer) for layer in tables["value"]],
        *(tables[name].to_numpy(float) for name in columns),
    )


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

    @cached_property
    def name(self) -> str:
        """The name of the file of the figure, which several sheets may have."""
        word = [self.word] if self.word else []
        return "-".join([task_name(self.tasks), *self.measure.words, *word])

    @cached_property
    def tasks(self) -> list[str]:
        """The tasks of the panels."""
        return in_order(panel.task for panel in self.panels)

    @cached_property
    def lines(self) -> list[str]:
        """For every panel, the name of its line in a matrix of models and tasks.

        A label that has the name of the task is in the same line as the labels of other tasks.
        """
        titled = len({panel.kind for panel in self.panels}) > 1
        names = []
        for panel in self.panels:
            title, x, y = (
                without_task(name, panel.task) for name in (panel.comparison, panel.x, panel.y)
            )
            pair = x if x == y else f"{x} ↑\n{y} →"
            names.append(f"{title}\n{pair}" if titled and title not in (f"{x}-{y}", x) else pair)
        in_task = [f"{panel.task}\n{name}" for panel, name in zip(self.panels, names, strict=True)]
        apart = tell_apart(in_task, [panel.details for panel in self.panels])
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
        """Yield the sheet, or its lines or panels in figures of `MOST_PANELS`."""
        if not self.is_dense:
            yield from (Sheet(some, self.word) for some in _in_parts(self.panels))
            return
        for names in _in_parts(in_order(self.lines)):
            chosen = zip(self.panels, self.lines, strict=True)
            yield Sheet([panel for panel, line in chosen if line in names], self.word)


def sheets_of(rows: pd.DataFrame, ordered: bool = False) -> Iterator[Sheet]:
    """Yield the figures of the grids in `rows`, of which `panels_of` makes panels.

    All panels are in one figure, or in a figure for every comparison if they are many and a
    comparison has several pairs of models. Unless the comparisons are `ordered` by the user, those
    of Phang et al.'s figure 1 are in a figure before the others; where there are several tasks or
    base models, each model has figure 1 of each task besides, if one figure holds its seeds.
    """
    panels = panels_of(rows)
    if not ordered:
        rank = (*FIGURE_1, *in_order(panel.comparison for panel in panels))
        panels.sort(key=lambda panel: rank.index(panel.comparison))
    tasks = in_order(panel.task for panel in panels)
    of_models = [
        sheet
        for task in (() if ordered else tasks)
        for sheet in _of_models([panel for panel in panels if panel.task == task])
    ]
    if len(of_models) > 1 or len(tasks) > 1:
        yield from of_models
    first = [] if ordered or len(tasks) > 1 else _figure_1(panels)
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
    """Yield figure 1 of each base model of a task, with all seeds of its fine-tuning.

    Models whose base is not known have one too, if each comparison has one pair of them.
    """
    bases = dict.fromkeys(panel.base for panel in panels)
    for base in bases:
        first = _figure_1([panel for panel in panels if panel.base == base])
        if 0 < len(first) <= MOST_PANELS and (base is not None or not _has_several_pairs(first)):
            name = without_task(first[0].x, first[0].task).removesuffix(f"-{ORIG.upper()}")
            yield Sheet(first, name if len(bases) > 1 else "")


def _by_kind(panels: Sequence[Panel]) -> dict[str, list[Panel]]:
    kinds = dict.fromkeys(panel.kind for panel in panels)
    return {kind: [panel for panel in panels if panel.kind == kind] for kind in kinds}


def _has_several_pairs(panels: Sequence[Panel]) -> bool:
    return any(len({p.models for p in part}) > 1 for part in _by_kind(panels).values())


def _in_parts(names: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """Yield the names in parts of one size, at most `MOST_PANELS` each."""
    size = -(-len(names) // -(-len(names) // MOST_PANELS))
    for start in range(0, len(names), size):
        yield names[start : start + size]
