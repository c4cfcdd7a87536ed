"""Figures of alignment: errors per layer and method, layers within a model, injection.

The figures follow Ren et al. 2023: `plot_boxes` figures 2, 4 and 5, `plot_within` figure 3,
`plot_methods` table 4, `plot_injection` table 5, `plot_complexity` appendix B.2.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import numpy as np

from simlab.figures.style import STYLE, draw_curves, heat_colours, layer_names, short
from simlab.store.results import (
    ALIGNMENT,
    HELDOUT,
    INJECTION,
    METHODS,
    NUCLEAR,
    RANDOM_LABELS,
    RELATIVE,
    TRAIN,
    WITHIN,
    is_alignment,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL = (3.6, 2.9)
_BLUE, _ORANGE, _GREY = "#0072B2", "#D55E00", "0.55"
_ERROR_LABEL = "relative error, held-out rows"


def alignment_figures(frame: pd.DataFrame) -> dict[str, Figure]:
    """Return all alignment figures that `frame` has rows for, by file name without suffix."""
    import matplotlib as mpl

    frame = frame[is_alignment(frame)]
    if frame.empty:
        return {}
    with mpl.rc_context(STYLE):
        figures = _figures(_with_columns(frame))
    return {re.sub(r"[^A-Za-z0-9.]+", "-", name): figure for name, figure in figures.items()}


def _figures(frame: pd.DataFrame) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for (task, kind), rows in frame[frame["work"] != INJECTION].groupby(["task", "kind"]):
        stem = f"{task}-alignment-{kind}"
        errors = rows[rows["measure"] == RELATIVE]
        across = errors[errors["work"] == ALIGNMENT]
        if across["method"].nunique() > 1:
            figures[f"{stem}-methods"] = plot_methods(across)
        for method, some in across[across["rows"] == HELDOUT].groupby("method"):
            figures[f"{stem}-layers-{method}"] = plot_boxes(some)
        within = errors[(errors["work"] == WITHIN) & (errors["rows"] == HELDOUT)]
        for method, some in within.groupby("method"):
            figures[f"{stem}-within-{method}"] = plot_within(some)
        complexity = rows[rows["measure"] == NUCLEAR]
        if len(complexity):
            figures[f"{stem}-complexity"] = plot_complexity(complexity)
    for task, rows in frame[frame["work"] == INJECTION].groupby("task"):
        figures[f"{task}-injection"] = plot_injection(rows)
    return figures


def plot_boxes(rows: pd.DataFrame) -> Figure:
    """Draw the held-out errors of all pairs of models: a box per layer, a panel per study."""
    studies = list(rows.groupby("study", sort=False))
    figure, axes = _panels(len(studies))
    top = float(rows["value"].max()) * 1.05
    for axis, (study, some) in zip(axes, studies, strict=True):
        layers = sorted(some["layer_x"].unique())
        values = [some.loc[some["layer_x"] == layer, "value"].dropna() for layer in layers]
        axis.boxplot(values, positions=range(len(layers)), widths=0.6, medianprops={"color": _BLUE})
        axis.set_xticks(range(len(layers)), layer_names(layers))
        pairs = some[["model_x", "model_y"]].drop_duplicates()
        count = f"{len(pairs)} ordered pair" + ("s" if len(pairs) > 1 else "")
        _finish(axis, f"{study} ({count})", "layer", _ERROR_LABEL)
        if np.isfinite(top):
            axis.set_ylim(0, top)
    return _titled(figure, rows, f"Alignment by {rows.iloc[0]['method']}")


def plot_within(rows: pd.DataFrame) -> Figure:
    """Draw errors of maps from each layer (y axis) to each layer (x axis): a panel per model."""
    models = list(rows.groupby(["study", "model_x"], sort=False))
    figure, axes = _panels(len(models))
    for axis, ((_, model), some) in zip(axes, models, strict=True):
        table = some.pivot(index="layer_x", columns="layer_y", values="value")
        values = table.to_numpy(float)
        image = axis.imshow(values, origin="lower", cmap=heat_colours().reversed(), vmin=0.0)
        axis.set_xticks(range(len(table.columns)), layer_names(table.columns))
        axis.set_yticks(range(len(table.index)), layer_names(table.index))
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
        axis.set_title(str(model), fontweight="bold")
        axis.set_xlabel("to layer")
        axis.set_ylabel("from layer")
        for (row, column), value in np.ndenumerate(values):
            dark = np.isfinite(value) and image.norm(value) > 0.5
            colour = "white" if dark else "black"
            axis.text(column, row, short(value), ha="center", va="center", fontsize=6, color=colour)
        figure.colorbar(image, ax=axis, shrink=0.75, label=_ERROR_LABEL).outline.set_visible(False)
    return _titled(figure, rows, f"Layers within a model, by {rows.iloc[0]['method']}")


def plot_complexity(rows: pd.DataFrame) -> Figure:
    """Draw the nuclear norm of each layer: a line per model."""
    figure, (axis,) = _panels(1)
    # A model may be in two studies.
    draw_curves(axis, rows.drop_duplicates(["model_x", "layer_x"]))
    _finish(axis, "", "layer", "nuclear norm at unit Frobenius norm")
    axis.legend(frameon=False, fontsize=7)
    return _titled(figure, rows, "Complexity of layers")


def plot_methods(rows: pd.DataFrame) -> Figure:
    """Draw training and held-out errors of every method: mean and spread over pairs and layers."""
    studies = list(rows.groupby("study", sort=False))
    figure, axes = _panels(len(studies))
    for axis, (study, some) in zip(axes, studies, strict=True):
        methods = [name for name in METHODS if name in set(some["method"])]
        for offset, (part, colour) in enumerate(((TRAIN, _GREY), (HELDOUT, _BLUE))):
            of_part = some[some["rows"] == part].groupby("method")["value"]
            mean, spread = of_part.mean()[methods], of_part.std()[methods].fillna(0)
            places = np.arange(len(methods)) + 0.38 * (offset - 0.5)
            axis.bar(places, mean, 0.36, yerr=spread, color=colour, capsize=2, label=part)
        axis.set_xticks(range(len(methods)), methods)
        _finish(axis, str(study), "", "relative error")
    axes[0].legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2, frameon=False)
    return _titled(figure, rows, "Alignment by method, mean and standard deviation over layers")


def plot_injection(rows: pd.DataFrame) -> Figure:
    """Draw the metric with injected states for every method: a panel per layer and tokens."""
    panels = list(rows.groupby(["layer_x", "kind"], sort=True))
    figure, axes = _panels(len(panels))
    for axis, ((layer, kind), some) in zip(axes, panels, strict=True):
        methods = [name for name in METHODS if name in set(some["method"])]
        groups = some.groupby("method")["value"]
        mean, spread = groups.mean()[methods], groups.std()[methods]
        errors = {} if spread.isna().all() else {"xerr": spread, "capsize": 2}
        axis.barh(range(len(methods)), mean, color=_BLUE, height=0.7, **errors)
        axis.set_yticks(range(len(methods)), [name.replace("-", " ") for name in methods])
        axis.invert_yaxis()
        if RANDOM_LABELS in methods:
            chance = mean[RANDOM_LABELS]
            axis.axvline(
                chance, color=_ORANGE, linestyle=(0, (5, 3)), linewidth=1.2, label="chance"
            )
            axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), frameon=False, fontsize=7)
        what = "classifier token" if kind == "cls" else "all tokens"
        _finish(axis, f"layer {layer}, {what}", f"held-out {some.iloc[0]['measure']}", "")
    return _titled(figure, rows, "B continuing from A's states")


def _with_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table with columns ``work``, ``study``, ``method`` and ``rows`` added.

    The values come from the columns `comparison` and `options`.
    """
    options = [json.loads(text) if isinstance(text, str) else {} for text in frame["options"]]
    parts = frame["comparison"].str.partition(":")
    return frame.assign(
        work=parts[0],
        study=parts[2].str.strip(),
        method=[found.get("method") for found in options],
        rows=[found.get("rows") for found in options],
    )


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    columns = min(3, count)
    lines = -(-count // columns)
    size = (columns * _PANEL[0], lines * _PANEL[1] + 0.4)
    figure = Figure(figsize=size, layout="constrained")
    axes = list(figure.subplots(lines, columns, squeeze=False).ravel())
    for axis in axes[count:]:
        axis.set_axis_off()
    return figure, axes[:count]


def _finish(axis: Axes, title: str, below: str, side: str) -> None:
    axis.set_title(title)
    axis.set_xlabel(below)
    axis.set_ylabel(side)
    axis.spines[["top", "right"]].set_visible(False)


def _titled(figure: Figure, rows: pd.DataFrame, title: str) -> Figure:
    first = rows.iloc[0]
    undefined = "\ngrey or missing: a constant layer" if rows["value"].isna().any() else ""
    about = f"task {first['task']} · {first['kind']} · n = {first['n']:,}"
    figure.suptitle(f"{title}\n{about}{undefined}", fontsize=10)
    return figure
