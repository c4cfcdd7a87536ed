"""Colours, curves, ticks and labels that all figures share."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.figures.names import in_order, with_models

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.typing import RcKeyType

PNG_DPI = 200
STYLE: dict[RcKeyType, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.linewidth": 0.8,
    "savefig.bbox": "tight",
    "savefig.pad_inches": 0.05,
    "pdf.fonttype": 42,  # text stays text
    "svg.fonttype": "none",
}
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito
BLUE, ORANGE = _COLOURS[:2]
_MARKERS = ("o", "s", "^", "D", "v", "P")
_EXPONENT_FROM = 1e4  # a cell has no room for a larger number in full
DASHES = ("-", "--", ":", "-.")
BAND = "95 % interval"


def heat_colours() -> Colormap:
    """Return the colour map of every heatmap; undefined values are grey."""
    import matplotlib as mpl

    return mpl.colormaps["viridis"].with_extremes(bad="0.90")


@dataclass(frozen=True)
class Look:
    """Colour, marker and dashes of a line."""

    color: str
    marker: str
    linestyle: str


def look(index: int) -> Look:
    """Return the look of a line; the first 36 lines differ in colour or marker."""
    row, column = divmod(index, len(_COLOURS))
    marker = _MARKERS[(column + row) % len(_MARKERS)]
    return Look(_COLOURS[column], marker, DASHES[row // len(_MARKERS) % len(DASHES)])


def draw_curves(axis: Axes, rows: pd.DataFrame, together: bool = False) -> None:
    """Draw a line for each model and seed, or for the mean over seeds: value against layer."""
    rows = with_models(rows, together=together)
    for index, name in enumerate(in_order(rows["model"])):
        draw_mean(axis, rows[rows["model"] == name], look(index), name)
    finish_curves(axis, rows)


def draw_mean(axis: Axes, rows: pd.DataFrame, style: Look, label: str, size: float = 5.0) -> None:
    """Draw a model as a bold line, the mean over its seeds; seeds are thin lines.

    A band is the interval of a value, where the table has one. Several seeds have none: their bands
    would cover each other, and their lines show a spread that intervals over examples do not have.
    """
    import pandas as pd

    seeds = [part for _, part in rows.groupby(["label_x", "seed_x"], dropna=False, sort=False)]
    curves = [part.set_index(part["layer_x"].astype(int))["value"] for part in seeds]
    table = pd.concat(curves, axis=1).sort_index()
    if len(seeds) > 1:
        axis.plot(table.index, table, color=style.color, linewidth=0.7, alpha=0.5)
    elif rows["low"].notna().any():
        known = rows.sort_values("layer_x")
        bounds = (known[name].astype(float) for name in ("layer_x", "low", "high"))
        band = axis.fill_between(*bounds, color=style.color, alpha=0.18, linewidth=0)
        if BAND not in axis.get_legend_handles_labels()[1]:  # one entry stands for all bands
            band.set_label(BAND)
    # A layer that a seed lacks has no mean.
    mean = table.mean(axis=1, skipna=False)
    width = 1.6 if size > 4 else 1.2
    look_of_line: dict[str, Any] = {**asdict(style), "markersize": size, "linewidth": width}
    axis.plot(mean.index, mean, label=label, clip_on=False, zorder=3, **look_of_line)


def finish_curves(axis: Axes, rows: pd.DataFrame, points: float = 20.0) -> None:
    """Label the layers below curves, or some of many, where a layer is `points` wide."""
    layers = range(int(rows["layer_x"].min()), int(rows["layer_x"].max()) + 1)
    shown = [layers[place] for place in tick_places(len(layers), math.ceil(12.0 / points))]
    axis.set_xticks(shown, layer_names(shown))
    axis.grid(axis="y", color="0.9", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def tick_places(count: int, every: int) -> list[int]:
    """Return the places of labels that keep a distance: every so many from the first, and the last.

    The label before the last one is left out where it would be too near, and the last one where the
    first would be.
    """
    places = list(range(0, count, max(1, every)))
    return places if len(places) < 2 else [*places[:-1], count - 1]


def layer_names(layers: Sequence[int]) -> list[str]:
    """Return the numbers of layers as tick labels; layer 0, the embedding output, is ``emb``."""
    return ["emb" if layer == 0 else str(layer) for layer in layers]


def short(value: float) -> str:
    """Return `value` with two decimals and no leading zero, as in Phang et al. 2021: .93.

    The page of a report writes cells by the same rule (``brief`` in ``report/page/csv.js``).

    >>> short(0.934), short(-0.5), short(0.9958), short(-0.001)
    ('.93', '-.50', '1.00', '.00')
    """
    if np.isnan(value):
        return ""
    if abs(value) >= _EXPONENT_FROM:
        return re.sub(r"e([+-])0*", r"e\1", f"{value:.0e}")
    text = f"{round(float(value), 2) + 0.0:.2f}"  # + 0.0: no minus before a zero
    return re.sub(r"^(-?)0\.", r"\1.", text)
