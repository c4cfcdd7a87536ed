"""All figures of a table's rows of alignment, injection and complexity, by name.

Rows are drawn together with rows of the same protocol alone: the same choices of
`results.PROTOCOL` in their `options`. The choice of training makes a method of its own.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from simlab.figures.maps import (
    map_name,
    plot_across,
    plot_boxes,
    plot_complexity,
    plot_heads,
    plot_injection,
    plot_methods,
    plot_within,
)
from simlab.figures.style import STYLE
from simlab.results.results import (
    ALIGNMENT,
    HELDOUT,
    INJECTION,
    METHODS,
    MSE,
    NUCLEAR,
    NUCLEAR_RAW,
    OF_ONE_METHOD,
    RELATIVE,
    TUNE_FROM,
    WITHIN,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

# Behind titles; the relative error is the usual one.
_ERRORS = {RELATIVE: "", MSE: ", mean squared error"}


def alignment_figures(frame: pd.DataFrame) -> dict[str, Figure]:
    """Return all figures of rows of `ALIGNMENTS`, by file name without suffix.

    The label of each figure is its title in words, for lists of figures.
    """
    import matplotlib as mpl

    if frame.empty:
        return {}
    with mpl.rc_context(STYLE):
        figures = _figures(_with_columns(frame))
    return {re.sub(r"[^A-Za-z0-9.]+", "-", name): figure for name, figure in figures.items()}


def _figures(frame: pd.DataFrame) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for (task, kind), rows in frame[frame["experiment"] != INJECTION].groupby(["task", "kind"]):
        stem = f"{task}-alignment-{kind}"
        for measure, end in ((RELATIVE, ""), (MSE, "-mse")):
            of_measure = _figures_of_errors(rows[rows["measure"] == measure])
            for name, (words, figure) in of_measure.items():
                figure.set_label(f"alignment of {kind}, {words}{_ERRORS[measure]}")
                figures[f"{stem}-{name}{end}"] = figure
        complexity = rows[rows["measure"].isin((NUCLEAR, NUCLEAR_RAW))]
        if len(complexity):
            figure = figures[f"{stem}-complexity"] = plot_complexity(complexity)
            figure.set_label(f"alignment of {kind}, nuclear norms of layers")
    for task, rows in frame[frame["experiment"] == INJECTION].groupby("task"):
        figures[f"{task}-injection"] = plot_injection(rows)
    return figures


def _figures_of_errors(errors: pd.DataFrame) -> dict[str, tuple[str, Figure]]:
    """Return the figures of one measure of error with their titles, by the ends of their names."""
    figures: dict[str, tuple[str, Figure]] = {}
    pairs = errors[errors["experiment"] == ALIGNMENT]
    if pairs["method"].nunique() > 1:
        figures["methods"] = "all methods", plot_methods(pairs)
    heldout = errors[errors["rows"] == HELDOUT]
    for (work, method), of_method in heldout.groupby(["experiment", "method"]):
        maps = map_name(method)
        if work == ALIGNMENT:
            figures[f"layers-{method}"] = f"{maps} of equal layers", plot_boxes(of_method)
        elif work == WITHIN:
            figures[f"within-{method}"] = f"{maps} within a model", plot_within(of_method)
        elif of_method["head_x"].notna().any():
            figures[f"heads-{method}"] = f"{maps} of heads", plot_heads(of_method)
        else:
            figures[f"across-{method}"] = f"{maps} of all layers", plot_across(of_method)
    return figures


def _with_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table with the columns that are hidden in `options`.

    They are ``method``, with the training if it is not ours, its ``place`` in the order of methods,
    ``rows``, ``head_x``, ``head_y``, and ``protocol``, the choices in words.
    """
    texts = frame["options"].fillna("{}")
    of_text = {text: json.loads(text) for text in texts.unique()}
    options = [of_text[text] for text in texts]
    return frame.assign(
        method=[_method(choices) for choices in options],
        place=[_place(choices) for choices in options],
        rows=[choices.get("rows") for choices in options],
        head_x=[choices.get("head_x") for choices in options],
        head_y=[choices.get("head_y") for choices in options],
        protocol=[_in_words(choices) for choices in options],
    )


def _method(options: dict[str, Any]) -> str | None:
    """Return the method, and its training and truncation if they are not the default."""
    method: str | None = options.get("method")
    notes = [options["training"]] if "training" in options else []
    notes += [f"keeps {options['truncation']}"] if "truncation" in options else []
    notes += [f"{options['weight_share']:.0%} of the weight"] if "weight_share" in options else []
    if "mlp_hidden" in options:
        notes.append(f"{options['mlp_hidden'] or 'as many as columns'} hidden")
    notes += [f"search from {options[TUNE_FROM]}"] if TUNE_FROM in options else []
    return f"{method} ({', '.join(notes)})" if notes else method


def _place(options: dict[str, Any]) -> float:
    """Return the place of the method in tables; one that is not the default stands behind it."""
    method = options.get("method")
    place = METHODS.index(method) if method in METHODS else len(METHODS)
    chosen = {"training", "truncation", *OF_ONE_METHOD} & options.keys()
    return place + (0.5 if chosen else 0)


# Values of ``fit_on`` and ``continue_with`` of injections that are not the default.
_INJECTED = {
    "mean": "fitted on means of texts",
    "mean-all": "fitted on means of all tokens",
    "mean-padded": "fitted on means of padded texts",
    "classifier": "A's layers, B's classifier",
}
_CHOSEN = {
    "map": "a {map} map",
    "judge": "test rows in other folders",
    "pairs": "{pairs} drawn pairs, seed {pair_seed}",
    "directions": "{directions} direction",
    "tune": "best of {tune} settings",
    "attention_rows": "a map for each head",
}


def _in_words(options: dict[str, Any]) -> str:
    """Return the choices that say which rows may be averaged."""
    values = (options.get(name) for name in ("fit_on", "continue_with"))
    words = [_INJECTED[value] for value in values if value in _INJECTED]
    words += [text.format(**options) for name, text in _CHOSEN.items() if name in options]
    return ", ".join(words)
