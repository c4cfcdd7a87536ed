"""Draw several models in one heatmap per measure, and their localization scores.

The figures follow Wu et al. 2020: figures 1 and 4 (all layers of all models on both axes, with
lines between models), figures 3 and 7 (localization score per layer, before and after fine-tuning).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.figures import heatmap
from simlab.figures.measured import MEASURED, Measured
from simlab.figures.names import in_order
from simlab.figures.panels import add_note, centred_title, flow
from simlab.figures.style import (
    POINTS,
    STYLE,
    add_legend,
    draw_curves,
    layer_names,
    tick_places,
)
from simlab.similarity.catalogue import MEASURES
from simlab.store.joint import Layer, joint_table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SMALL_PANEL, _LARGEST_PANEL, _CELL = 4.0, 14.0, 0.05  # inches
_MOST_COLUMNS = 3
_MOST_PANELS = 6  # in a file
_NAME_SIZE, _LEAST_NAME_SIZE = 9.0, 5.0  # points
_NAME_ROOM = 150.0  # points that a name should not exceed
_LAYER_SIZE = 5.0
_NOTE = "X is on the vertical axis, Y on the horizontal axis. White lines separate the models."
_ORDER = {name: place for place, name in enumerate(MEASURES)}


@dataclass(frozen=True, eq=False)
class Grid:
    """A joint grid: arrays are ``[len(layers), len(layers)]``."""

    rows: pd.DataFrame
    measure: Measured
    layers: list[Layer]
    values: np.ndarray
    pvalue: np.ndarray

    @property
    def inches(self) -> float:
        """Width of the panel."""
        return min(_LARGEST_PANEL, max(_SMALL_PANEL, _CELL * len(self.layers)))

    @property
    def points(self) -> float:
        """Width of a cell."""
        return self.inches * POINTS / len(self.layers)

    @cached_property
    def models(self) -> list[str]:
        """Names of the models in order."""
        return list(dict.fromkeys(layer.model for layer in self.layers))

    @property
    def model_points(self) -> float:
        """Width of the cells of one model, in points."""
        return self.inches * POINTS / len(self.models)

    @cached_property
    def widest(self) -> float:
        """Points that the longest name needs at the usual size."""
        return max(map(_width, self.models))

    @property
    def turned(self) -> bool:
        """Whether the names are too long to stand along the axes."""
        return self.widest > 0.95 * self.model_points

    @property
    def name_size(self) -> float:
        """Size of the names: as of other text, unless names are long or models many."""
        if not self.turned:
            return _NAME_SIZE
        wanted = min(_NAME_SIZE, 0.8 * self.model_points, _NAME_SIZE * _NAME_ROOM / self.widest)
        return max(_LEAST_NAME_SIZE, wanted)

    @property
    def name_inches(self) -> float:
        """The width and the height that turned names add to the panel."""
        return self.widest * self.name_size / _NAME_SIZE / POINTS if self.turned else 0.0


def joint_figures(grids: pd.DataFrame, scores: pd.DataFrame) -> Iterator[tuple[str, Figure]]:
    """Yield the figures of joint grids and of localization scores, by name.

    Each figure has a panel for every measure and for the scores of the same models.
    """
    for task in dict.fromkeys([*grids["task"], *scores["task"]]):
        mine = scores[scores["task"] == task]
        shown = mine.index[:0]
        parts = list(grids[grids["task"] == task].groupby(["comparison", "source"], sort=False))
        for (comparison, source), rows in parts:
            of_rows = mine[mine["label_x"].isin(set(rows["label_x"]))]
            of_rows = of_rows[of_rows["comparison"].fillna(comparison) == comparison]
            shown = shown.union(of_rows.index)
            words = [comparison, *([source] if source else [])] if len(parts) > 1 else []
            yield from _files("-".join([task, "models", *words]), joint_grids(rows), of_rows)
        rest = mine.drop(index=shown)
        if len(rest):
            yield f"{task}-models" + ("-scores" if parts else ""), draw_joint([], rest)


def _files(name: str, grids: Sequence[Grid], scores: pd.DataFrame) -> Iterator[tuple[str, Figure]]:
    files = list(in_files(grids, scores))
    for part, with_scores in files:
        words = part[0].measure.words if part else ("localization",)
        words = words if len(files) > 1 else ()
        yield "-".join([name, *words]), draw_joint(part, scores if with_scores else scores[:0])


def joint_grids(rows: pd.DataFrame) -> list[Grid]:
    """Return the joint grids in `rows`, in the order of `catalogue.MEASURES`."""
    rows = rows.sort_values("measure", key=lambda names: names.map(_ORDER.get), kind="stable")
    groups = rows.groupby([MEASURED, "n"], sort=False, observed=True)
    return [_grid(measure, part) for (measure, _), part in groups]


def _grid(measure: Measured, rows: pd.DataFrame) -> Grid:
    layers, values = joint_table(rows)
    _, pvalue = joint_table(rows.assign(value=rows["pvalue"]))
    models = in_order(layer.model for layer in layers)
    order = sorted(range(len(layers)), key=lambda place: models.index(layers[place].model))
    ordered = np.ix_(order, order)
    ordered_layers = [layers[place] for place in order]
    return Grid(rows, measure, ordered_layers, values[ordered], pvalue[ordered])


def in_files(grids: Sequence[Grid], scores: pd.DataFrame) -> Iterator[tuple[Sequence[Grid], bool]]:
    """Yield the grids of every file, and whether the localization scores are in the file.

    A file has one panel if there are too many panels, or if the grids are too large, for one file.
    """
    large = any(grid.inches > _SMALL_PANEL for grid in grids)
    if large or len(grids) + bool(len(scores)) > _MOST_PANELS:
        yield from (([grid], False) for grid in grids)
        if len(scores):
            yield [], True
    else:
        yield grids, True


def draw_joint(grids: Sequence[Grid], localization: pd.DataFrame) -> Figure:
    """Draw a heatmap for each of `grids`, and a panel for each kind of localization scores."""
    import matplotlib as mpl

    scores = [rows for _, rows in localization.groupby("options", dropna=False, sort=False)]
    count = len(grids) + len(scores)
    side = max((grid.inches + grid.name_inches for grid in grids), default=_SMALL_PANEL)
    with mpl.rc_context(STYLE):
        figure, axes = flow(
            count,
            lambda columns, lines: (columns * (side + 0.8), lines * side + 0.5),
            _MOST_COLUMNS,
        )
        for axis, grid in zip(axes, grids, strict=False):
            _draw_grid(axis, grid, several=len({_rows_of(grid) for grid in grids}) > 1)
        for axis, some in zip(axes[len(grids) :], scores, strict=False):
            _draw_localization(axis, some)
        first = (grids[0].rows if grids else localization).iloc[0]
        source = [first["source"]] if first["source"] else []
        rows = {_rows_of(grid) for grid in grids}
        shared = list(rows) if len(rows) == 1 else []
        words = ["All layers of all models", f"task {first['task']}", *source, *shared]
        # matplotlib's layout lets turned names reach into the line of this label.
        add_note(figure, f"\n{_note(grids)}")
        centred_title(figure, axes, " · ".join(words))
    return figure


def _rows_of(grid: Grid) -> str:
    """Return the kind and the number of the rows that a grid compares."""
    kind = str(grid.measure.kind)
    what = "sentences" if kind.startswith("attention") else "rows"
    return f"{kind}, n = {grid.rows['n'].iloc[0]:,} {what}"


def _note(grids: Sequence[Grid]) -> str:
    note = _NOTE if grids else ""
    if any(np.isnan(grid.values).any() for grid in grids):
        kinds = {grid.measure.kind for grid in grids}
        note += f" {heatmap.undefined_note(kinds.pop() if len(kinds) == 1 else None)}."
    tested = heatmap.p_note(grid.pvalue for grid in grids)
    return f"{note} {tested}" if tested else note


def _draw_grid(axis: Axes, grid: Grid, several: bool) -> None:
    """Draw a grid; its title says the rows, if the grids of the figure have `several` kinds."""
    image = heatmap.draw_cells(axis, grid.values, *grid.measure.colours([grid.values]))
    heatmap.mark_cells(axis, image, grid.pvalue > heatmap.LARGEST_P, grid.points)
    title = grid.measure.title
    axis.set_title(f"{title}\n{_rows_of(grid)}" if several else title, fontweight="bold")
    _label(axis, grid)
    bar = axis.figure.colorbar(image, ax=axis, shrink=0.75, aspect=24, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=7, length=2)
    bar.set_label(grid.measure.name, fontsize=7.5, color="0.35")


def _label(axis: Axes, grid: Grid) -> None:
    """Label layers and models as far as they have room, and draw lines between models."""
    blocks = [list(group) for _, group in groupby(grid.layers, lambda layer: layer.model)]
    starts = [sum(map(len, blocks[:place])) for place in range(len(blocks))]
    for edge in starts[1:]:
        for line in (axis.axhline, axis.axvline):
            line(edge - 0.5, color="white", linewidth=min(1.8, 0.25 * grid.points))
    wide = 2.2 if len(grid.layers) > len(blocks) else 2.8  # “emb” beside a number, or beside “emb”
    for of_side, room in (
        (axis.set_xticks, wide * _LAYER_SIZE),
        (axis.set_yticks, 1.2 * _LAYER_SIZE),
    ):
        places = _labelled(blocks, starts, math.ceil(room / grid.points))
        names = layer_names([grid.layers[place].number for place in places])
        of_side(places, names, fontsize=_LAYER_SIZE)
    axis.tick_params(length=0, pad=1.5)
    centres = [start + (len(block) - 1) / 2 for start, block in zip(starts, blocks, strict=True)]
    _label_models(axis, grid, centres)


def _labelled(blocks: Sequence[Sequence[Layer]], starts: Sequence[int], every: int) -> list[int]:
    """Return the places of layers with labels that keep a distance of `every`.

    The last layer of a model has a label. So has the first one, but where it would be too near to
    the last layer of the model before. A model of several layers has two labels or more, or none.
    """
    places = []
    for start, block in zip(starts, blocks, strict=True):
        mine = tick_places(len(block), every) if len(block) >= every else []
        if start and every > 1 and len(block) > 1:
            mine = mine[1:]
        places += [start + layer for layer in mine if len(mine) > 1 or len(block) == 1]
    return places


def _label_models(axis: Axes, grid: Grid, centres: Sequence[float]) -> None:
    """Write the names of the models; turned, smaller, or some of them, where there is no room."""
    size, every = grid.name_size, int(np.ceil(1.1 * grid.name_size / grid.model_points))
    below, beside = axis.secondary_xaxis(0), axis.secondary_yaxis(0)
    shown = (centres[::every], grid.models[::every])
    below.set_xticks(*shown, rotation=90 if grid.turned else 0, fontsize=size)
    along: dict[str, Any] = {} if grid.turned else {"rotation": 90, "va": "center"}
    beside.set_yticks(*shown, fontsize=size, **along)
    for side, pad in ((below, 9.0), (beside, 15.0)):
        side.tick_params(length=0, pad=pad)
        side.spines[:].set_visible(False)


def _width(name: str) -> float:
    """Return the width of a name in points at the usual size."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    return TextPath((0, 0), name, prop=FontProperties(size=_NAME_SIZE)).get_extents().width


def _draw_localization(axis: Axes, rows: pd.DataFrame) -> None:
    draw_curves(axis, rows)
    axis.axhline(0.0, color="0.35", linestyle=(0, (5, 3)), linewidth=1.0)
    standardized = bool(rows["options"].notna().any())
    axis.set_title("Localization score" + ", standardized" * standardized, fontweight="bold")
    axis.set_xlabel("layer")
    means = "standardized mean" if standardized else "mean"
    axis.set_ylabel(f"{means} neuronsim − {means} SVCCA")
    add_legend(axis)
