"""Small multiples: panels in lines of models and columns of tasks, or side by side."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

_LETTER_INCHES, _TITLE_LETTER_INCHES = 0.075, 0.09  # of a name, of the title
POINTS = 72  # of an inch
_LEGEND_LINE = 0.21  # inches
_MOST_BELOW, _MOST_BESIDE = 6, 16  # lines in a legend below the panels, in a column beside them
_LONG_NAME = 24  # letters: a legend of longer names has one column


def flow(
    count: int, size: tuple[float, float], most: int, **subplots: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure with `count` panels in lines of at most `most`, and their axes.

    A panel with its labels takes `size` inches.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

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
    """Return a figure with an empty panel for every line and column, and the axes of the panels.

    The names of the lines stand left of the first column, and a panel with its labels takes `size`
    inches.
    """
    from matplotlib.figure import Figure

    inches = len(columns) * size[0] + 1.2, len(lines) * size[1] + 1.0
    figure = Figure(figsize=inches, layout="constrained")
    axes = figure.subplots(len(lines), len(columns), squeeze=False, **subplots)
    for axis, name in zip(axes[0], columns, strict=True):
        axis.set_title(name, fontweight="bold", fontsize=9)
    room = max(8, int(size[1] / _LETTER_INCHES))
    for axis, name in zip(axes[:, 0], lines, strict=True):
        axis.set_ylabel(wrapped(name, room), fontweight="bold", fontsize=8.5)
    return figure, dict(zip(product(lines, columns), axes.ravel(), strict=True))


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
    """Write the title above the panels, and below them a note and the names of lines.

    The lines are those of the axes `named`, each once; the names of many stand beside the panels.
    """
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
