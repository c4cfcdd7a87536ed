"""Draw the metric, trained parameters and time of a step with frozen layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from simlab.figures.style import STYLE
from simlab.store.results import TRAINED

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOUR, _POINT = "#0072B2", "0.25"


def plot_freezing(rows: pd.DataFrame) -> Figure:
    """Draw three panels: metric, trained parameters and time of a step for each way of freezing.

    Points are seeds; lines and bars are means over seeds.

    Parameters
    ----------
    rows
        Rows of one task whose comparison is `results.FREEZING`.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    freezes = list(dict.fromkeys(rows["model_x"]))
    places = {freeze: place for place, freeze in enumerate(reversed(freezes))}
    measures = list(dict.fromkeys(rows["measure"]))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.0, 0.38 * len(freezes) + 1.2), layout="constrained")
        axes = figure.subplots(1, len(measures), sharey=True)
        for axis, measure in zip(axes, measures, strict=True):
            _draw_measure(axis, rows[rows["measure"] == measure], places, measure == measures[0])
        axes[measures.index(TRAINED)].xaxis.set_major_formatter(EngFormatter(sep=""))
        axes[0].set_yticks(list(places.values()), list(places))
        first = rows.iloc[0]
        figure.suptitle(f"Frozen layers · task {first['task']} · n = {first['n']:,}", fontsize=11)
    return figure


def _draw_measure(
    axis: Axes, rows: pd.DataFrame, places: Mapping[str, int], is_metric: bool
) -> None:
    means = rows.groupby("model_x", sort=False)["value"].mean()
    at = [places[freeze] for freeze in means.index]
    if is_metric:  # bars from 0 would hide the small differences of a metric
        low, high = ([place + half for place in at] for half in (-0.35, 0.35))
        axis.vlines(means, low, high, color=_COLOUR, linewidth=2.5)
    else:
        axis.barh(at, means, color=_COLOUR, alpha=0.75, height=0.7)
    axis.plot(rows["value"], rows["model_x"].map(places), "o", color=_POINT, markersize=3)
    name = rows.iloc[0]["measure"]
    axis.set_title(f"held-out {name}" if is_metric else name)
    axis.locator_params(axis="x", nbins=5)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(axis="y", length=0)
