"""Draw curves: a metric of shortened, frozen and cut models, and similarities by step of training.

A training has the similarity of every layer with a reference, by step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter

from simlab.figures.style import (
    BLUE,
    CELL_INCHES,
    LETTER_INCHES,
    MOST_LAYERS_WITH_VALUES,
    POINTS,
    SMALL_PANEL,
    SMALLEST_PANEL,
    colour_bar,
    draw_cells,
    draw_mean,
    finish,
    finish_curves,
    flow,
    heat_colours,
    label_layers,
    layer_names,
    leave_empty,
    look,
    matrix,
    only_lines,
    row_count,
    short,
    styled,
    task_names,
    wrapped,
    write_values,
)
from simlab.figures.table import MEASURED, describe, in_order, tell_apart, with_models
from simlab.results.results import (
    GRID,
    MAJORITY,
    SECONDS,
    TFIDF,
    TFIDF_REGRESSION,
    TRAINED,
    TRAINING,
    TRUNCATIONS,
    run_names,
)

_PANEL, _MEDIUM_PANEL, _SMALL_PANEL = (4.4, 3.0), (2.4, 2.1), (2.35, 1.9)
_MOST_SHARED = 6  # models in one panel
_MOST_CURVES, _MOST_TRIANGLES = 4, 3  # side by side
_BASELINES = {MAJORITY: (0, (5, 3)), TFIDF: (0, (1, 2)), TFIDF_REGRESSION: (0, (1, 2))}  # dashes
_XLABEL = "layer whose classifier vector goes to the task head"


@styled
def plot_truncation(rows: pd.DataFrame, baseline: pd.DataFrame) -> Figure:
    """Draw the held-out metric against the layer fed to the head, and baselines of the task."""
    modes = {comparison: mode for mode, comparison in TRUNCATIONS.items()}
    rows = with_models(rows, ["task", "measure", "experiment"])
    rows = rows.assign(mode=rows["experiment"].map(modes))
    columns = [part for _, part in rows.groupby(["task", "measure"], sort=False)]
    models = in_order(rows["model"])
    if len(columns) > 1:
        return _curve_matrix(columns, baseline, models)
    drawn = [mode for mode in TRUNCATIONS if (rows["mode"] == mode).any()]
    shared = len(drawn) == 1 and len(models) <= _MOST_SHARED
    parts = [rows] if shared else [rows[rows["model"] == model] for model in models]
    size = _PANEL if len(parts) == 1 else _MEDIUM_PANEL
    figure, axes = flow(len(parts), size, _MOST_CURVES, sharex=True, sharey=True)
    for axis, part in zip(axes, parts, strict=True):
        _draw_curves(
            axis, part, baseline, "model" if shared else "mode", 5.0 if shared else 4.0, size[0]
        )
        if len(parts) > 1:
            axis.set_title(wrapped(part["model"].iloc[0], 30), fontweight="bold", fontsize=9)
    first = rows.iloc[0]
    title = f"{drawn[0].capitalize()} truncation" if shared else "Truncation"
    title = " · ".join([title, f"task {first['task']}", *row_count(rows)])
    finish(figure, title, _XLABEL, axes, 9.0)
    figure.supylabel(f"held-out {first['measure']}", fontsize=9)
    return figure


def _curve_matrix(columns: list[pd.DataFrame], baseline: pd.DataFrame, models: list[str]) -> Figure:
    """Draw a panel for each model and task; models below each other, tasks side by side."""
    names = task_names(columns)
    figure, axes = matrix(models, names, _SMALL_PANEL, sharex=True, sharey="col")
    for name, rows in zip(names, columns, strict=True):
        for model in models:
            part = rows[rows["model"] == model]
            if len(part):
                _draw_curves(axes[model, name], part, baseline, "mode", 3.0, _SMALL_PANEL[0])
                axes[model, name].tick_params(labelsize=7)
            else:
                leave_empty(axes[model, name])
    finish(figure, "Truncation", _XLABEL, axes.values(), 9.0)
    return figure


def _draw_curves(
    axis: Axes, rows: pd.DataFrame, baseline: pd.DataFrame, column: str, size: float, inches: float
) -> None:
    """Draw a line for every model or mode, and what simple models reach on the task."""
    order = in_order(rows["model"]) if column == "model" else list(TRUNCATIONS)
    counts = set()
    for name in order:
        part = rows[rows[column] == name]
        if len(part):
            seeds = part.groupby(["label_x", "seed_x"], dropna=False).ngroups
            counts.add(seeds)
            label = f"{name}, mean of {seeds} seeds" if column == "model" and seeds > 1 else name
            draw_mean(axis, part, look(order.index(name)), label, size)
    if column == "mode" and max(counts) > 1:
        text = f"mean of {' or '.join(map(str, sorted(counts)))} seeds"
        axis.annotate(text, (0.98, 0.03), xycoords="axes fraction", ha="right", fontsize=6)
    same = [baseline[name].isin(rows[name]) for name in ("task", "measure", "n")]
    mine = baseline[same[0] & same[1] & same[2]].drop_duplicates(["label_x", "n", "value"])
    several = mine["n"].nunique() > 1
    for row in mine[mine["label_x"].isin(list(_BASELINES))].itertuples():
        name = f"{row.label_x}, n = {row.n:,}" if several else row.label_x
        dashes = _BASELINES[row.label_x]
        axis.axhline(row.value, color="0.35", linestyle=dashes, linewidth=1.2, label=name)
    layers = int(rows["layer_x"].max() - rows["layer_x"].min()) + 1
    finish_curves(axis, rows, points=inches * POINTS / layers)


def plot_skipping(rows: pd.DataFrame) -> Figure:
    """Draw the metric without every span of layers; see `plot_influence`.

    `layer_x` is i and `layer_y` is j of span [i, j); both are 0 for the whole model.
    """
    ends = ("first skipped layer", "last skipped layer")
    return _triangles(rows, "Without a span of layers", ends, "held-out {}")


def plot_influence(rows: pd.DataFrame) -> Figure:
    """Draw a triangle for every model and seed, on one colour scale for each task."""
    ends = ("first layer of the span", "last layer of the span")
    return _triangles(rows, "Influence of a span of layers", ends, "1 - cosine of input and output")


@styled
def _triangles(rows: pd.DataFrame, title: str, ends: tuple[str, str], bar: str) -> Figure:
    """Draw triangles whose colour bar has the text `bar`, with ``{}`` for the measure."""
    rows = with_models(rows, ["task", "measure"], together=False)
    columns = [part for _, part in rows.groupby(["task", "measure"], sort=False)]
    models = in_order(rows["model"])
    if len(columns) > 1:
        return _triangle_matrix(columns, models, title, ends[0])
    side = max(SMALLEST_PANEL, CELL_INCHES * int(rows["layer_y"].max()))
    figure, axes = flow(len(models), (side + 0.6, side + 0.75), _MOST_TRIANGLES)
    for axis, model in zip(axes, models, strict=True):
        image, whole = _draw_triangle(axis, rows, model, side)
        heading = wrapped(f"{model} ({whole})" if whole else model, int(side / LETTER_INCHES))
        axis.set_title(heading, fontweight="bold")
        axis.set(xlabel=ends[1], ylabel=ends[0])
    first = rows.iloc[0]
    colour_bar(figure, image, axes, bar.format(first["measure"]))
    finish(figure, " · ".join([title, f"task {first['task']}", *row_count(rows)]))
    return figure


def _triangle_matrix(
    columns: Sequence[pd.DataFrame], models: Sequence[str], title: str, first: str
) -> Figure:
    """Draw models below each other and tasks side by side, a colour bar below each task."""
    names = task_names(columns)
    figure, axes = matrix(models, names, (SMALL_PANEL + 0.35, SMALL_PANEL + 0.35))
    for name, rows in zip(names, columns, strict=True):
        for model in models:
            axis = axes[model, name]
            if (rows["model"] == model).any():
                image, whole = _draw_triangle(axis, rows, model, SMALL_PANEL)
                axis.set_xlabel(whole, fontsize=7, labelpad=1)
            else:
                leave_empty(axis)
        below = [axes[model, name] for model in models]
        colour_bar(figure, image, below, "", location="bottom", aspect=16)
    finish(figure, title, f"The {first} goes upwards, the last to the right.")
    return figure


def _draw_triangle(
    axis: Axes, rows: pd.DataFrame, model: str, side: float
) -> tuple[AxesImage, str]:
    """Draw the first layer of spans upwards, the last to the right; return the model's metric."""
    scale = float(rows["value"].min()), float(rows["value"].max())
    rows = rows[rows["model"] == model]
    count = int(rows["layer_y"].max())
    values = np.full((count, count), np.nan)
    skipped = rows[rows["layer_y"] > rows["layer_x"]]
    # Span [i, j) skips layers i + 1 to j.
    values[skipped["layer_x"].astype(int), skipped["layer_y"].astype(int) - 1] = skipped["value"]
    layers = range(1, count + 1)
    image = draw_cells(axis, values, *scale)
    image.set_cmap(heat_colours().with_extremes(bad="white"))
    label_layers(axis, layers, layers, side)
    if count <= MOST_LAYERS_WITH_VALUES and side > SMALL_PANEL:
        write_values(axis, image)
    for row, column in zip(*np.nonzero(np.isnan(np.triu(values))), strict=True):
        size = min(7.5, 0.6 * side * POINTS / count)
        axis.text(column, row, "–", ha="center", va="center", fontsize=size)  # undefined
    whole = rows.loc[rows["layer_y"] == rows["layer_x"], "value"]
    return image, f"whole: {short(whole.iloc[0])}" if whole.notna().any() else ""


