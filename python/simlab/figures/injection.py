"""The metric with injected states, for every kind of map (Ren et al. 2023, table 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simlab.figures.alignment_panels import BLUE, ORANGE, finish, panels, titled
from simlab.figures.names import without_seed
from simlab.store.results import RANDOM_LABELS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


_ARROW = " → "  # between the names of two models
_MODELS = ["label_x", "seed_x", "label_y", "seed_y"]


def plot_injection(rows: pd.DataFrame) -> Figure:
    """Draw the metric with injected states for every method: a panel per layer and protocol.

    A bar is the mean over the pairs of seeds of the same two models, and its line the standard
    deviation. Pairs of other models have panels of their own.
    """
    rows = _with_pairs(rows)
    panel = ["layer_x", "kind", "protocol", "pair"]
    # Results of two trainings both have the methods that are not trained.
    rows = rows.drop_duplicates([*panel, "method", *_MODELS])
    groups = list(rows.groupby(panel, sort=True))
    figure, axes = panels(len(groups))
    several = rows["pair"].nunique() > 1
    for axis, ((layer, kind, protocol, pair), part) in zip(axes, groups, strict=True):
        methods = list(part.sort_values("place", kind="stable")["method"].unique())
        values = part.groupby("method")["value"]
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
        title = f"layer {layer}, {what}{how}"
        title = f"{_named(part, pair)}\n{title}" if several else title
        finish(axis, title, f"held-out {part.iloc[0]['measure']}", "")
    pairs = rows[["pair", *_MODELS]].drop_duplicates().groupby("pair").size()
    fewest, most = pairs.min(), pairs.max()
    count = f"{most}" if fewest == most else f"{fewest} to {most}"
    over = f"; mean and standard deviation over {count} pairs" if most > 1 else ""
    names = "" if several else f"\n{_named(rows, rows['pair'].iloc[0])}"
    return titled(figure, rows, f"B continuing from A's states{over}{names}")


def _named(rows: pd.DataFrame, pair: str) -> str:
    """Return the names of A and B: of two models, or of all pairs of seeds."""
    models = rows[_MODELS].drop_duplicates()
    a, b = pair.split(_ARROW)
    if len(models) == 1:
        a, seed_a, b, seed_b = models.iloc[0]
        if a == b:
            a, b = f"{a} (seed {seed_a})", f"{b} (seed {seed_b})"
    any_seed = " (*: any seed)" if "*" in f"{a}{b}" else ""
    return f"A: {a}, B: {b}{any_seed}"


def _with_pairs(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with column ``pair``: the names of both models, without their seeds."""
    stems = {}
    for side in ("x", "y"):
        models = rows[[f"{name}_{side}" for name in ("label", "seed", "base")]].astype(object)
        facts = models.where(models.notna(), None).itertuples(index=False, name=None)
        stems[side] = [without_seed(*model) for model in facts]
    pairs = zip(stems["x"], stems["y"], strict=True)
    return rows.assign(pair=[f"{x}{_ARROW}{y}" for x, y in pairs])
