"""Errors of maps between layers, the metric with injected states, and nuclear norms of layers.

The figures follow Ren et al. 2023: `plot_boxes` figures 2, 4 and 5, `plot_methods` table 4,
`plot_within` figure 3, `plot_across` figures 6 and 8, `plot_injection` table 5, `plot_complexity`
appendix B.2.

Rows are drawn together with rows of the same protocol alone: the same choices of
`results.PROTOCOL` in their `options`. The choice of training makes a method of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simlab.figures.style import (
    BLUE,
    ORANGE,
    colour_bar,
    draw_cells,
    draw_curves,
    finish,
    flow,
    layer_names,
    short,
    styled,
    wrapped,
    write_values,
)
from simlab.figures.table import steps_in_words, with_models, without_seed
from simlab.results.results import (
    ALIGNMENT,
    HELDOUT,
    INJECTION,
    METHODS,
    MSE,
    NUCLEAR,
    NUCLEAR_RAW,
    RANDOM_LABELS,
    RELATIVE,
    TRAIN,
    TUNE_FROM,
    WITHIN,
)

_PANEL, _WIDE = (3.6, 2.9), (4.6, 4.0)  # inches; of a heatmap of heads
MOST_APART = 6  # models with a line or panel of their own; of more, seeds are drawn together
_MOST_COLUMNS, _LETTERS = 3, 46  # of panels, of a line of a panel's title
_MAGNITUDES = 30.0  # bars that differ by a larger factor have a logarithmic axis
_MAPS = {
    "linear": "linear maps",
    "linear-gd": "linear maps trained by gradient descent",
    **{name: f"{name.upper()} maps" for name in ("cca", "svcca", "pwcca")},
    "mlp": "perceptrons",
    "inn": "invertible networks",
}
_NORMS = {
    NUCLEAR: "nuclear norm at unit Frobenius norm",
    NUCLEAR_RAW: "nuclear norm of the rows as they are",
}
_ERRORS = {RELATIVE: "relative error", MSE: "mean squared error"}
_MODELS = ["label_x", "seed_x", "label_y", "seed_y"]
_ARROW = " → "  # between the names of two models
# Options that make a method of its own, and options by which rows may not be averaged, in words.
_OF_METHOD = {
    "training": "{training}",
    "truncation": "keeps {truncation}",
    "weight_share": "{weight_share:.0%} of the weight",
    "mlp_hidden": "{mlp_hidden} hidden",
    TUNE_FROM: f"search from {{{TUNE_FROM}}}",
}
_OF_PROTOCOL = {
    "map": "a {map} map",
    "judge": "test rows in other folders",
    "pairs": "{pairs} drawn pairs, seed {pair_seed}",
    "directions": "{directions} direction",
    "tune": "best of {tune} settings",
    "attention_rows": "a map for each head",
}
# Values of ``fit_on`` and ``continue_with`` of injections that are not the default.
_INJECTED = {
    "mean": "fitted on means of texts",
    "mean-all": "fitted on means of all tokens",
    "mean-padded": "fitted on means of padded texts",
    "classifier": "A's layers, B's classifier",
}


@styled
def alignment_figures(frame: pd.DataFrame) -> dict[str, Figure]:
    """Return all figures of rows of `ALIGNMENTS`, by file name without suffix."""
    figures = {}
    for name, words, figure in _figures(_with_columns(frame)):
        figure.set_label(words)
        figures[re.sub(r"[^A-Za-z0-9.]+", "-", name)] = figure
    return figures


def _figures(frame: pd.DataFrame) -> Iterator[tuple[str, str, Figure]]:
    """Yield each figure with its name and its title in words."""
    for (task, kind), rows in frame[frame["experiment"] != INJECTION].groupby(["task", "kind"]):
        stem, about = f"{task}-alignment-{kind}", f"alignment of {kind}, "
        for measure, end, error in ((RELATIVE, "", ""), (MSE, "-mse", ", mean squared error")):
            errors = rows[rows["measure"] == measure]
            pairs = errors[errors["experiment"] == ALIGNMENT]
            if pairs["method"].nunique() > 1:
                yield f"{stem}-methods{end}", f"{about}all methods{error}", plot_methods(pairs)
            heldout = errors[errors["rows"] == HELDOUT]
            for (work, method), part in heldout.groupby(["experiment", "method"]):
                if work == ALIGNMENT:
                    name, words, figure = "layers", "of equal layers", plot_boxes(part)
                elif work == WITHIN:
                    name, words, figure = "within", "within a model", plot_within(part)
                else:
                    of_heads = bool(part["head_x"].notna().any())
                    name, words = ("heads", "heads") if of_heads else ("across", "all layers")
                    words, figure = f"of {words}", plot_across(part, of_heads)
                title = f"{about}{_map_name(method)} {words}{error}"
                yield f"{stem}-{name}-{method}{end}", title, figure
        norms = rows[rows["measure"].isin(list(_NORMS))]
        if len(norms):
            yield f"{stem}-complexity", f"{about}nuclear norms of layers", plot_complexity(norms)
    for task, rows in frame[frame["experiment"] == INJECTION].groupby("task"):
        yield f"{task}-injection", "", plot_injection(rows)


def _with_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table with the columns that are hidden in `options`.

    They are ``method``, with the training if it is not ours, its ``place`` in the order of methods,
    ``rows``, ``head_x``, ``head_y``, and ``protocol``, the choices in words.
    """
    texts = frame["options"].fillna("{}")
    columns = {text: _columns_of(json.loads(text)) for text in texts.unique()}
    rows = [columns[text] for text in texts]
    names = ("method", "place", "rows", "head_x", "head_y", "protocol")
    return frame.assign(**{name: [row[name] for row in rows] for name in names})