@styled
def plot_freezing(rows: pd.DataFrame) -> Figure:
    """Draw three panels for each task: metric, trained parameters and time of a step."""
    bases = rows["base_x"].astype(object).fillna("")
    several = bases.groupby(rows["task"]).transform("nunique") > 1
    model = (" (" + bases + ")").where(several & (bases != ""), "")
    rows = rows.assign(way=rows["label_x"].astype(object) + model)
    tasks = [part for _, part in rows.groupby("task", sort=False)]
    most = max(part["measure"].nunique() for part in tasks)
    heights = [0.38 * part["way"].nunique() + 0.8 for part in tasks]
    figure = Figure(figsize=(3.0 * most, sum(heights) + 0.4), layout="constrained")
    places = {"height_ratios": heights}
    axes = figure.subplots(len(tasks), most, squeeze=False, sharey="row", gridspec_kw=places)
    for line, part in zip(axes, tasks, strict=True):
        _draw_task(line, part)
        first = part.iloc[0]
        if len(tasks) > 1:
            line[0].set_ylabel(f"{first['task']}\nn = {first['n']:,}", fontweight="bold")
    about = [f"task {first['task']}", f"n = {first['n']:,}"] if len(tasks) == 1 else []
    finish(figure, " · ".join(["Frozen layers", *about]))
    return figure


