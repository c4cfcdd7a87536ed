"""What freezing costs and saves, drawn from the results table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simlab.look import STYLE

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_COLOUR, _POINT = "#0072B2", "0.25"


def plot_freezing(rows: pd.DataFrame) -> Figure:
    """Three panels over the ways of freezing: metric, trained parameters, time of a step.

    Bars are means over seeds, points the seeds.

    Parameters
    ----------
    rows
        Rows of one task whose comparison is `results.FREEZING`.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    freezes = list(dict.fromkeys(rows["model_x"]))
    places = {freeze: place for place, freeze in enumerate(reversed(freezes))}
    measures = list(dict.fromkeys(rows["measure"]))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.0, 0.38 * len(freezes) + 1.2), layout="constrained")
        axes = figure.subplots(1, len(measures), sharey=True)
        for axis, measure in zip(axes, measures, strict=True):
            mine = rows[rows["measure"] == measure]
            means = mine.groupby("model_x", sort=False)["value"].mean()
            at = [places[freeze] for freeze in means.index]
            axis.barh(at, means, color=_COLOUR, alpha=0.75, height=0.7)
            axis.plot(mine["value"], mine["model_x"].map(places), "o", color=_POINT, markersize=3)
            axis.set_title(measure if measure != measures[0] else f"held-out {measure}")
            axis.spines[["top", "right"]].set_visible(False)
            axis.tick_params(axis="y", length=0)
        values = rows.loc[rows["measure"] == measures[0], "value"]
        # The metric varies little: bars from 0 would hide it.
        axes[0].set_xlim(values.min() - 0.05, min(1.0, values.max() + 0.02))
        axes[0].set_yticks(list(places.values()), list(places))
        first = rows.iloc[0]
        figure.suptitle(f"Frozen layers · task {first['task']} · n = {first['n']:,}", fontsize=11)
    return figure
