"""The metric with injected states, for every kind of map (Ren et al. 2023, table 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simlab.figures.alignment_panels import BLUE, ORANGE, finish, panels, titled
from simlab.store.results import RANDOM_LABELS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def plot_injection(rows: pd.DataFrame) -> Figure:
    """Draw the metric with injected states for every method: a panel per layer and protocol.

    A bar is the mean over the pairs of models, and its line the standard deviation.
    """
    panel = ["layer_x", "kind", "protocol"]
    # Results of two trainings both have the methods that are not trained.
    rows = rows.drop_duplicates([*panel, "method", "model_x", "model_y"])
    groups = list(rows.groupby(panel, sort=True))
    figure, axes = panels(len(groups))
    for axis, ((layer, kind, protocol), some) in zip(axes, groups, strict=True):
        methods = list(some.sort_values("place", kind="stable")["method"].unique())
        values = some.groupby("method")["value"]
        mean, spread = values.mean()[methods], values.std()[methods]
        errors = {} if spread.isna().all() else {"xerr": spread, "capsize": 2}
        axis.barh(range(len(methods)), mean, color=BLUE, height=0.7, **errors)
        axis.set_yticks(range(len(methods)), [name.replace("-", " ") for name in methods])
        axis.invert_yaxis()
        if RANDOM_LABELS in methods:
            chance = mean[RANDOM_LABELS]
            axis.axvline(chance, color=ORANGE, linestyle=(0, (5, 3)), linewidth=1.2, label="chance")
            axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), frameon=False, fontsize=7)
        what = "classifier token" if kind == "cls" else "all tokens"
        how = f"\n{protocol}" if protocol else ""
        finish(axis, f"layer {layer}, {what}{how}", f"held-out {some.iloc[0]['measure']}", "")
    pairs = len(rows[["model_x", "model_y"]].drop_duplicates())
    over = f"; mean and standard deviation over {pairs} pairs" if pairs > 1 else ""
    return titled(figure, rows, f"B continuing from A's states{over}")
