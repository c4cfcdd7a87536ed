"""Errors of maps: boxes per layer, bars per method, heatmaps of layers and of heads.

The figures follow Ren et al. 2023: `plot_boxes` figures 2, 4 and 5, `plot_methods` table 4,
`plot_within` figure 3, `plot_across` and `plot_heads` figures 6 and 8.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from simlab.figures.alignment_panels import (
    BLUE,
    GREY,
    MOST_APART,
    finish,
    map_name,
    panels,
    titled,
    wrapped,
)
from simlab.figures.names import models_of, steps_in_words
from simlab.figures.style import heat_colours, layer_names, short
from simlab.store.results import HELDOUT, MSE, TRAIN

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

_WIDE = (4.6, 4.0)  # inches of a heatmap of heads
_MAGNITUDES = 30.0  # bars that differ by a larger factor have a logarithmic axis


def plot_boxes(rows: pd.DataFrame) -> Figure:
    """Draw the held-out errors of all pairs of models: a box per layer, a panel per protocol.

    Whiskers reach from the 5th to the 95th percentile of the pairs.
    """
    groups = list(_by_protocol(rows))
    figure, axes = panels(len(groups))
    top = float(rows["value"].max()) * 1.05
    for axis, (name, part) in zip(axes, groups, strict=True):
        layers = sorted(part["layer_x"].unique())
        values = [part.loc[part["layer_x"] == layer, "value"].dropna() for layer in layers]
        places = range(len(layers))
        axis.boxplot(
            values, positions=places, widths=0.6, whis=(5, 95), medianprops={"color": BLUE}
        )
        axis.set_xticks(places, layer_names(layers))
        finish(axis, f"{name} ({_count(part)})", "layer", _label(rows))
        if np.isfinite(top):
            axis.set_ylim(0, top)
    return titled(figure, rows, f"Alignment by {map_name(rows.iloc[0]['method'])}")


def plot_methods(rows: pd.DataFrame) -> Figure:
    """Draw the errors of every method on fitted and held-out rows: a panel per protocol.

    The errors of a pair of models are averaged over the layers first. A bar is the mean over the
    pairs, and its line the standard deviation over the pairs.
    """
    groups = list(_by_protocol(rows))
    figure, axes = panels(len(groups))
    for axis, (name, group) in zip(axes, groups, strict=True):
        methods = list(group.sort_values("place")["method"].unique())
        of_pairs = group.groupby(["rows", "method", "label_x", "label_y"])["value"].mean()
        for offset, (part, colour) in enumerate(((TRAIN, GREY), (HELDOUT, BLUE))):
            if part not in of_pairs.index.get_level_values("rows"):
                continue
            by_method = of_pairs[part].groupby("method")
            mean, spread = by_method.mean()[methods], by_method.std()[methods].fillna(0)
            places = np.arange(len(methods)) + 0.38 * (offset - 0.5)
            axis.bar(places, mean, 0.36, yerr=spread, color=colour, capsize=2, label=part)
        slanted: dict[str, Any] = {"rotation": 30, "ha": "right"} if len(methods) > 6 else {}
        axis.set_xticks(range(len(methods)), methods, **slanted)
        positive = of_pairs[of_pairs > 0]
        if len(positive) and positive.max() > _MAGNITUDES * positive.min():
            axis.set_yscale("log")
        finish(axis, f"{name} ({_count(group)})", "", _label(rows).partition(",")[0])
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=2, frameon=False
    )
    title = "Alignment by method, mean over layers; mean and standard deviation over pairs"
    return titled(figure, rows, title)


def plot_within(rows: pd.DataFrame) -> Figure:
    """Draw errors of maps from each layer (y axis) to each layer (x axis): a panel per model.

    If there are more than `MOST_APART` models, a panel is the mean over the seeds of a model.
    """
    groups = list(_by_model(rows))
    figure, axes = panels(len(groups))
    for axis, (name, part) in zip(axes, groups, strict=True):
        _draw_layers(figure, axis, part, name, _label(rows))
    return titled(figure, rows, f"Layers within a model, by {map_name(rows.iloc[0]['method'])}")


def plot_across(rows: pd.DataFrame) -> Figure:
    """Draw errors of maps from each layer of one model to each layer of another.

    A panel is a protocol, and a value the mean over the pairs of models.
    """
    groups = list(_by_protocol(rows))
    figure, axes = panels(len(groups))
    for axis, (name, part) in zip(axes, groups, strict=True):
        _draw_layers(figure, axis, part, f"{name} ({_count(part)})", _label(rows))
    method = map_name(rows.iloc[0]["method"])
    return titled(figure, rows, f"Layers of two models, by {method}; mean over pairs")


def plot_heads(rows: pd.DataFrame) -> Figure:
    """Draw errors of maps from each head of one model to each head of another.

    Heads are ordered by layer, with a line between layers. A panel is a protocol, and a value the
    mean over the pairs of models. Maps that fail would hide all other differences: colours end at
    a relative error of 1, the error of the constant mean, and at the 90th percentile of mean
    squared errors.
    """
    groups = list(_by_protocol(rows))
    figure, axes = panels(len(groups), _WIDE)
    for axis, (name, part) in zip(axes, groups, strict=True):
        sides = (["layer_x", "head_x"], ["layer_y", "head_y"])
        table = part.groupby([*sides[0], *sides[1]])["value"].mean().unstack(sides[1])
        values = table.sort_index().sort_index(axis=1)
        errors = values.to_numpy(float)
        top = np.nanpercentile(errors, 90) if rows.iloc[0]["measure"] == MSE else 1.0
        colours = heat_colours().reversed()
        image = axis.imshow(errors, origin="lower", cmap=colours, vmin=0.0, vmax=top)
        layers = [values.index.get_level_values(0), values.columns.get_level_values(0)]
        _mark_layers(axis, layers[0].to_numpy(int), layers[1].to_numpy(int))
        axis.set_title(wrapped(f"{name} ({_count(part)})"), fontweight="bold")
        bar = figure.colorbar(image, ax=axis, shrink=0.75, label=_label(rows), extend="max")
        bar.outline.set_visible(False)
    method = map_name(rows.iloc[0]["method"])
    return titled(figure, rows, f"Heads of two models, by {method}; mean over pairs")


def _mark_layers(axis: Axes, down: np.ndarray, across: np.ndarray) -> None:
    """Draw a line between the heads of different layers, and name the layers."""
    for layers, draw, ticks in (
        (across, axis.axvline, axis.set_xticks),
        (down, axis.axhline, axis.set_yticks),
    ):
        for border in np.flatnonzero(np.diff(layers)):
            draw(border + 0.5, color="white", linewidth=0.6)
        names, first, counts = np.unique(layers, return_index=True, return_counts=True)
        ticks(first + (counts - 1) / 2, [str(name) for name in names])
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    axis.set_xlabel("to head, by layer")
    axis.set_ylabel("from head, by layer")


def _draw_layers(figure: Figure, axis: Axes, rows: pd.DataFrame, name: str, label: str) -> None:
    """Draw the mean errors from each layer (y axis) to each layer (x axis) with their numbers."""
    table = rows.groupby(["layer_x", "layer_y"], dropna=False)["value"].mean().unstack("layer_y")
    values = table.to_numpy(float)
    image = axis.imshow(values, origin="lower", cmap=heat_colours().reversed(), vmin=0.0)
    axis.set_xticks(range(len(table.columns)), layer_names(table.columns))
    axis.set_yticks(range(len(table.index)), layer_names(table.index))
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    axis.set_title(wrapped(name), fontweight="bold")
    axis.set_xlabel("to layer")
    axis.set_ylabel("from layer")
    norm = cast("Normalize", image.norm)
    for (row, column), value in np.ndenumerate(values):
        dark = np.isfinite(value) and norm(value) > 0.5
        colour = "white" if dark else "black"
        text = _number(value)
        axis.text(column, row, text, ha="center", va="center", fontsize=6, color=colour)
    figure.colorbar(image, ax=axis, shrink=0.75, label=label).outline.set_visible(False)


def _number(value: float) -> str:
    """Return a value in few characters; small mean squared errors keep their magnitude."""
    if 0 < value < 0.05:
        return f"{value:.0e}".replace("e-0", "e-") if value < 0.001 else f"{value:.2g}"[1:]
    return short(value)


def _by_protocol(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the rows of every study, protocol and step of training, with a name for the panel."""
    import pandas as pd

    by = ["comparison", "protocol", "step_x", "step_y"]
    for (study, _, *steps), part in rows.groupby(by, sort=False, dropna=False):
        at = steps_in_words([int(step) for step in steps if not pd.isna(step)])
        yield f"{study}{at and f', {at}'}{_suffix(part)}", part


def _by_model(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the rows of every model, or of all its seeds where there are many, with a name."""
    for _, part in rows.groupby(["comparison", "protocol"], sort=False):
        apart = part["label_x"].nunique() <= MOST_APART
        for model in models_of(part, together=not apart):
            several = f", mean over {len(model.seeds)} models" if len(model.seeds) > 1 else ""
            yield f"{model.label}{several}{_suffix(model.rows)}", model.rows


def _suffix(rows: pd.DataFrame) -> str:
    text = rows.iloc[0]["protocol"]
    return f"\n{text}" if text else ""


def _count(rows: pd.DataFrame) -> str:
    """Return the number of ordered pairs of models in words."""
    pairs = rows[["label_x", "label_y"]].drop_duplicates()
    return f"{len(pairs)} ordered pair" + ("s" if len(pairs) > 1 else "")


def _label(rows: pd.DataFrame) -> str:
    error = "mean squared error" if rows.iloc[0]["measure"] == MSE else "relative error"
    return f"{error}, held-out rows"
