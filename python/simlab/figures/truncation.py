"""Draw the metric with layer l fed straight to the head (Phang et al. 2021, figure 3)."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simlab.figures.names import in_order, models_of, name_models
from simlab.figures.panels import flow, headline, matrix
from simlab.figures.style import POINTS, STYLE, add_legend, draw_mean, finish_curves, look
from simlab.store.results import MAJORITY, TFIDF, TFIDF_REGRESSION, TRUNCATIONS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL, _SMALL_PANEL, _GAP = (4.8, 3.3), (1.9, 1.5), (0.45, 0.4)
_MOST_SHARED = 6  # models in one panel
_MOST_COLUMNS = 4
_BASELINES = {MAJORITY: (0, (5, 3)), TFIDF: (0, (1, 2)), TFIDF_REGRESSION: (0, (1, 2))}  # dashes
_XLABEL = "layer whose classifier vector goes to the task head"


@dataclass(frozen=True, eq=False)
class Curve:
    """The curve of a model, whose seeds are one: `column` is the name of its task and measure."""

    column: str
    mode: str
    model: str
    rows: pd.DataFrame


def plot_truncation(rows: pd.DataFrame, baseline: pd.DataFrame) -> Figure:
    """Draw the held-out metric against the layer fed to the head, with the baselines of the task.

    There is a panel for each model and task, with a line for each mode; with one task and one mode,
    a few models share a panel. Seeds of one model are thin lines around their mean.
    """
    import matplotlib as mpl

    curves = _curves(rows)
    columns = in_order(curve.column for curve in curves)
    models = in_order(curve.model for curve in curves)
    modes = [mode for mode in TRUNCATIONS if any(curve.mode == mode for curve in curves)]
    with mpl.rc_context(STYLE):
        if len(columns) == 1 and len(modes) == 1 and len(models) <= _MOST_SHARED:
            return _draw_shared(curves, baseline, modes[0])
        if len(columns) == len(models) == 1:
            return _draw_one(curves, baseline, modes)
        return _draw_multiples(curves, baseline, models, columns)


def _curves(rows: pd.DataFrame) -> list[Curve]:
    """Return the curves of all tasks, measures and modes, models by names that tasks share."""
    modes = {comparison: mode for mode, comparison in TRUNCATIONS.items()}
    measures = rows.groupby("task")["measure"].nunique()
    cells, models = [], []
    for key, part in rows.groupby(["task", "measure", "experiment"], sort=False):
        of_part = models_of(part, task=key[0] if len(measures) > 1 else "")
        models += of_part
        cells += [key] * len(of_part)
    names = name_models(models, cells)
    return [
        Curve(
            column=f"{task}, {measure}" if measures[task] > 1 else task,
            mode=modes[comparison],
            model=name,
            rows=model.rows,
        )
        for (task, measure, comparison), name, model in zip(cells, names, models, strict=True)
    ]


def _draw_shared(curves: Sequence[Curve], baseline: pd.DataFrame, mode: str) -> Figure:
    """Draw the models in one panel, a line for each."""
    figure, (axis,) = flow(1, lambda *_: _PANEL, 1)
    rows_of = {curve.model: curve.rows for curve in curves}
    for index, name in enumerate(in_order(rows_of)):
        draw_mean(axis, rows_of[name], look(index), _counted(name, rows_of[name]))
    _finish(axis, curves, baseline, f"{mode.capitalize()} truncation")
    return figure


def _draw_one(curves: Sequence[Curve], baseline: pd.DataFrame, modes: Sequence[str]) -> Figure:
    """Draw the modes of a model in one panel, a line for each."""
    figure, (axis,) = flow(1, lambda *_: _PANEL, 1)
    for index, mode in enumerate(modes):
        for curve in (curve for curve in curves if curve.mode == mode):
            draw_mean(axis, curve.rows, look(index), _counted(mode, curve.rows))
    _finish(axis, curves, baseline, "Truncation")
    return figure


def _finish(axis: Axes, curves: Sequence[Curve], baseline: pd.DataFrame, title: str) -> None:
    first = curves[0].rows.iloc[0]
    _draw_baselines(axis, curves, baseline)
    finish_curves(axis, _all(curves))
    axis.set_xlabel(_XLABEL)
    axis.set_ylabel(f"held-out {first['measure']}")
    axis.set_title(" · ".join([title, f"task {first['task']}", *_size(curves)]))
    add_legend(axis)


def _draw_multiples(
    curves: Sequence[Curve], baseline: pd.DataFrame, models: Sequence[str], columns: Sequence[str]
) -> Figure:
    """Draw a panel for each model and task; models below each other, tasks side by side."""
    figure, axes = _empty_panels(curves, models, columns)
    modes = list(TRUNCATIONS)
    for (model, column), axis in axes.items():
        mine = [curve for curve in curves if (curve.model, curve.column) == (model, column)]
        if not mine:
            axis.set_axis_off()
            continue
        for curve in mine:
            draw_mean(axis, curve.rows, look(modes.index(curve.mode)), curve.mode, size=3)
        _draw_baselines(axis, mine, baseline)
        finish_curves(axis, _all(curves), points=_SMALL_PANEL[0] * POINTS / _layers(curves))
        axis.tick_params(labelsize=7)
        if seeds := _several_seeds(mine):
            axis.annotate(seeds, (0.98, 0.03), xycoords="axes fraction", ha="right", fontsize=6)
    lines = {
        label: line
        for axis in axes.values()
        for line, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    where: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0)}
    figure.legend(lines.values(), lines, frameon=False, ncols=len(lines), **where)
    return figure


def _empty_panels(
    curves: Sequence[Curve], models: Sequence[str], columns: Sequence[str]
) -> tuple[Figure, dict[tuple[str, str], Axes]]:
    """Return a figure with a panel for every model and column, and its titles."""
    first = curves[0].rows.iloc[0]
    if len(columns) > 1:
        names = [
            "\n".join([column, ", ".join([_measure(column, curves), *_size(_in(column, curves))])])
            for column in columns
        ]
        figure, axes = matrix(models, names, _SMALL_PANEL, _GAP, sharex=True, sharey="col")
        headline(figure, "Truncation", _XLABEL)
        places = [(model, column) for model in models for column in columns]
        return figure, dict(zip(places, axes.ravel(), strict=True))
    figure, axes = flow(
        len(models),
        lambda across, down: (across * 2.4 + 0.4, down * 2.1 + 0.6),
        _MOST_COLUMNS,
        sharex=True,
        sharey=True,
    )
    for axis, model in zip(axes, models, strict=True):
        axis.set_title(textwrap.fill(model, 30), fontweight="bold", fontsize=9)
    figure.suptitle(
        " · ".join(["Truncation", f"task {first['task']}", *_size(curves)]), fontsize=11
    )
    figure.supxlabel(_XLABEL, fontsize=9)
    figure.supylabel(f"held-out {first['measure']}", fontsize=9)
    return figure, {(model, columns[0]): axis for model, axis in zip(models, axes, strict=True)}


def _draw_baselines(axis: Axes, curves: Sequence[Curve], baseline: pd.DataFrame) -> None:
    """Draw lines for what simple models reach on the task, by the metric, of the curves."""
    rows = _all(curves)
    same = [baseline[name].isin(rows[name]) for name in ("task", "measure", "n")]
    mine = baseline[same[0] & same[1] & same[2]].drop_duplicates(["label_x", "n", "value"])
    sizes = mine["n"].nunique()
    for row in mine[mine["label_x"].isin(list(_BASELINES))].itertuples():
        name = f"{row.label_x}, n = {row.n:,}" if sizes > 1 else row.label_x
        dashes = _BASELINES[row.label_x]
        axis.axhline(row.value, color="0.35", linestyle=dashes, linewidth=1.2, label=name)


def _all(curves: Sequence[Curve]) -> pd.DataFrame:
    import pandas as pd

    return pd.concat([curve.rows for curve in curves])


def _in(column: str, curves: Sequence[Curve]) -> list[Curve]:
    return [curve for curve in curves if curve.column == column]


def _measure(column: str, curves: Sequence[Curve]) -> str:
    return str(_in(column, curves)[0].rows.iloc[0]["measure"])


def _layers(curves: Sequence[Curve]) -> int:
    layers = _all(curves)["layer_x"]
    return int(layers.max() - layers.min()) + 1


def _size(curves: Sequence[Curve]) -> list[str]:
    """Return the number of held-out rows, if it is the same for all curves."""
    sizes = set(_all(curves)["n"])
    return [f"n = {sizes.pop():,}"] if len(sizes) == 1 else []


def _seeds(rows: pd.DataFrame) -> int:
    return rows.groupby(["label_x", "seed_x"], dropna=False).ngroups


def _counted(name: str, rows: pd.DataFrame) -> str:
    seeds = _seeds(rows)
    return f"{name}, mean of {seeds} seeds" if seeds > 1 else name


def _several_seeds(curves: Sequence[Curve]) -> str:
    seeds = sorted({_seeds(curve.rows) for curve in curves})
    return f"mean of {' or '.join(map(str, seeds))}" if seeds[-1] > 1 else ""
