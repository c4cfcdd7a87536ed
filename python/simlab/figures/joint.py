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
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simlab.figures.style import (
    LARGEST_P,
    POINTS,
    colour_bar,
    draw_cells,
    draw_curves,
    finish,
    flow,
    layer_names,
    mark_cells,
    p_note,
    styled,
    tick_places,
    undefined_note,
)
from simlab.figures.table import MEASURED, Measured, in_order
from simlab.results.results import Layer, joint_table
from simlab.similarity.catalogue import MEASURES

_SMALL_PANEL, _LARGEST_PANEL, _CELL = 4.0, 14.0, 0.05  # inches
_MOST_COLUMNS = 3
_MOST_PANELS = 6  # in a file
_NAME_SIZE, _LAYER_SIZE = 9.0, 5.0  # points
_LETTER = 0.6  # width of a letter, of its size
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
        """Width of the cells."""
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
        """Width of the cells of one model."""
        return self.inches * POINTS / len(self.models)

    @property
    def turned(self) -> bool:
        """Whether the names are too long to stand along the axes."""
        return self._name_width * _NAME_SIZE > 0.95 * self.model_points

    @property
    def panel_inches(self) -> float:
        """Width of the cells and of turned names beside them."""
        return self.inches + self.turned * self._name_width * _NAME_SIZE / POINTS

    @property
    def _name_width(self) -> float:
        """Width of the longest name, of the size of its letters."""
        return _LETTER * max(map(len, self.models))


def joint_figures(grids: pd.DataFrame, scores: pd.DataFrame) -> Iterator[tuple[str, Figure]]:
    """Yield the figures of joint grids and of localization scores, by name."""
    for task in dict.fromkeys([*grids["task"], *scores["task"]]):
        mine = scores[scores["task"] == task]
        shown = mine.index[:0]
        parts = list(grids[grids["task"] == task].groupby("comparison", sort=False))
        for comparison, rows in parts:
            of_rows = mine[mine["label_x"].isin(set(rows["label_x"]))]
            of_rows = of_rows[of_rows["comparison"].fillna(comparison) == comparison]
            shown = shown.union(of_rows.index)
            name = "-".join([task, "models", *([comparison] if len(parts) > 1 else [])])
            files = list(in_files(joint_grids(rows), of_rows))
            for part, some in files:
                words = part[0].measure.words if part else ("localization",)
                yield "-".join([name, *(words if len(files) > 1 else ())]), draw_joint(part, some)
        rest = mine.drop(index=shown)
        if len(rest):
            yield f"{task}-models" + ("-scores" if parts else ""), draw_joint([], rest)


def joint_grids(rows: pd.DataFrame) -> list[Grid]:
    """Return the joint grids in `rows`, in the order of `catalogue.MEASURES`."""
    rows = rows.sort_values("measure", key=lambda names: names.map(_ORDER.get), kind="stable")
    grids = []
    for (measure, _), part in rows.groupby([MEASURED, "n"], sort=False, observed=True):
        layers, values = joint_table(part)
        _, pvalue = joint_table(part.assign(value=part["pvalue"]))
        models = in_order(layer.model for layer in layers)
        order = sorted(range(len(layers)), key=lambda place: models.index(layers[place].model))
        both = np.ix_(order, order)
        grids.append(Grid(part, measure, [layers[k] for k in order], values[both], pvalue[both]))
    return grids


def in_files(
    grids: Sequence[Grid], scores: pd.DataFrame
) -> Iterator[tuple[Sequence[Grid], pd.DataFrame]]:
    """Yield the grids and the localization scores of every file."""
    large = any(grid.inches > _SMALL_PANEL for grid in grids)
    if large or len(grids) + bool(len(scores)) > _MOST_PANELS:
        yield from (([grid], scores[:0]) for grid in grids)
        if len(scores):
            yield [], scores
    else:
        yield grids, scores


