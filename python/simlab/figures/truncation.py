"""Draw the metric with layer l fed straight to the head (Phang et al. 2021, figure 3)."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simlab.figures.style import (
    POINTS,
    draw_mean,
    finish,
    finish_curves,
    flow,
    leave_empty,
    look,
    matrix,
    row_count,
    styled,
    task_names,
    wrapped,
)
from simlab.figures.table import in_order, with_models
from simlab.results.results import MAJORITY, TFIDF, TFIDF_REGRESSION, TRUNCATIONS

_PANEL, _MEDIUM_PANEL, _SMALL_PANEL = (4.4, 3.0), (2.4, 2.1), (2.35, 1.9)
_MOST_SHARED = 6  # models in one panel
_MOST_COLUMNS = 4
_BASELINES = {MAJORITY: (0, (5, 3)), TFIDF: (0, (1, 2)), TFIDF_REGRESSION: (0, (1, 2))}  # dashes
_XLABEL = "layer whose classifier vector goes to the task head"


@styled
def plot_truncation(rows: pd.DataFrame, baseline: pd.DataFrame) -> Figure:
    """Draw the held-out metric against the layer fed to the head, with the baselines of the task.

    There is a panel for each model and task, with a line for each mode; with one task and one mode,
    a few models share a panel. Seeds of one model are thin lines around their mean.
    """
    modes = {comparison: mode for mode, comparison in TRUNCATIONS.items()}
    rows = with_models(rows, ["task", "measure", "experiment"])
    rows = rows.assign(mode=rows["experiment"].map(modes))
    columns = [part for _, part in rows.groupby(["task", "measure"], sort=False)]
    models = in_order(rows["model"])
    if len(columns) > 1:
        return _draw_matrix(columns, baseline, models)
    drawn = [mode for mode in TRUNCATIONS if (rows["mode"] == mode).any()]
    shared = len(drawn) == 1 and len(models) <= _MOST_SHARED
    parts = [rows] if shared else [rows[rows["model"] == model] for model in models]
    size = _PANEL if len(parts) == 1 else _MEDIUM_PANEL
    figure, axes = flow(len(parts), size, _MOST_COLUMNS, sharex=True, sharey=True)
    for axis, part in zip(axes, parts, strict=True):
        _draw(axis, part, baseline, "model" if shared else "mode", 5.0 if shared else 4.0, size[0])
        if len(parts) > 1:
            axis.set_title(wrapped(part["model"].iloc[0], 30), fontweight="bold", fontsize=9)
    first = rows.iloc[0]
    title = f"{drawn[0].capitalize()} truncation" if shared else "Truncation"
    title = " · ".join([title, f"task {first['task']}", *row_count(rows)])
    finish(figure, title, _XLABEL, axes, 9.0)
    figure.supylabel(f"held-out {first['measure']}", fontsize=9)
    return figure


def _draw_matrix(columns: list[pd.DataFrame], baseline: pd.DataFrame, models: list[str]) -> Figure:
    """Draw a panel for each model and task; models below each other, tasks side by side."""
    names = task_names(columns)
    figure, axes = matrix(models, names, _SMALL_PANEL, sharex=True, sharey="col")
    for name, rows in zip(names, columns, strict=True):
        for model in models:
            part = rows[rows["model"] == model]
            if len(part):
                _draw(axes[model, name], part, baseline, "mode", 3.0, _SMALL_PANEL[0])
                axes[model, name].tick_params(labelsize=7)
            else:
                leave_empty(axes[model, name])
    finish(figure, "Truncation", _XLABEL, axes.values(), 9.0)
    return figure


def _draw(
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
