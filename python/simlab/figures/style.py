"""Colours, curves, ticks and labels that all figures share."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from simlab.figures.names import in_order, models_of, name_models

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
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
_MARKERS = ("o", "s", "^", "D", "v", "P")
_MOST_BELOW, _MOST_BESIDE = 6, 16  # lines in a legend below a panel, in a column beside it
_LONG_NAME = 24  # letters: a legend of longer names has one column
_LEGEND_LINE = 15.0  # points
_XLABEL_POINTS = 32.0  # from a panel to its legend: the numbers and the label of its layers
POINTS = 72  # of an inch
_EXPONENT_FROM = 1e4  # a cell has no room for a larger number in full
DASHES = ("-", "--", ":", "-.")


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
    models = models_of(rows, together=together)
    lines = dict(zip(name_models(models), (model.rows for model in models), strict=True))
    for index, name in enumerate(in_order(lines)):
        draw_mean(axis, lines[name], look(index), name)
    finish_curves(axis, rows)


BAND = "95 % interval"


def draw_mean(axis: Axes, rows: pd.DataFrame, style: Look, label: str, size: float = 5.0) -> None:
    """Draw a model as a bold line, the mean over its seeds; seeds are thin lines.

    A band is the interval of a value, where the table has one. Several seeds have none: their bands
    would cover each other, and their lines show a spread that intervals over examples do not have.
    """
    import pandas as pd

    seeds = [part for _, part in rows.groupby(["label_x", "seed_x"], dropna=False, sort=False)]
    curves = [part.set_index("layer_x").sort_index() for part in seeds]
    for curve in curves:
        layers = curve.index.astype(int)
        if len(seeds) > 1:
            axis.plot(layers, curve["value"], color=style.color, linewidth=0.7, alpha=0.5)
        elif "low" in curve and curve["low"].notna().any():
            band = axis.fill_between(layers, curve["low"], curve["high"], color=style.color)
            band.set(alpha=0.18, linewidth=0)
            if BAND not in axis.get_legend_handles_labels()[1]:  # one entry stands for all bands
                band.set_label(BAND)
    table = pd.concat([curve["value"] for curve in curves], axis=1).sort_index()
    axis.plot(
        table.index.astype(int),
        table.mean(axis=1, skipna=False),
        **asdict(style),
        markersize=size,
        linewidth=1.6 if size > 4 else 1.2,
        label=label,
        clip_on=False,
        zorder=3,
    )


def finish_curves(axis: Axes, rows: pd.DataFrame, points: float = 20.0) -> None:
    """Label the layers below curves, or some of many, where a layer is `points` wide."""
    layers = range(int(rows["layer_x"].min()), int(rows["layer_x"].max()) + 1)
    shown = [layers[place] for place in tick_places(len(layers), math.ceil(12.0 / points))]
    axis.set_xticks(shown, layer_names(shown))
    axis.grid(axis="y", color="0.9", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def add_legend(axis: Axes) -> None:
    """Name the lines of a panel: below it, or to its right if there are many."""
    names = axis.get_legend_handles_labels()[1]
    place: dict[str, Any]
    if len(names) > _MOST_BELOW:
        columns = math.ceil(len(names) / _MOST_BESIDE)
        place = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0), "fontsize": 7.5}
    else:
        columns = 1 if max(map(len, names), default=0) > _LONG_NAME else 2
        figure = cast("Figure", axis.figure)
        height = axis.get_position().height * figure.get_figheight() * POINTS
        if len(figure.axes) == 1:  # the panel keeps its height
            lines = math.ceil(len(names) / columns)
            figure.set_figheight(figure.get_figheight() + lines * _LEGEND_LINE / POINTS)
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, -_XLABEL_POINTS / height)}
    axis.legend(frameon=False, ncols=columns, **place)


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
