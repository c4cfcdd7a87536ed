"""What figures share: colours, curves, cells of grids with blocks, ticks, labels and panels."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any, cast

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Rectangle
from matplotlib.typing import RcKeyType

from simlab.figures.table import in_order, with_models
from simlab.representations.kinds import CLS
from simlab.results.results import BLOCK_SCORE, BLOCKS, GRID_COLUMNS

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
styled = mpl.rc_context(STYLE)  # as a decorator: whatever the user has set
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito
BLUE, ORANGE = _COLOURS[:2]
_MARKERS = ("o", "s", "^", "D", "v", "P")
_EXPONENT_FROM = 1e4  # a cell has no room for a larger number in full
DASHES = ("-", "--", ":", "-.")
BAND = "95 % interval"
LETTER_INCHES, _TITLE_LETTER_INCHES = 0.075, 0.09  # of a name, of the title
POINTS = 72  # of an inch
SMALL_PANEL = 1.6  # inches; of a heatmap in a figure of models and tasks
_LEGEND_LINE = 0.21  # inches
_MOST_BELOW, _MOST_BESIDE = 6, 16  # lines in a legend below the panels, in a column beside them
_LONG_NAME = 24  # letters: a legend of longer names has one column


def heat_colours() -> Colormap:
    """Return the colour map of every heatmap; undefined values are grey."""
    return mpl.colormaps["viridis"].with_extremes(bad="0.90")


def look(index: int) -> dict[str, str]:
    """Return colour, marker and dashes of a line; the first 36 differ in colour or marker."""
    row, column = divmod(index, len(_COLOURS))
    marker = _MARKERS[(column + row) % len(_MARKERS)]
    dashes = DASHES[row // len(_MARKERS) % len(DASHES)]
    return {"color": _COLOURS[column], "marker": marker, "linestyle": dashes}


def draw_curves(axis: Axes, rows: pd.DataFrame, together: bool = False) -> None:
    """Draw a line for each model and seed, or for the mean over seeds: value against layer."""
    rows = with_models(rows, together=together)
    for index, name in enumerate(in_order(rows["model"])):
        draw_mean(axis, rows[rows["model"] == name], look(index), name)
    finish_curves(axis, rows)


def draw_mean(
    axis: Axes, rows: pd.DataFrame, style: dict[str, str], label: str, size: float = 5.0
) -> None:
    """Draw a model as a bold line, the mean over its seeds; seeds are thin lines.

    A band is the interval of a value, where the table has one. Several seeds have none: their bands
    would cover each other, and their lines show a spread that intervals over examples do not have.
    """
    seeds = [part for _, part in rows.groupby(["label_x", "seed_x"], dropna=False, sort=False)]
    curves = [part.set_index(part["layer_x"].astype(int))["value"] for part in seeds]
    table = pd.concat(curves, axis=1).sort_index()
    if len(seeds) > 1:
        axis.plot(table.index, table, color=style["color"], linewidth=0.7, alpha=0.5)
    elif rows["low"].notna().any():
        ordered = rows.sort_values("layer_x")
        bounds = (ordered[name].astype(float) for name in ("layer_x", "low", "high"))
        band = axis.fill_between(*bounds, color=style["color"], alpha=0.18, linewidth=0)
        if BAND not in axis.get_legend_handles_labels()[1]:  # one entry stands for all bands
            band.set_label(BAND)
    # A layer that a seed lacks has no mean.
    mean = table.mean(axis=1, skipna=False)
    line: dict[str, Any] = {**style, "markersize": size, "linewidth": 1.6 if size > 4 else 1.2}
    axis.plot(mean.index, mean, label=label, clip_on=False, zorder=3, **line)


def finish_curves(axis: Axes, rows: pd.DataFrame, points: float = 20.0) -> None:
    """Label the layers below curves, or some of many, where a layer is `points` wide."""
    layers = range(int(rows["layer_x"].min()), int(rows["layer_x"].max()) + 1)
    shown = [layers[place] for place in tick_places(len(layers), math.ceil(12.0 / points))]
    axis.set_xticks(shown, layer_names(shown))
    only_lines(axis)


def only_lines(axis: Axes) -> None:
    """Draw thin lines behind curves at the ticks of the values, and no frame above and right."""
    axis.grid(axis="y", color="0.9", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def tick_places(count: int, every: int) -> list[int]:
    """Return the places of labels at a distance: every so many from the first, and the last."""
    places = list(range(0, count, max(1, every)))
    # The last place takes that of the label before it, which may be too near.
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


def flow(
    count: int, size: tuple[float, float], most: int, **subplots: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure with `count` panels in lines of at most `most`, and their axes."""
    columns = max(1, min(most, count))
    lines = max(1, -(-count // columns))
    # The title takes half an inch, and a colour bar or numbers beside the panels as much.
    inches = columns * size[0] + 0.6, lines * size[1] + 0.5
    # From a label to the title below.
    figure = Figure(figsize=inches, layout=ConstrainedLayoutEngine(h_pad=0.06))
    axes = list(figure.subplots(lines, columns, squeeze=False, **subplots).ravel())
    for axis in axes[count:]:
        axis.set_axis_off()
    return figure, axes[:count]


def matrix(
    lines: Sequence[str], columns: Sequence[str], size: tuple[float, float], **subplots: Any
) -> tuple[Figure, dict[tuple[str, str], Axes]]:
    """Return a figure with an empty panel for every line and column, and the axes of the panels."""
    inches = len(columns) * size[0] + 1.2, len(lines) * size[1] + 1.0
    figure = Figure(figsize=inches, layout="constrained")
    axes = figure.subplots(len(lines), len(columns), squeeze=False, **subplots)
    for axis, name in zip(axes[0], columns, strict=True):
        axis.set_title(name, fontweight="bold", fontsize=9)
    room = max(8, int(size[1] / LETTER_INCHES))
    for axis, name in zip(axes[:, 0], lines, strict=True):
        axis.set_ylabel(wrapped(name, room), fontweight="bold", fontsize=8.5)
    return figure, dict(zip(product(lines, columns), axes.ravel(), strict=True))


def row_count(rows: pd.DataFrame) -> list[str]:
    """Return the number of held-out rows in words, if it is the same in all rows of a table."""
    return [f"n = {rows['n'].iloc[0]:,}"] if rows["n"].nunique() == 1 else []


def task_names(columns: Sequence[pd.DataFrame]) -> list[str]:
    """Return the name of each column of a matrix: its task, its metric and its number of rows."""
    return [
        f"{rows['task'].iloc[0]}\n{', '.join([rows['measure'].iloc[0], *row_count(rows)])}"
        for rows in columns
    ]


def leave_empty(axis: Axes) -> None:
    """Hide a panel without rows; its title and the name of its line stay."""
    axis.set_frame_on(False)
    axis.tick_params(left=False, bottom=False, labelleft=False, labelbottom=False)


def wrapped(text: str, letters: int) -> str:
    """Return a text in lines of at most `letters`, with the line breaks that it has."""
    return "\n".join(textwrap.fill(line, letters) for line in text.split("\n"))


def finish(
    figure: Figure, title: str, note: str = "", named: Iterable[Axes] = (), size: float = 7.5
) -> None:
    """Write the title above the panels, and below them a note and the names of lines."""
    figure.suptitle(wrapped(title, int(figure.get_figwidth() / _TITLE_LETTER_INCHES)), fontsize=11)
    height = _add_legend(figure, named)
    if note:
        note = wrapped(note, int(POINTS * figure.get_figwidth() / (0.58 * size)))
        # Empty lines keep the note above the legend, for which matplotlib has the same place.
        note += "\n" * math.ceil(height * POINTS / (1.2 * size))
        figure.supxlabel(note, fontsize=size, color="0.35")


def colour_bar(
    figure: Figure, image: AxesImage, axes: Axes | Iterable[Axes], label: str, **place: Any
) -> None:
    """Draw the colour scale of some panels beside them."""
    among = axes if not isinstance(axes, Iterable) else list(axes)
    options: dict[str, Any] = {"shrink": 0.75, "aspect": 30, "pad": 0.02, **place}
    bar = figure.colorbar(image, ax=among, **options)
    bar.set_label(label, fontsize=8.5)
    bar.ax.tick_params(labelsize=7.5, length=2)
    bar.outline.set_visible(False)


def _add_legend(figure: Figure, named: Iterable[Axes]) -> float:
    """Name the lines of panels, and return the inches that the names take below the panels."""
    lines: dict[str, Any] = {}
    for axis in named:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            lines.setdefault(label, handle)
    if not lines:
        return 0.0
    if len(lines) > _MOST_BELOW:
        columns, height = math.ceil(len(lines) / _MOST_BESIDE), 0.0
        place: dict[str, Any] = {"loc": "outside right upper", "fontsize": 7.5}
    else:
        long = max(map(len, lines)) > _LONG_NAME
        columns = 1 if long else max(2, int(figure.get_figwidth() / 2.4))
        place = {"loc": "outside lower center"}
        height = math.ceil(len(lines) / columns) * _LEGEND_LINE
        figure.set_figheight(figure.get_figheight() + height)  # panels keep their height
    figure.legend(lines.values(), lines, frameon=False, ncols=columns, **place)
    return height


LARGEST_P = 0.05  # of a value that is not marked
# A cell of this size has room for two digits.
CELL_INCHES, SMALLEST_PANEL, MOST_LAYERS_WITH_VALUES = 0.36, 2.6, 30
_TICK_POINTS = 10.0  # from one label of a tick to the next


def draw_cells(axis: Axes, values: np.ndarray, low: float, high: float = 1.0) -> AxesImage:
    """Draw `values`, row 0 at the bottom, without ticks and frame.

    `low` and `high` are the values of the first and of the last colour; `low` may be above `high`.
    """
    colours = heat_colours() if low <= high else heat_colours().reversed()
    scale: dict[str, Any] = {"vmin": min(low, high), "vmax": max(low, high)}
    image = axis.imshow(values, origin="lower", cmap=colours, **scale)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    return image


def write_values(
    axis: Axes,
    image: AxesImage,
    low: np.ndarray | None = None,
    high: np.ndarray | None = None,
    *,
    form: Callable[[float], str] = short,
    size: float = 7.5,
) -> None:
    """Write the value of every cell, and below it the interval from `low` to `high`, if any."""
    centred: dict[str, Any] = {"ha": "center", "va": "center"}
    for (row, column), value in np.ndenumerate(_values(image)):
        colour = _on(image, value)
        axis.text(column, row, form(value), fontsize=size, color=colour, **centred)
        if low is not None and high is not None and np.isfinite(low[row, column]):
            text = f"{short(float(low[row, column]))}–{short(float(high[row, column]))}"
            axis.text(column, row - 0.33, text, fontsize=4, color=colour, **centred)


def mark_cells(
    axis: Axes, image: AxesImage, marked: np.ndarray, points: float, above: float = 0.0
) -> None:
    """Put a dot into the cells where `marked` is true."""
    rows, columns = np.nonzero(marked)
    colours = [_on(image, value) for value in _values(image)[rows, columns]]
    size = min(3.0, 0.4 * points)
    axis.scatter(columns, rows + above, s=size**2, c=colours, linewidths=0, zorder=3)


def _values(image: AxesImage) -> np.ndarray:
    return cast("np.ma.MaskedArray", image.get_array()).filled(np.nan)


def _on(image: AxesImage, value: float) -> str:
    """Return the colour in which text is read on a cell."""
    share = cast("Normalize", image.norm)(value)
    if image.get_cmap().name.endswith("_r"):
        share = 1 - share
    return "white" if share < 0.6 else "black"


def p_note(pvalues: Iterable[np.ndarray]) -> str:
    """Return the meaning of dots, or that there are none; empty if no p-value is known."""
    defined = np.concatenate([[], *(values[np.isfinite(values)] for values in pvalues)])
    if (defined > LARGEST_P).any():
        return f"Dots: p > {short(LARGEST_P)}, permutation test."
    return f"All p ≤ {short(LARGEST_P)}, permutation test." if len(defined) else ""


def undefined_note(kind: str | None) -> str:
    """Return why cells are grey, for a kind of rows."""
    note = "Grey: undefined, because the layer does not vary over the rows"
    always = " (at the embedding output, “emb”, CLS is always the same vector)"
    return note + (always if kind == CLS else "")


def label_layers(axis: Axes, x: Sequence[int], y: Sequence[int], inches: float) -> None:
    """Label the layers along both axes, or some of many, of a panel that is `inches` wide."""
    points = inches * POINTS / max(len(x), len(y))
    every = max(1, math.ceil(_TICK_POINTS / points))
    size = min(9.0, 0.9 * every * points)
    for label, layers in ((axis.set_xticks, x), (axis.set_yticks, y)):
        places = tick_places(len(layers), every)
        label(places, layer_names([layers[place] for place in places]), fontsize=size)


def outline_blocks(
    axis: Axes, grid: pd.DataFrame, layers: Sequence[int], blocks: pd.DataFrame
) -> str:
    """Draw a frame around each cluster of a grid's blocks, and return their score as text."""
    mine = blocks_of(grid, blocks)
    clusters = mine[mine["experiment"] == BLOCKS].dropna(subset="value")
    for _, cluster in clusters.groupby("value"):
        places = [layers.index(int(layer)) for layer in cluster["layer_x"]]
        corner, side = min(places) - 0.5, max(places) - min(places) + 1
        line: dict[str, Any] = {"edgecolor": ORANGE, "linewidth": 2.0, "zorder": 4}
        frame = Rectangle((corner, corner), side, side, fill=False, clip_on=False, **line)
        axis.add_patch(frame)
    scores = mine[mine["experiment"] == BLOCK_SCORE]
    words = [
        short(row.value) + (f" (p {short(row.pvalue)})" if np.isfinite(row.pvalue) else "")
        for row in scores.itertuples()
    ]
    return f"block score {', '.join(words)}" if words else ""


def blocks_of(grid: pd.DataFrame, blocks: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `blocks` that belong to a grid; a grid of two models has none."""
    first = grid.iloc[0]
    # The page has models by label and seed: a grid there has no columns of steps.
    for name in ("label", "seed", "step"):
        if f"{name}_x" in first:
            x, y = first[f"{name}_x"], first[f"{name}_y"]
            if pd.isna(x) != pd.isna(y) or (pd.notna(x) and x != y):
                return blocks[:0]
    for name in first.index.intersection(GRID_COLUMNS):
        same = blocks[name].isna() if pd.isna(first[name]) else blocks[name] == first[name]
        blocks = blocks[same.fillna(False).astype(bool)]
    return blocks