@styled
def draw_joint(grids: Sequence[Grid], localization: pd.DataFrame) -> Figure:
    """Draw a heatmap for each of `grids`, and a panel for each kind of localization scores."""
    scores = [rows for _, rows in localization.groupby("options", dropna=False, sort=False)]
    side = max((grid.panel_inches for grid in grids), default=_SMALL_PANEL)
    about = list(dict.fromkeys(map(_rows_of, grids)))
    figure, axes = flow(len(grids) + len(scores), (side + 0.8, side), _MOST_COLUMNS)
    for axis, grid in zip(axes, grids, strict=False):
        image = draw_cells(axis, grid.values, *grid.measure.colours([grid.values]))
        mark_cells(axis, image, grid.pvalue > LARGEST_P, grid.points)
        title = grid.measure.title
        title = f"{title}\n{_rows_of(grid)}" if len(about) > 1 else title
        axis.set_title(title, fontweight="bold")
        _label(axis, grid)
        colour_bar(figure, image, axis, grid.measure.name)
    for axis, rows in zip(axes[len(grids) :], scores, strict=True):
        _draw_localization(axis, rows)
    first = (grids[0].rows if grids else localization).iloc[0]
    words = ["All layers of all models", f"task {first['task']}"]
    notes = [_NOTE] if grids else []
    if any(np.isnan(grid.values).any() for grid in grids):
        kinds = {grid.measure.kind for grid in grids}
        notes.append(f"{undefined_note(kinds.pop() if len(kinds) == 1 else None)}.")
    notes.append(p_note(grid.pvalue for grid in grids))
    title = " · ".join([*words, *(about if len(about) == 1 else [])])
    finish(figure, title, " ".join(filter(None, notes)), axes[len(grids) :])
    return figure


def _rows_of(grid: Grid) -> str:
    """Return the kind and the number of the rows that a grid compares."""
    kind = str(grid.measure.kind)
    what = "sentences" if kind.startswith("attention") else "rows"
    return f"{kind}, n = {grid.rows['n'].iloc[0]:,} {what}"


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
    every = math.ceil(1.1 * _NAME_SIZE / grid.model_points)  # of many models, some have a name
    centres = [start + (len(block) - 1) / 2 for start, block in zip(starts, blocks, strict=True)]
    shown = (centres[::every], grid.models[::every])
    below, beside = axis.secondary_xaxis(0), axis.secondary_yaxis(0)
    below.set_xticks(*shown, rotation=90 if grid.turned else 0, fontsize=_NAME_SIZE)
    along: dict[str, Any] = {} if grid.turned else {"rotation": 90, "va": "center"}
    beside.set_yticks(*shown, fontsize=_NAME_SIZE, **along)
    for names_of_side, pad in ((below, 9.0), (beside, 15.0)):
        names_of_side.tick_params(length=0, pad=pad)
        names_of_side.spines[:].set_visible(False)


def _labelled(blocks: Sequence[Sequence[Layer]], starts: Sequence[int], every: int) -> list[int]:
    """Return the places of layers with labels that keep a distance of `every`."""
    places = []
    for start, block in zip(starts, blocks, strict=True):
        labelled = tick_places(len(block), every) if len(block) >= every else []
        if start and every > 1 and len(block) > 1:
            labelled = labelled[1:]
        places += [start + index for index in labelled if len(labelled) > 1 or len(block) == 1]
    return places


def _draw_localization(axis: Axes, rows: pd.DataFrame) -> None:
    draw_curves(axis, rows)
    axis.axhline(0.0, color="0.35", linestyle=(0, (5, 3)), linewidth=1.0)
    standardized = bool(rows["options"].notna().any())
    axis.set_title("Localization score" + ", standardized" * standardized, fontweight="bold")
    axis.set_xlabel("layer")
    means = "standardized mean" if standardized else "mean"
    axis.set_ylabel(f"{means} neuronsim − {means} SVCCA")