def _draw_task(axes: Sequence[Axes], rows: pd.DataFrame) -> None:
    """Draw a panel for every measure."""
    ways, costs = list(dict.fromkeys(rows["way"])), (TRAINED, SECONDS)
    measures = sorted(dict.fromkeys(rows["measure"]), key=lambda name: name in costs)
    for axis, measure in zip(axes, measures, strict=False):
        part = rows[rows["measure"] == measure]
        if measure in costs:
            bars = {"color": BLUE, "alpha": 0.75, "saturation": 1, "width": 0.7}
            sns.barplot(part, x="value", y="way", order=ways, errorbar=None, ax=axis, **bars)
        else:  # bars from 0 would hide the small differences of a metric
            means = part.groupby("way")["value"].mean().reindex(ways)
            low, high = ([place + half for place in range(len(ways))] for half in (-0.35, 0.35))
            axis.vlines(means, low, high, color=BLUE, linewidth=2.5)
        sns.stripplot(
            part, x="value", y="way", order=ways, color="0.25", size=4, jitter=False, ax=axis
        )
        axis.set(xlabel="", ylabel="", title=measure if measure in costs else f"held-out {measure}")
        axis.locator_params(axis="x", nbins=5)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(axis="y", length=0)
        if measure == TRAINED:
            axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    for axis in axes[len(measures) :]:
        axis.set_axis_off()


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
    """Draw the similarity of every layer with its reference by step; a panel for each run."""
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
