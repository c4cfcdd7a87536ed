"""Draw a training: the similarity of every layer with a reference, by step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from simlab.figures.style import (
    finish,
    flow,
    layer_names,
    only_lines,
    styled,
)
from simlab.figures.table import MEASURED, describe, tell_apart
from simlab.results.labels import run_names
from simlab.results.results import GRID, TRAINING

_RUN = ("label_x", "seed_x", "n")
_REFERENCES = {"start": "the state before training", "previous": "the last recorded state"}
_STEPS = ("first", "previous", "last")  # of references of sweeps: ``ORIG-last step``

_PANEL_INCHES = (4.2, 3.1)
_MOST_COLUMNS = 3
_MOST_NAMED = 13  # layers in the legend
_LOG_RANGE = 100  # from the first step to the last, beyond which steps are drawn by their logarithm
_MOST_MARKED = 30  # steps with a point on the curve


def training_figures(frame: pd.DataFrame) -> Iterator[tuple[str, Figure, pd.DataFrame]]:
    """Yield a figure for each task, measure and reference of the rows by step, and its rows.

    They are the rows of trainings, and of grids of two steps, where a heatmap for each of hundreds
    of steps would show less.
    """
    rows = frame[frame["experiment"].isin((TRAINING, GRID))]
    rows = rows[rows["layer_x"] == rows["layer_y"]]
    columns = ["experiment", "task", "comparison", MEASURED]
    groups = rows.groupby(columns, dropna=False, sort=False, observed=True)
    for (experiment, task, reference, measure), part in groups:
        words = [task, *([TRAINING] if experiment == TRAINING else []), reference]
        if experiment == GRID:
            part = part.assign(label_x=run_names(part["label_x"]))
        yield "-".join([*words, *measure.words]), plot_training(part), part


@styled
def plot_training(rows: pd.DataFrame) -> Figure:
    """Draw the similarity of every layer with its reference by step; a panel for each run.

    `rows` are of one task, measure, kind and reference: of a training, or of grids of two steps.
    """
    runs = _runs(rows)
    figure, axes = flow(len(runs), _PANEL_INCHES, _MOST_COLUMNS, sharey=True)
    for axis, (name, run) in zip(axes, runs, strict=True):
        _draw_run(axis, name, run, rows[MEASURED].iloc[0].label)
    # The top layer first, in order of the curves.
    layers = sorted(set(rows["layer_x"]) - set(_undefined(rows)), reverse=True)
    every = max(1, -(-len(layers) // _MOST_NAMED))
    colours, shown = _colours(max(rows["layer_x"])), layers[::every]
    handles = [Line2D([], [], color=colours[layer], linewidth=2) for layer in shown]
    where: dict[str, Any] = {"loc": "outside right center", "frameon": False, "fontsize": 7.5}
    figure.legend(handles, layer_names(shown), title="layer", **where)
    _add_titles(figure, rows)
    return figure


def _add_titles(figure: Figure, rows: pd.DataFrame) -> None:
    """Add the title of a figure, and a note on layers without values."""
    first = rows.iloc[0]
    title = f"{first[MEASURED].title} with {reference_name(str(first['comparison']))}"
    sizes = [f"n = {n:,}" for n in set(rows["n"])]
    about = [f"task {first['task']}", first["kind"], *(sizes if len(sizes) == 1 else ())]
    undefined = ", ".join(layer_names(_undefined(rows)))
    note = f"Missing: {undefined}, which does not vary over the rows" if undefined else ""
    finish(figure, f"{title}\n{' · '.join(about)}", note)


def reference_name(comparison: str) -> str:
    """Return the reference of a comparison by step, in words: `ORIG-last step`, or `start`."""
    stage, _, end = comparison.rpartition("-")
    word = end.removesuffix(" step")
    if word in _STEPS and end != word:
        return f"the {end} ({stage})"
    return _REFERENCES.get(comparison, comparison)


def _runs(rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return every run with its name: a row for each step, a column for each layer."""
    # Two trainings with one label would form one curve that goes back in steps.
    is_record = rows["experiment"] == TRAINING
    job = (rows["file"] + rows["grid"].astype(object).fillna("")).where(is_record, "")
    names, details, tables = [], [], []
    for (label, seed, n, _), run in rows.groupby([*_RUN, job], dropna=False, sort=False):
        names.append(str(label))
        details.append(describe({"seed_x": seed, "n": n, "file": Path(run["file"].iloc[0]).stem}))
        tables.append(run.pivot(index="step_x", columns="layer_x", values="value"))
    return list(zip(tell_apart(names, details), tables, strict=True))


def _draw_run(axis: Axes, name: str, table: pd.DataFrame, label: str) -> None:
    colours = _colours(table.columns.max())
    dots = "o" if len(table) <= _MOST_MARKED else None
    line: dict[str, Any] = {"marker": dots, "markersize": 3, "linewidth": 1.4}
    for layer, curve in table.items():
        axis.plot(table.index, curve, color=colours[int(layer)], **line)
    axis.set_title(name, fontweight="bold")
    axis.set(xlabel="step", ylabel=label)
    steps = [step for step in table.index if step > 0]
    if steps and steps[-1] >= _LOG_RANGE * steps[0]:
        axis.set_xscale("symlog", linthresh=steps[0])  # which has a place for step 0
    else:
        axis.locator_params(axis="x", integer=True)
    only_lines(axis)


def _colours(last: int) -> np.ndarray:
    """Return a colour for each layer from 0 to `last`, dark for the first layers."""
    return mpl.colormaps["viridis"](np.linspace(0, 0.92, int(last) + 1))


def _undefined(rows: pd.DataFrame) -> list[int]:
    """Return the layers without a value at any step."""
    values = rows.groupby("layer_x")["value"].count()
    return [int(layer) for layer in values.index[values == 0]]