def _columns_of(options: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of rows that have these options."""
    method, said = options.get("method"), dict(options)
    if "mlp_hidden" in said:
        said["mlp_hidden"] = said["mlp_hidden"] or "as many as columns"
    notes = [text.format(**said) for name, text in _OF_METHOD.items() if name in options]
    place = METHODS.index(method) if method in METHODS else len(METHODS)
    values = (options.get(name) for name in ("fit_on", "continue_with"))
    words = [_INJECTED[value] for value in values if value in _INJECTED]
    words += [text.format(**said) for name, text in _OF_PROTOCOL.items() if name in options]
    return {
        "method": f"{method} ({', '.join(notes)})" if notes else method,
        "place": place + (0.5 if notes else 0),  # behind the method as it is by default
        **{name: options.get(name) for name in ("rows", "head_x", "head_y")},
        "protocol": ", ".join(words),
    }


def _map_name(method: str) -> str:
    """Return the method in words, for titles; its training follows in brackets, if it has one."""
    name, space, training = method.partition(" ")
    return _MAPS.get(name, name) + space + training


def plot_boxes(rows: pd.DataFrame) -> Figure:
    """Draw the held-out errors of all pairs of models: a box per layer, a panel per protocol."""
    parts = list(_by_protocol(rows))
    figure, axes = flow(len(parts), _PANEL, _MOST_COLUMNS)
    top = 1.05 * float(rows["value"].max())
    for axis, (name, part) in zip(axes, parts, strict=True):
        layers = sorted(part["layer_x"].unique())
        values = [part.loc[part["layer_x"] == layer, "value"].dropna() for layer in layers]
        line = {"color": BLUE}
        axis.boxplot(
            values, tick_labels=layer_names(layers), widths=0.6, whis=(5, 95), medianprops=line
        )
        _finish_panel(axis, name, "layer", f"{_ERRORS[rows.iloc[0]['measure']]}, held-out rows")
        if np.isfinite(top):
            axis.set_ylim(0, top)
    return _titled(figure, rows, f"Alignment by {_map_name(rows.iloc[0]['method'])}")


def plot_methods(rows: pd.DataFrame) -> Figure:
    """Draw the errors of every method on fitted and held-out rows: a panel per protocol."""
    parts = list(_by_protocol(rows))
    figure, axes = flow(len(parts), _PANEL, _MOST_COLUMNS)
    for axis, (name, part) in zip(axes, parts, strict=True):
        methods = list(part.sort_values("place")["method"].unique())
        columns = ["rows", "method", "label_x", "label_y"]
        of_pairs = part.groupby(columns, as_index=False)["value"].mean()
        colours = {TRAIN: "0.55", HELDOUT: BLUE}
        shown = [fitted for fitted in colours if (of_pairs["rows"] == fitted).any()]
        hue: dict[str, Any] = {"hue": "rows", "hue_order": shown, "palette": colours}
        look: dict[str, Any] = {"saturation": 1, "err_kws": {"linewidth": 1.5, "color": "black"}}
        order = {"x": "method", "y": "value", "order": methods}
        sns.barplot(of_pairs, errorbar="sd", capsize=0.1, ax=axis, **order, **hue, **look)
        axis.legend().remove()  # the figure's legend has its names
        if len(methods) > 6:
            axis.set_xticks(range(len(methods)), methods, rotation=30, ha="right")
        positive = of_pairs.loc[of_pairs["value"] > 0, "value"]
        if len(positive) and positive.max() > _MAGNITUDES * positive.min():
            axis.set_yscale("log")
        _finish_panel(axis, name, "", _ERRORS[rows.iloc[0]["measure"]])
    title = "Alignment by method, mean over layers; mean and standard deviation over pairs"
    return _titled(figure, rows, title, axes)


def plot_within(rows: pd.DataFrame) -> Figure:
    """Draw errors of maps from each layer (y axis) to each layer (x axis): a panel per model."""
    parts = []
    for _, of_protocol in rows.groupby(["comparison", "protocol"], sort=False):
        together = of_protocol["label_x"].nunique() > MOST_APART
        named = with_models(of_protocol, together=together)
        for model, part in named.groupby("model", sort=False):
            models = part[["label_x", "seed_x"]].drop_duplicates()
            several = f", mean over {len(models)} models" if len(models) > 1 else ""
            parts.append((_below(f"{model}{several}", part), part))
    return _draw_heatmaps(rows, parts, "Layers within a model, by {}")


def plot_across(rows: pd.DataFrame, heads: bool = False) -> Figure:
    """Draw errors of maps from each layer or head of one model to each of another.

    A panel is a protocol, and a value the mean over the pairs of models. Heads are ordered by
    layer, with a line between layers. Maps of heads that fail would hide all other differences:
    colours end at a relative error of 1, the error of the constant mean, and at the 90th percentile
    of mean squared errors.
    """
    title = f"{'Heads' if heads else 'Layers'} of two models, by {{}}; mean over pairs"
    return _draw_heatmaps(rows, list(_by_protocol(rows)), title, heads)


def _draw_heatmaps(
    rows: pd.DataFrame, parts: list[tuple[str, pd.DataFrame]], title: str, heads: bool = False
) -> Figure:
    """Draw the mean errors from each layer or head (y axis) to each (x axis), by panel."""
    figure, axes = flow(len(parts), _WIDE if heads else _PANEL, _MOST_COLUMNS)
    down, across = ([f"layer_{s}", f"head_{s}"] if heads else [f"layer_{s}"] for s in "xy")
    for axis, (name, part) in zip(axes, parts, strict=True):
        means = part.groupby([*down, *across], dropna=False)["value"].mean()
        table = means.unstack(across).sort_index().sort_index(axis=1)
        values = table.to_numpy(float)
        top = np.nanmax(values, initial=0.0)
        if heads:
            top = np.nanpercentile(values, 90) if rows.iloc[0]["measure"] == MSE else 1.0
        image = draw_cells(axis, values, float(top) or 1.0, 0.0)
        axis.set_title(wrapped(name, _LETTERS), fontweight="bold")
        if heads:
            _mark_layers(axis, table)
        else:
            axis.set_xticks(range(len(table.columns)), layer_names(table.columns))
            axis.set_yticks(range(len(table.index)), layer_names(table.index))
            axis.set(xlabel="to layer", ylabel="from layer")
            write_values(axis, image, form=_number, size=6)
        label, more = (
            f"{_ERRORS[rows.iloc[0]['measure']]}, held-out rows",
            {"extend": "max"} if heads else {},
        )
        colour_bar(figure, image, axis, label, **more)
    return _titled(figure, rows, title.format(_map_name(rows.iloc[0]["method"])))


def _mark_layers(axis: Axes, table: pd.DataFrame) -> None:
    """Draw a line between the heads of different layers, and name the layers."""
    for side, draw, ticks in (
        (table.columns, axis.axvline, axis.set_xticks),
        (table.index, axis.axhline, axis.set_yticks),
    ):
        layers = side.get_level_values(0).to_numpy(int)
        for border in np.flatnonzero(np.diff(layers)):
            draw(border + 0.5, color="white", linewidth=0.6)
        names, first, counts = np.unique(layers, return_index=True, return_counts=True)
        ticks(first + (counts - 1) / 2, [str(name) for name in names])
    axis.set(xlabel="to head, by layer", ylabel="from head, by layer")


def plot_complexity(rows: pd.DataFrame) -> Figure:
    """Draw the nuclear norms of each layer: a panel per measure, a line per model."""
    measures = [measure for measure in _NORMS if measure in set(rows["measure"])]
    figure, axes = flow(len(measures), _PANEL, _MOST_COLUMNS)
    model = ["label_x", "seed_x", "kind", "options", "n", "step_x", "layer_x"]
    for axis, measure in zip(axes, measures, strict=True):
        # A model may be in two studies.
        of_measure = rows[rows["measure"] == measure].drop_duplicates(model)
        draw_curves(axis, of_measure, len(of_measure[model[:2]].drop_duplicates()) > MOST_APART)
        _finish_panel(axis, "", "layer", _NORMS[measure])
    axes[0].legend(frameon=False, fontsize=7)
    return _titled(figure, rows, "Complexity of layers")


def plot_injection(rows: pd.DataFrame) -> Figure:
    """Draw the metric with injected states for every method: a panel per layer and protocol."""
    facts = rows[[f"{name}_{side}" for side in "xy" for name in ("label", "seed", "base")]]
    facts = facts.astype(object).where(facts.notna(), None)
    models = facts.itertuples(index=False, name=None)
    pairs = [_ARROW.join((without_seed(*row[:3]), without_seed(*row[3:]))) for row in models]
    rows = rows.assign(pair=pairs)
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
        chance = part.loc[part["method"] == RANDOM_LABELS, "value"]
        if len(chance):
            line: dict[str, Any] = {"color": ORANGE, "linestyle": (0, (5, 3)), "linewidth": 1.2}
            axis.axvline(chance.mean(), label="chance", **line)
        what = "classifier token" if kind == "cls" else "all tokens"
        above = _named(part, pair) if several else ""
        title = "\n".join(filter(None, [above, f"layer {layer}, {what}", protocol]))
        _finish_panel(axis, title, f"held-out {part.iloc[0]['measure']}", "")
    counts = rows[["pair", *_MODELS]].drop_duplicates().groupby("pair").size()
    count = " to ".join(map(str, sorted({counts.min(), counts.max()})))
    over = f"; mean and standard deviation over {count} pairs" if counts.max() > 1 else ""
    named = "" if several else f"\n{_named(rows, rows['pair'].iloc[0])}"
    return _titled(figure, rows, f"B continuing from A's states{over}{named}", axes)


def _named(rows: pd.DataFrame, pair: str) -> str:
    """Return the names of A and B: of two models, or of all pairs of seeds."""
    models = rows[_MODELS].drop_duplicates()
    if len(models) > 1:
        a, b = pair.split(_ARROW)
        return f"A: {a}, B: {b}" + " (*: any seed)" * ("*" in pair)
    a, seed_a, b, seed_b = models.iloc[0]
    if a == b:
        a, b = f"{a} (seed {seed_a})", f"{b} (seed {seed_b})"
    return f"A: {a}, B: {b}"


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
    columns = ["comparison", "protocol", "step_x", "step_y"]
    for (study, _, *steps), part in rows.groupby(columns, sort=False, dropna=False):
        words = steps_in_words([int(step) for step in steps if not pd.isna(step)])
        name = _below(f"{study}, {words}" if words else str(study), part)
        pairs = len(part[["label_x", "label_y"]].drop_duplicates())
        yield f"{name} ({pairs} ordered pair{'s' * (pairs > 1)})", part


def _below(name: str, rows: pd.DataFrame) -> str:
    """Return the name of a panel, with the protocol of its rows in a line below."""
    return "\n".join(filter(None, [name, rows.iloc[0]["protocol"]]))


def _number(value: float) -> str:
    """Return a value in few characters; small mean squared errors keep their magnitude."""
    if 0 < value < 0.05:
        return f"{value:.0e}".replace("e-0", "e-") if value < 0.001 else f"{value:.2g}"[1:]
    return short(value)
