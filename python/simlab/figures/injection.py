"""The metric with injected states, for every kind of map (Ren et al. 2023, table 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simlab.figures.alignment_panels import BLUE, ORANGE, finish, panels, titled
from simlab.store.results import METHODS, RANDOM_LABELS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def plot_injection(rows: pd.DataFrame) -> Figure:
    """Draw the metric with injected states for every method: a panel per layer and tokens."""
    groups = list(rows.groupby(["layer_x", "kind"], sort=True))
    figure, axes = panels(len(groups))
    for axis, ((layer, kind), some) in zip(axes, groups, strict=True):
        methods = [name for name in METHODS if name in set(some["method"])]
        groups = some.groupby("method")["value"]
        mean, spread = groups.mean()[methods], groups.std()[methods]
        errors = {} if spread.isna().all() else {"xerr": spread, "capsize": 2}
        axis.barh(range(len(methods)), mean, color=BLUE, height=0.7, **errors)
        axis.set_yticks(range(len(methods)), [name.replace("-", " ") for name in methods])
        axis.invert_yaxis()
        if RANDOM_LABELS in methods:
            chance = mean[RANDOM_LABELS]
            axis.axvline(chance, color=ORANGE, linestyle=(0, (5, 3)), linewidth=1.2, label="chance")
            axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), frameon=False, fontsize=7)
        what = "classifier token" if kind == "cls" else "all tokens"
        finish(axis, f"layer {layer}, {what}", f"held-out {some.iloc[0]['measure']}", "")
    return titled(figure, rows, "B continuing from A's states")
