"""Small multiples: panels in lines of models and columns of tasks, or side by side."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

_MARGINS = {"left": 0.75, "right": 0.95, "bottom": 0.65, "top": 0.8}  # inches
_LETTER_INCHES = 0.075  # of a name
_NOTE_SIZE, _NOTE_LETTER_INCHES = 7.5, 0.06


def matrix(
    lines: Sequence[str],
    columns: Sequence[str],
    side: tuple[float, float],
    gap: tuple[float, float],
    **subplots: Any,
) -> tuple[Figure, np.ndarray]:
    """Return a figure with empty panels, and their axes [len(lines), len(columns)].

    The names in `lines` and `columns` stand left of the lines and above the columns. `side` is the
    width and height of a panel in inches, and `gap` the distance between two panels.
    """
    from matplotlib.figure import Figure

    inside = [
        count * length + (count - 1) * between
        for count, length, between in zip((len(columns), len(lines)), side, gap, strict=True)
    ]
    width = inside[0] + _MARGINS["left"] + _MARGINS["right"]
    height = inside[1] + _MARGINS["bottom"] + _MARGINS["top"]
    # Margins of a known size, because matplotlib's layout takes seconds for a hundred panels.
    places = {
        "left": _MARGINS["left"] / width,
        "right": 1 - _MARGINS["right"] / width,
        "bottom": _MARGINS["bottom"] / height,
        "top": 1 - _MARGINS["top"] / height,
        "wspace": gap[0] / side[0],
        "hspace": gap[1] / side[1],
    }
    figure = Figure(figsize=(width, height))
    axes = figure.subplots(len(lines), len(columns), squeeze=False, gridspec_kw=places, **subplots)
    for axis, name in zip(axes[0], columns, strict=True):
        axis.set_title(name, fontweight="bold", fontsize=9)
    for axis, name in zip(axes[:, 0], lines, strict=True):
        _name_line(axis, name, side[1])
    return figure, axes


def _name_line(axis: Axes, name: str, height: float) -> None:
    room = max(8, int((height + 0.3) / _LETTER_INCHES))
    text = "\n".join(
        part for line in name.split("\n") for part in textwrap.wrap(line, room) or [""]
    )
    axis.annotate(
        text,
        (0, 0.5),
        (-30, 0),
        xycoords="axes fraction",
        textcoords="offset points",
        rotation=90,
        ha="right",
        va="center",
        fontsize=8.5,
        fontweight="bold",
    )


def headline(figure: Figure, title: str, note: str = "") -> None:
    """Write the title above a `matrix`, and a note below."""
    height = figure.get_figheight()
    figure.suptitle(title, fontsize=11, y=1 - 0.12 / height, va="top")
    if note:
        look: dict[str, Any] = {
            "fontsize": _NOTE_SIZE,
            "color": "0.35",
            "ha": "center",
            "va": "top",
        }
        figure.text(0.5, 0.24 / height, _wrapped(figure, note), **look)


def add_note(figure: Figure, note: str) -> None:
    """Write a note below the panels of `flow`."""
    figure.supxlabel(_wrapped(figure, note), fontsize=_NOTE_SIZE, color="0.35")


def centred_title(figure: Figure, axes: Iterable[Axes], title: str) -> None:
    """Write the title above the middle of the panels, without their labels and colour bars."""
    text = figure.suptitle(title, fontsize=11)
    figure.draw_without_rendering()  # matplotlib places the panels when it draws
    edges = [axis.get_position() for axis in axes]
    text.set_x((min(edge.x0 for edge in edges) + max(edge.x1 for edge in edges)) / 2)


def _wrapped(figure: Figure, note: str) -> str:
    letters = int(figure.get_figwidth() / _NOTE_LETTER_INCHES)
    return "\n".join(textwrap.fill(line, letters) for line in note.split("\n"))


def colour_bar(figure: Figure, image: AxesImage, label: str) -> None:
    """Draw the colour scale of all panels right of a `matrix`."""
    width, height = figure.get_size_inches()
    inside = height - _MARGINS["bottom"] - _MARGINS["top"]
    length = min(inside, 4.0)
    bottom = _MARGINS["bottom"] + (inside - length) / 2
    place = (1 - 0.75 / width, bottom / height, 0.12 / width, length / height)
    bar = figure.colorbar(image, cax=figure.add_axes(place))
    bar.set_label(label, fontsize=8.5)
    bar.ax.tick_params(labelsize=7.5)
    bar.outline.set_visible(False)


def flow(
    count: int, size: Callable[[int, int], tuple[float, float]], most: int, **subplots: Any
) -> tuple[Figure, np.ndarray]:
    """Return a figure with `count` panels in lines of at most `most`, and their axes [count].

    `size` gives the size of the figure in inches for numbers of columns and lines.
    """
    from matplotlib.figure import Figure

    columns = max(1, min(most, count))
    lines = max(1, -(-count // columns))
    figure = Figure(figsize=size(columns, lines), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False, **subplots).ravel()
    for axis in axes[count:]:
        axis.set_axis_off()
    return figure, axes[:count]
