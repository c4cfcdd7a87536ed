"""Draw the metric, trained parameters and time of a step with frozen layers."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from simlab.figures.style import BLUE, finish, styled
from simlab.results.results import SECONDS, TRAINED


@styled
def plot_freezing(rows: pd.DataFrame) -> Figure:
    """Draw three panels for each task: metric, trained parameters and time of a step.

    Points are seeds; lines and bars are means over seeds of one way of freezing one model.
    """
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
