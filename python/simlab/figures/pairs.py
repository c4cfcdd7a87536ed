"""Grids of two models as panels, and which panels share a figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from simlab.figures.measured import MEASURED, Measured
from simlab.figures.names import describe, in_order, steps_in_words, task_name, tell_apart
from simlab.store.labels import without_task
from simlab.store.results import ORIG

if TYPE_CHECKING:
    import pandas as pd

_T = TypeVar("_T")
FIGURE_1 = ("ORIG-ORIG", "FT-ORIG", "FT-FT", "FT[1]-FT[2]")
_PAIR = tuple(f"{name}_{side}" for side in "xy" for name in ("label", "seed", "step"))
_GRID = ("task", "comparison", *_PAIR, "n", "source")
MOST_PANELS = 12  # of a figure without lines and columns
_MOST_LINES = 12  # of models in one figure


@dataclass(frozen=True, eq=False)
class Panel:
    """A grid of two models: arrays are [layers of x, layers of y]."""

    rows: pd.DataFrame
    task: str
    n: int  # number of rows of the representations
    comparison: str
    title: str  # the comparison with what tells equal names apart
    x: str  # label of a model; no other panel of the task has the same `title`, `x` and `y`
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

    def heading(self, with_models: bool) -> str:
        """Return the title of the panel; two models have a sign between them that no name has.

        If `with_models`, both models replace the name of one of figure 1's grids.
        """
        if self.title in FIGURE_1:
            return self.pair if with_models else self.title
        if self.title == f"{self.x}-{self.y}":
            return self.pair
        return f"{self.title} ({self.pair})" if with_models else self.title

    @property
    def pair(self) -> str:
        """Both models, with a sign between them that no name has."""
        return f"{self.x} × {self.y}"

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

    def line(self, titled: bool, full: bool) -> str:
        """Return the name of the line that the panel belongs to in a matrix of panels.

        If `titled`, the name says the comparison; if `full`, it says the task where a label does.
        """
        parts = [self.title, self.x, self.y]
        title, x, y = parts if full else [without_task(name, self.task) for name in parts]
        pair = x if x == y else f"{x} ↑\n{y} →"
        return f"{title}\n{pair}" if titled and title not in (f"{x}-{y}", x) else pair


def headings(panels: Sequence[Panel]) -> list[str]:
    """Return the titles of panels that stand side by side.

    Grids of figure 1 keep the paper's names, unless another panel has its models for a title.
    """
    counts = Counter(panel.title for panel in panels)
    titles = [panel.heading(with_models=counts[panel.title] > 1) for panel in panels]
    if not any(title == panel.pair for title, panel in zip(titles, panels, strict=True)):
        return titles
    return [
        panel.pair if panel.title in FIGURE_1 else title
        for title, panel in zip(titles, panels, strict=True)
    ]


def panels_of(rows: pd.DataFrame) -> list[Panel]:
    """Return a panel for every task, comparison, and pair of models and seeds.

    `rows` are of one measure, as `table.distinguish` returns them.
    """
    grids = list(rows.groupby(list(_GRID), dropna=False, sort=False, observed=True))
    keys = [dict(zip(_GRID, key, strict=True)) for key, _ in grids]
    # Line breaks separate the parts, because no label has a line break.
    names = [
        "\n".join(str(key[part]) for part in ("task", "label_x", "label_y", "comparison"))
        for key in keys
    ]
    titles = [name.rpartition("\n")[2] for name in tell_apart(names, map(_details, keys))]
    return [
        _panel(grid, key, title) for (_, grid), key, title in zip(grids, keys, titles, strict=True)
    ]


def _details(key: dict[str, Any]) -> dict[str, str]:
    import pandas as pd

    seeds = [key[f"seed_{side}"] for side in "xy"]
    words = ["no seed" if pd.isna(seed) else f"seed {seed}" for seed in seeds]
    steps = [int(key[name]) for name in ("step_x", "step_y") if not pd.isna(key[name])]
    details = {"seeds": " and ".join(words), "steps": steps_in_words(steps)}
    return describe({**details, "n": key["n"], "source": key["source"]})


def _panel(grid: pd.DataFrame, key: dict[str, Any], title: str) -> Panel:
    columns = ["value", "low", "high", "pvalue"]
    tables = grid.pivot(index="layer_x", columns="layer_y", values=columns)
    tables = tables.sort_index().sort_index(axis=1)
    return Panel(
        grid,
        str(key["task"]),
        int(key["n"]),
        str(key["comparison"]),
        title,
        str(key["label_x"]),
        str(key["label_y"]),
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
    def line_names(self) -> list[str]:
        """For every panel, the name of its line in a matrix of models and tasks.

        A label that has the name of the task is in the same line as the labels of other tasks.
        """
        titled = len({panel.kind for panel in self.panels}) > 1
        names = [panel.line(titled, full=False) for panel in self.panels]
        places = {(panel.task, name) for panel, name in zip(self.panels, names, strict=True)}
        if len(places) == len(self.panels):
            return names
        return [panel.line(titled=True, full=True) for panel in self.panels]

    @cached_property
    def is_dense(self) -> bool:
        """Whether the panels of several tasks fill most of a matrix of models and tasks."""
        places = len(self.tasks) * len(set(self.line_names))
        return len(self.tasks) > 1 and 3 * len(self.panels) >= 2 * places

    @cached_property
    def most_layers(self) -> int:
        """The number of layers of the largest side of a panel."""
        return max(max(panel.values.shape) for panel in self.panels)

    def common(self, name: str) -> Any:
        """Return the value of attribute `name` that all panels have; None if they differ."""
        values = {getattr(panel, name) for panel in self.panels}
        return values.pop() if len(values) == 1 else None


def sheets_of(rows: pd.DataFrame, ordered: bool = False) -> Iterator[Sheet]:
    """Yield the figures of the grids in `rows`, of which `panels_of` makes panels.

    All panels of one task are in one figure, and the comparisons of Phang et al.'s figure 1 in a
    figure before the others, unless the comparisons are `ordered` by the user. Several tasks are in
    one figure, or in a figure for every comparison if a comparison has several pairs of models;
    where there are several tasks or base models, each model has figure 1 of each task besides, if
    one figure holds its seeds.
    """
    panels = panels_of(rows)
    panels = panels if ordered else _figure_1_first(panels)
    tasks = in_order(panel.task for panel in panels)
    for task in () if ordered else tasks:
        of_models = _of_models([panel for panel in panels if panel.task == task])
        if len(tasks) > 1 or len(of_models) > 1:
            yield from of_models
    if len(tasks) > 1:
        yield from _sheets_of_tasks(panels)
        return
    first = [] if ordered else _figure_1(panels)
    yield from _sheets_of_task("", first)
    yield from _sheets_of_task("others" if first else "", [p for p in panels if p not in first])


def _figure_1_first(panels: Sequence[Panel]) -> list[Panel]:
    others = in_order(panel.comparison for panel in panels)
    return sorted(panels, key=lambda panel: (*FIGURE_1, *others).index(panel.comparison))


def _figure_1(panels: Sequence[Panel]) -> list[Panel]:
    """Return the panels of the comparisons of figure 1, or none if one of the four is missing."""
    first = [panel for panel in panels if panel.comparison in FIGURE_1]
    return first if len({panel.comparison for panel in first}) == len(FIGURE_1) else []


def _of_models(panels: Sequence[Panel]) -> list[Sheet]:
    """Return figure 1 of each base model of a task, with all seeds of its fine-tuning.

    Models whose base is not known have one too, if each comparison has one pair of them.
    """
    bases = dict.fromkeys(panel.base for panel in panels)
    sheets = []
    for base in bases:
        first = _figure_1([panel for panel in panels if panel.base == base])
        if 0 < len(first) <= MOST_PANELS and (base is not None or not _has_several_pairs(first)):
            name = without_task(first[0].x, first[0].task).removesuffix(f"-{ORIG.upper()}")
            sheets.append(Sheet(first, name if len(bases) > 1 else ""))
    return sheets


def _by_kind(panels: Sequence[Panel]) -> dict[str, list[Panel]]:
    kinds = dict.fromkeys(panel.kind for panel in panels)
    return {kind: [panel for panel in panels if panel.kind == kind] for kind in kinds}


def _has_several_pairs(panels: Sequence[Panel]) -> bool:
    return any(len({p.models for p in part}) > 1 for part in _by_kind(panels).values())


def _sheets_of_task(word: str, panels: Sequence[Panel]) -> Iterator[Sheet]:
    if len(panels) <= MOST_PANELS:
        parts = {word: panels} if panels else {}
    else:
        parts = _by_kind(panels) if _has_several_pairs(panels) else {word: panels}
    for name, part in parts.items():
        for some in _in_parts(part, MOST_PANELS):
            yield Sheet(some, name)


def _sheets_of_tasks(panels: Sequence[Panel]) -> Iterator[Sheet]:
    several = len(panels) > MOST_PANELS and _has_several_pairs(panels)
    for word, part in (_by_kind(panels) if several else {"": panels}).items():
        whole = Sheet(part, word)
        if not whole.is_dense:
            yield from (Sheet(some, word) for some in _in_parts(part, MOST_PANELS))
            continue
        for names in _in_parts(in_order(whole.line_names), _MOST_LINES):
            of_line = zip(part, whole.line_names, strict=True)
            yield Sheet([panel for panel, line in of_line if line in names], word)


def _in_parts(names: Sequence[_T], most: int) -> Iterator[Sequence[_T]]:
    """Yield the names in parts of one size, at most `most` each."""
    count = -(-len(names) // most)
    size = -(-len(names) // count) if count else 0
    for start in range(0, len(names), size or 1):
        yield names[start : start + size]
