"""Draw the metric with layer l fed straight to the head (Phang et al. 2021, figure 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from simlab.figures.style import STYLE, draw_curves, draw_modes
from simlab.store.results import MAJORITY, TRUNCATIONS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_truncation(rows: pd.DataFrame, baseline: pd.DataFrame) -> Figure:
    """Draw the held-out metric against the layer fed to the head, with the majority-class line.

    There is a line for each model, or for each mode if `rows` have several modes.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(4.8, 3.3), layout="constrained")
        axis = figure.subplots()
        modes = [mode for mode, name in TRUNCATIONS.items() if name in set(rows["comparison"])]
        if len(modes) == 1:
            draw_curves(axis, rows)
        else:
            draw_modes(axis, rows, {TRUNCATIONS[mode]: mode for mode in modes})
        for value in baseline.loc[baseline["model_x"] == MAJORITY, "value"][:1]:
            axis.axhline(value, color="0.35", linestyle=(0, (5, 3)), linewidth=1.2, label=MAJORITY)
        _finish_truncation(axis, rows, modes)
    return figure


def _finish_truncation(axis: Axes, rows: pd.DataFrame, modes: Sequence[str]) -> None:
    first = rows.iloc[0]
    what = f"{modes[0].capitalize()} truncation" if len(modes) == 1 else "Truncation"
    axis.set_xlabel("layer whose classifier vector goes to the task head")
    axis.set_ylabel(f"held-out {first['measure']}")
    axis.set_title(f"{what} · task {first['task']} · n = {first['n']:,}")
    axis.legend(frameon=False, loc="upper left" if len(modes) == 1 else "best")
