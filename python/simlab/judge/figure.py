"""The figure of the benchmark: every measure in every test, with intervals and chance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from simlab.figures.style import PNG_DPI, STYLE, look
from simlab.judge.ranks import mean_ranks
from simlab.judge.scores import RANKED
from simlab.judge.tables import low_is_good
from simlab.store.files import atomic_file

if TYPE_CHECKING:
    import pandas as pd

_LINE, _PANEL = 0.17, 1.25  # inches of a measure, and of a test
_OTHERS = "0.6"


def draw(frame: pd.DataFrame, path: Path) -> None:
    """Draw the score of each measure that ranks it in each test; measures asked for in colour."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    ranks = mean_ranks(frame)
    places = {name: place for place, name in enumerate(reversed(ranks.index))}
    asked = set(frame.loc[frame["asked"], "measure"])
    with mpl.rc_context(STYLE):
        size = (2.6 + _PANEL * len(RANKED), 1.1 + _LINE * len(places))
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(1, len(RANKED), sharey=True, squeeze=False)[0]
        for axis, (test, score) in zip(axes, RANKED.items(), strict=True):
            rows = frame[frame["ranked"] & (frame["test"] == test)]
            for one in rows.itertuples():
                own = one.measure in asked
                colour = look(1).color if own else _OTHERS
                place = places[one.measure]
                axis.plot([one.low, one.high], [place] * 2, color=colour, linewidth=1.0)
                axis.plot(one.value, place, "o", color=colour, markersize=4 if own else 3)
            axis.axvline(rows["chance"].iloc[0], color="0.3", linestyle=":", linewidth=0.8)
            axis.set_title(test, fontsize=8)
            axis.set_xlabel(f"{score}{low_is_good(score)}".replace(", ", "\n"), fontsize=8)
            axis.tick_params(labelsize=7)
            axis.grid(axis="x", color="0.92", linewidth=0.6)
            axis.set_axisbelow(True)
            axis.spines[["top", "right"]].set_visible(False)
        axes[0].set_yticks(list(places.values()), list(places), fontsize=7)
        axes[0].set_ylim(-0.6, len(places) - 0.4)
        for tick, name in zip(axes[0].get_yticklabels(), places, strict=True):
            if name in asked:
                tick.set(color=look(1).color, fontweight="bold")
        with atomic_file(path) as partial:
            figure.savefig(partial, dpi=PNG_DPI)
