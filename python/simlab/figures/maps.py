"""Errors of maps between layers, the metric with injected states, and nuclear norms of layers.

The figures follow Ren et al. 2023: `plot_boxes` figures 2, 4 and 5, `plot_methods` table 4,
`plot_within` figure 3, `plot_across` and `plot_heads` figures 6 and 8, `plot_injection` table 5,
`plot_complexity` appendix B.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from simlab.figures.names import steps_in_words, with_models, without_seed
from simlab.figures.style import (
    BLUE,
    ORANGE,
    colour_bar,
    draw_curves,
    finish,
    flow,
    heat_colours,
    layer_names,
    short,
    wrapped,
)
from simlab.results.results import (
    HELDOUT,
    MSE,
    NUCLEAR,
    NUCLEAR_RAW,
    RANDOM_LABELS,
    TRAIN,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

_PANEL, _WIDE = (3.6, 2.9), (4.6, 4.0)  # inches; of a heatmap of heads
MOST_APART = 6  # models with a line or panel of their own; of more, seeds are drawn together
_MOST_COLUMNS = 3
_LETTERS = 46  # of a line of a panel's title
_GREY = "0.55"
_MAGNITUDES = 30.0  # bars that differ by a larger factor have a logarithmic axis
_MAPS = {
    "linear": "linear maps",
    "linear-gd": "linear maps trained by gradient descent",
    "cca": "CCA maps",
    "svcca": "SVCCA maps",
    "pwcca": "PWCCA maps",
    "mlp": "perceptrons",
    "inn": "invertible networks",
}
_NORMS = {
    NUCLEAR: "nuclear norm at unit Frobenius norm",
    NUCLEAR_RAW: "nuclear norm of the rows as they are",
}
_MODELS = ["label_x", "seed_x", "label_y", "seed_y"]
_ARROW = " → "  # between the names of two models


def map_name(method: str) -> str:
    """Return the method in words, for titles; its training follows in brackets, if it has one."""
    name, space, training = method.partition(" ")
    return _MAPS.get(name, name) + space + training


def plot_boxes(rows: pd.DataFrame) -> Figure:
    """Draw the held-out errors of all pairs of models: a box per layer, a panel per protocol.

    Whiskers reach from the 5th to the 95th percentile of the pairs.
    """
    parts = list(_by_protocol(rows))
    figure, axes = flow(len(parts), _PANEL, _MOST_COLUMNS)
    top = float(rows["value"].max()) * 1.05
    for axis, (name, part) in zip(axes, parts, strict=True):
        layers = sorted(part["layer_x"].unique())
        values = [part.loc[part["layer_x"] == layer, "value"].dropna() for layer in layers]
        places = range(len(layers))
        line = {"color": BLUE}
        axis.boxplot(values, positions=places, widths=0.6, whis=(5, 95), medianprops=line)
        axis.set_xticks(places, layer_names(layers))
        _finish_panel(axis, f"{name} ({_count(part)})", "layer", _label(rows))
        if np.isfinite(top):
            axis.set_ylim(0, top)
    return _titled(figure, rows, f"Alignment by {map_name(rows.iloc[0]['method'])}")


def plot_methods(rows: pd.DataFrame) -> Figure:
    """Draw the errors of every method on fitted and held-out rows: a panel per protocol.

    The errors of a pair of models are averaged over the layers first. A bar is the mean over the
    pairs, and its line the standard deviation over the pairs.
    """
    import seaborn as sns

    parts = list(_by_protocol(rows))
    figure, axes = flow(len(parts), _PANEL, _MOST_COLUMNS)
    for axis, (name, part) in zip(axes, parts, strict=True):
        methods = list(part.sort_values("place")["method"].unique())
        columns = ["rows", "method", "label_x", "label_y"]
        of_pairs = part.groupby(columns, as_index=False)["value"].mean()
        colours = {
            rows_of: colour
            for rows_of, colour in ((TRAIN, _GREY), (HELDOUT, BLUE))
            if (of_pairs["rows"] == rows_of).any()
        }
        hue: dict[str, Any] = {"hue": "rows", "hue_order": list(colours), "palette": colours}
        look: dict[str, Any] = {"saturation": 1, "err_kws": {"linewidth": 1.5, "color": "black"}}
        order = {"x": "method", "y": "value", "order": methods}
        sns.barplot(of_pairs, errorbar="sd", capsize=0.1, ax=axis, **order, **hue, **look)
        axis.legend().remove()  # the figure's legend has its names
        if len(methods) > 6:
            axis.set_xticks(range(len(methods)), methods, rotation=30, ha="right")
        positive = of_pairs.loc[of_pairs["value"] > 0, "value"]
        if len(positive) and positive.max() > _MAGNITUDES * positive.min():
            axis.set_yscale("log")
        _finish_panel(axis, f"{name} ({_count(part)})", "", _label(rows).partition(",")[0])
    title = "Alignment by method, mean over layers; mean and standard deviation over pairs"
    return _titled(figure, rows, title, axes)


def plot_within(rows: pd.DataFrame) -> Figure:
    """Draw errors of maps from each layer (y axis) to each layer (x axis): a panel per model.

    If there are more than `MOST_APART` models, a panel is the mean over the seeds of a model.
    """
    parts = []
    for _, of_protocol in rows.groupby(["comparison", "protocol"], sort=False):
        together = of_protocol["label_x"].nunique() > MOST_APART
        named = with_models(of_protocol, together=together)
        for model, part in named.groupby("model", sort=False):
            models = part[["label_x", "seed_x"]].drop_duplicates()
            several = f", mean over {len(models)} models" if len(models) > 1 else ""
            parts.append((f"{model}{several}{_suffix(part)}", part))
    return _draw_heatmaps(rows, parts, "Layers within a model, by {}")


def plot_across(rows: pd.DataFrame) -> Figure:
    """Draw errors of maps from each layer of one model to each layer of another.

    A panel is a protocol, and a value the mean over the pairs of models.
    """
    parts = [(f"{name} ({_count(part)})", part) for name, part in _by_protocol(rows)]
    return _draw_heatmaps(rows, parts, "Layers of two models, by {}; mean over pairs")


def plot_heads(rows: pd.DataFrame) -> Figure:
    """Draw errors of maps from each head of one model to each head of another.

    Heads are ordered by layer, with a line between layers. A panel is a protocol, and a value the
    mean over the pairs of models. Maps that fail would hide all other differences: colours end at
    a relative error of 1, the error of the constant mean, and at the 90th percentile of mean
    squared errors.
    """
    parts = [(f"{name} ({_count(part)})", part) for name, part in _by_protocol(rows)]
    return _draw_heatmaps(rows, parts, "Heads of two models, by {}; mean over pairs", heads=True)


def _draw_heatmaps(
    rows: pd.DataFrame, parts: list[tuple[str, pd.DataFrame]], title: str, heads: bool = False
) -> Figure:
    """Draw the mean errors from each layer or head (y axis) to each (x axis), by panel."""
    figure, axes = flow(len(parts), _WIDE if heads else _PANEL, _MOST_COLUMNS)
    for axis, (name, part) in zip(axes, parts, strict=True):
        down, across = (
            [f"layer_{side}", *([f"head_{side}"] if heads else [])] for side in ("x", "y")
        )
        table = part.groupby([*down, *across], dropna=False)["value"].mean().unstack(across)
        table = table.sort_index().sort_index(axis=1)
        values = table.to_numpy(float)
        top: dict[str, Any] = {}
        if heads:
            is_mse = rows.iloc[0]["measure"] == MSE
            top = {"vmax": np.nanpercentile(values, 90) if is_mse else 1.0}
        colours = heat_colours().reversed()
        image = axis.imshow(values, origin="lower", cmap=colours, vmin=0.0, **top)
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
        axis.set_title(wrapped(name, _LETTERS), fontweight="bold")
        if heads:
            layers = [
                side.get_level_values(0).to_numpy(int) for side in (table.index, table.columns)
            ]
            _mark_layers(axis, *layers)
        else:
            axis.set_xticks(range(len(table.columns)), layer_names(table.columns))
            axis.set_yticks(range(len(table.index)), layer_names(table.index))
            axis.set(xlabel="to layer", ylabel="from layer")
            norm = cast("Normalize", image.norm)
            for (row, column), value in np.ndenumerate(values):
                colour = "white" if np.isfinite(value) and norm(value) > 0.5 else "black"
                centred: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 6}
                axis.text(column, row, _number(value), color=colour, **centred)
        colour_bar(figure, image, axis, _label(rows), **({"extend": "max"} if heads else {}))
    return _titled(figure, rows, title.format(map_name(rows.iloc[0]["method"])))


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
    axis.set(xlabel="to head, by layer", ylabel="from head, by layer")


def plot_complexity(rows: pd.DataFrame) -> Figure:
    """Draw the nuclear norms of each layer: a panel per measure, a line per model.

    If there are more than `MOST_APART` models, the mean over seeds is drawn, with a thin line for
    each seed.
    """
    measures = [measure for measure in _NORMS if measure in set(rows["measure"])]
    figure, axes = flow(len(measures), _PANEL, _MOST_COLUMNS)
    for axis, measure in zip(axes, measures, strict=True):
        # A model may be in two studies.
        model = ["label_x", "seed_x", "kind", "options", "n", "step_x", "layer_x"]
        of_measure = rows[rows["measure"] == measure].drop_duplicates(model)
        draw_curves(axis, of_measure, len(of_measure[model[:2]].drop_duplicates()) > MOST_APART)
        _finish_panel(axis, "", "layer", _NORMS[measure])
    axes[0].legend(frameon=False, fontsize=7)
    return _titled(figure, rows, "Complexity of layers")


def plot_injection(rows: pd.DataFrame) -> Figure:
    """Draw the metric with injected states for every method: a panel per layer and protocol.

    A bar is the mean over the pairs of seeds of the same two models, and its line the standard
    deviation. Pairs of other models have panels of their own.
    """
    import seaborn as sns

    names = []
    for side in ("x", "y"):
        facts = rows[[f"{name}_{side}" for name in ("label", "seed", "base")]].astype(object)
        facts = facts.where(facts.notna(), None)
        names.append([without_seed(*model) for model in facts.itertuples(index=False, name=None)])
    rows = rows.assign(pair=[_ARROW.join(pair) for pair in zip(*names, strict=True)])
    panel = ["layer_x", "kind", "protocol", "pair"]
    # Results of two trainings both have the methods that are not trained.
    rows = rows.drop_duplicates([*panel, "method", *_MODELS])
    parts = list(rows.groupby(panel, sort=True))
    figure, axes = flow(len(parts), _PANEL, _MOST_COLUMNS)
    several = rows["pair"].nunique() > 1
    for axis, ((layer, kind, protocol, pair), part) in zip(axes, parts, strict=True):
        methods = list(part.sort_values("place", kind="stable")["method"].unique())
        bars: dict[str, Any] = {"color": BLUE, "saturation": 1, "width": 0.7, "capsize": 0.2}
        bars |= {"errorbar": "sd", "err_kws": {"color": "black", "linewidth": 1.5}}
        sns.barplot(part, x="value", y="method", order=methods, ax=axis, **bars)
        axis.set_yticks(range(len(methods)), [name.replace("-", " ") for name in methods])
        if RANDOM_LABELS in methods:
            chance = part.loc[part["method"] == RANDOM_LABELS, "value"].mean()
            line: dict[str, Any] = {"color": ORANGE, "linestyle": (0, (5, 3)), "linewidth": 1.2}
            axis.axvline(chance, label="chance", **line)
        what = "classifier token" if kind == "cls" else "all tokens"
        title = f"layer {layer}, {what}" + (f"\n{protocol}" if protocol else "")
        title = f"{_named(part, pair)}\n{title}" if several else title
        _finish_panel(axis, title, f"held-out {part.iloc[0]['measure']}", "")
    pairs = rows[["pair", *_MODELS]].drop_duplicates().groupby("pair").size()
    count = " to ".join(map(str, sorted({pairs.min(), pairs.max()})))
    over = f"; mean and standard deviation over {count} pairs" if pairs.max() > 1 else ""
    models = "" if several else f"\n{_named(rows, rows['pair'].iloc[0])}"
    return _titled(figure, rows, f"B continuing from A's states{over}{models}", axes)


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


def _finish_panel(axis: Axes, title: str, below: str, side: str) -> None:
    axis.set(title=wrapped(title, _LETTERS), xlabel=below, ylabel=side)
    axis.spines[["top", "right"]].set_visible(False)


def _titled(figure: Figure, rows: pd.DataFrame, title: str, named: Sequence[Axes] = ()) -> Figure:
    """Give the figure its title, with the task, the kind and the number of rows below."""
    first = rows.iloc[0]
    note = "Grey or missing: a constant layer." if rows["value"].isna().any() else ""
    title = f"{title}\ntask {first['task']} · {first['kind']} · n = {first['n']:,}"
    finish(figure, title, note, named)
    return figure


def _by_protocol(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the rows of every study, protocol and step of training, with a name for the panel."""
    import pandas as pd

    columns = ["comparison", "protocol", "step_x", "step_y"]
    for (study, _, *steps), part in rows.groupby(columns, sort=False, dropna=False):
        words = steps_in_words([int(step) for step in steps if not pd.isna(step)])
        yield f"{study}{words and f', {words}'}{_suffix(part)}", part


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


def _number(value: float) -> str:
    """Return a value in few characters; small mean squared errors keep their magnitude."""
    if 0 < value < 0.05:
        return f"{value:.0e}".replace("e-0", "e-") if value < 0.001 else f"{value:.2g}"[1:]
    return short(value)
