"""Colours, panels and titles for the figures of alignment, injection and complexity."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from simlab.figures.panels import flow

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = (3.6, 2.9)
MOST_APART = 6  # models with a line or panel of their own; of more, seeds are drawn together
_LINE = 46  # letters of a panel's title
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "0.55"


_MAPS = {
    "linear": "linear maps",
    "linear-gd": "linear maps trained by gradient descent",
    "cca": "CCA maps",
    "svcca": "SVCCA maps",
    "pwcca": "PWCCA maps",
    "mlp": "perceptrons",
    "inn": "invertible networks",
}


def map_name(method: str) -> str:
    """Return the method in words, for titles; its training follows in brackets, if it has one."""
    name, space, training = method.partition(" ")
    return _MAPS.get(name, name) + space + training


def panels(count: int, size: tuple[float, float] = PANEL) -> tuple[Figure, list[Axes]]:
    """Return a figure with `count` panels of `size` inches, three in a line."""

    def whole(columns: int, lines: int) -> tuple[float, float]:
        return columns * size[0], lines * size[1] + 0.4

    figure, axes = flow(count, whole, 3)
    return figure, list(axes)


def wrapped(title: str) -> str:
    """Return the title of a panel in lines that are no wider than the panel."""
    return "\n".join(part for line in title.split("\n") for part in wrap(line, _LINE) or [""])


def finish(axis: Axes, title: str, below: str, side: str) -> None:
    """Set the title and the labels of a panel, and take away its upper and right spine."""
    axis.set_title(wrapped(title))
    axis.set_xlabel(below)
    axis.set_ylabel(side)
    axis.spines[["top", "right"]].set_visible(False)


def titled(figure: Figure, rows: pd.DataFrame, title: str) -> Figure:
    """Give the figure its title, with the task, the kind and the number of rows below."""
    first = rows.iloc[0]
    undefined = "\ngrey or missing: a constant layer" if rows["value"].isna().any() else ""
    about = f"task {first['task']} · {first['kind']} · n = {first['n']:,}"
    figure.suptitle(f"{title}\n{about}{undefined}", fontsize=10)
    return figure
