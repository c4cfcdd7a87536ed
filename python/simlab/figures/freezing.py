"""Draw the metric, trained parameters and time of a step with frozen layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from simlab.figures.style import STYLE
from simlab.store.results import SECONDS, TRAINED

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOUR, _POINT = "#0072B2", "0.25"


def plot_freezing(rows: pd.DataFrame) -> Figure:
    """Draw three panels for each task: metric, trained parameters and time of a step.

    Points are seeds; lines and bars are means over seeds of one way of freezing one model.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    rows = rows.assign(way=rows["label_x"].astype(object) + _models(rows) + _words(rows["source"]))
    tasks = {str(task): part for task, part in rows.groupby("task", sort=False)}
    most = max(part["measure"].nunique() for part in tasks.values())
    heights = [0.38 * part["way"].nunique() + 0.8 for part in tasks.values()]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.0 * most, sum(heights) + 0.4), layout="constrained")
        places = {"height_ratios": heights}
        axes = figure.subplots(len(tasks), most, squeeze=False, sharey="row", gridspec_kw=places)
        for line, (task, part) in zip(axes, tasks.items(), strict=True):
            _draw_task(line, task if len(tasks) > 1 else "", part)
        parts = ["Frozen layers"]
        if len(tasks) == 1:
            parts += [f"task {rows.iloc[0]['task']}", f"n = {rows.iloc[0]['n']:,}"]
        figure.suptitle(" · ".join(parts), fontsize=11)
    return figure


def _models(rows: pd.DataFrame) -> pd.Series:
    """Return the model of each row in words, where a task has several models."""
    bases = rows["base_x"].astype(object).fillna("")
    several = bases.groupby(rows["task"]).transform("nunique") > 1
    return _words(bases.where(several, ""))


def _words(names: pd.Series) -> pd.Series:
    return (" (" + names + ")").where(names != "", "")


def _draw_task(axes: Sequence[Axes], task: str, rows: pd.DataFrame) -> None:
    """Draw a panel for every measure; the task is named if there are others in the figure."""
    from matplotlib.ticker import EngFormatter

    ways = list(dict.fromkeys(rows["way"]))
    places = {way: place for place, way in enumerate(reversed(ways))}
    of_cost = (TRAINED, SECONDS)
    measures = sorted(dict.fromkeys(rows["measure"]), key=lambda name: name in of_cost)
    for axis, measure in zip(axes, measures, strict=False):
        _draw_measure(axis, rows[rows["measure"] == measure], places, measure not in of_cost)
        if measure == TRAINED:
            axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    for axis in axes[len(measures) :]:
        axis.set_axis_off()
    axes[0].set_yticks(list(places.values()), list(places))
    if task:
        axes[0].set_ylabel(f"{task}\nn = {rows.iloc[0]['n']:,}", fontweight="bold")


def _draw_measure(
    axis: Axes, rows: pd.DataFrame, places: Mapping[str, int], is_metric: bool
) -> None:
    means = rows.groupby("way", sort=False)["value"].mean()
    at = [places[freeze] for freeze in means.index]
    if is_metric:  # bars from 0 would hide the small differences of a metric
        low, high = ([place + half for place in at] for half in (-0.35, 0.35))
        axis.vlines(means, low, high, color=_COLOUR, linewidth=2.5)
    else:
        axis.barh(at, means, color=_COLOUR, alpha=0.75, height=0.7)
    axis.plot(rows["value"], rows["way"].map(places), "o", color=_POINT, markersize=3)
    name = rows.iloc[0]["measure"]
    axis.set_title(f"held-out {name}" if is_metric else name)
    axis.locator_params(axis="x", nbins=5)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(axis="y", length=0)
