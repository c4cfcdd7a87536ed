"""Colours, curves, ticks and labels that all figures share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.similarity.catalogue import MEASURES

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

PNG_DPI = 200
STYLE = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.linewidth": 0.8,
    "savefig.bbox": "tight",
    "savefig.pad_inches": 0.05,
    "pdf.fonttype": 42,  # text stays text
    "svg.fonttype": "none",
}
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito
_MARKERS = ("o", "s", "^", "D", "v", "P")


def heat_colours() -> Colormap:
    """Return the colour map of every heatmap; undefined values are grey."""
    import matplotlib as mpl

    return mpl.colormaps["viridis"].with_extremes(bad="0.90")


def draw_curves(axis: Axes, rows: pd.DataFrame) -> None:
    """Draw a line for each model: value against layer."""
    for index, (model, curve) in enumerate(rows.groupby("model_x", sort=False)):
        curve = curve.sort_values("layer_x")
        axis.plot(
            curve["layer_x"].astype(int),
            curve["value"],
            color=_COLOURS[index % len(_COLOURS)],
            marker=_MARKERS[index % len(_MARKERS)],
            markersize=5,
            linewidth=1.6,
            label=model,
            clip_on=False,
            zorder=3,
        )
    _finish_curves(axis, rows)


def draw_modes(axis: Axes, rows: pd.DataFrame, names: Mapping[str, str]) -> None:
    """Draw a bold line for each comparison, the mean of its models; single models are thin lines.

    Parameters
    ----------
    names
        Name of each comparison in the legend, in the order of drawing.
    """
    for index, (comparison, name) in enumerate(names.items()):
        curves = rows[rows["comparison"] == comparison]
        models = curves["model_x"].nunique()
        if curves.empty:
            continue
        table = curves.pivot(index="layer_x", columns="model_x", values="value").sort_index()
        layers, colour = table.index.astype(int), _COLOURS[index]
        if models > 1:
            axis.plot(layers, table, color=colour, linewidth=0.7, alpha=0.5)
        axis.plot(
            layers,
            table.mean(axis=1),
            color=colour,
            marker=_MARKERS[index],
            markersize=5,
            linewidth=1.6,
            label=f"{name}, mean of {models}" if models > 1 else name,
            clip_on=False,
            zorder=3,
        )
    _finish_curves(axis, rows)


def _finish_curves(axis: Axes, rows: pd.DataFrame) -> None:
    layers = range(int(rows["layer_x"].min()), int(rows["layer_x"].max()) + 1)
    axis.set_xticks(layers, layer_names(layers))
    axis.grid(axis="y", color="0.9", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def layer_names(layers: Sequence[int]) -> list[str]:
    """Return the numbers of layers as tick labels; layer 0, the embedding output, is ``emb``."""
    return ["emb" if layer == 0 else str(layer) for layer in layers]


def short(value: float) -> str:
    """Return `value` with two decimals and no leading zero, as in Phang et al. 2021: .93."""
    if np.isnan(value):
        return ""
    return f"{value:.2f}".replace("0.", ".", 1) if abs(value) < 0.995 else f"{value:.1f}"


def lowest_colour(measure: str, values: np.ndarray) -> float:
    """Return the start of the colour scale: 0, or the lowest value if it is below 0."""
    low = float(np.nanmin(values, initial=0.0))
    return max(MEASURES[measure].lowest, low) if measure in MEASURES else low


def unusual_options(measure: str, options: str | None) -> dict[str, Any]:
    """Return the stored `options` (JSON) that differ from the defaults of the measure."""
    defaults = MEASURES[measure].options if measure in MEASURES else {}
    stored = json.loads(options) if isinstance(options, str) else {}
    return {name: value for name, value in stored.items() if value != defaults.get(name)}


def measure_name(rows: pd.DataFrame) -> str:
    """Return the name of the measure of `rows` with its kernel, estimator and unusual options."""
    first = rows.iloc[0]
    name = str(first["measure"])
    kernel = {"linear": "linear ", "rbf": "RBF "}.get(first["kernel"], "")
    notes = [first["estimator"]] if isinstance(first["estimator"], str) else []
    notes += [f"{key} {value}" for key, value in unusual_options(name, first["options"]).items()]
    label = MEASURES[name].label if name in MEASURES else name
    return f"{kernel}{label}" + (f" ({', '.join(notes)})" if notes else "")
