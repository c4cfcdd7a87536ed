"""Claims of Ren et al. 2023: invertible networks, depth, attention."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import product
from typing import TYPE_CHECKING

from simlab.evidence.claim import Evidence
from simlab.evidence.intervals import Unit, above, below
from simlab.evidence.labels import PRETRAINED, TUNED
from simlab.evidence.rows import TaskRows, depth_trend, unordered
from simlab.evidence.studies import left_out, note
from simlab.evidence.wording import number
from simlab.representations.kinds import ATTENTION
from simlab.store.results import HELDOUT, MSE, RELATIVE, TRAIN

if TYPE_CHECKING:
    import pandas as pd

INN, LINEAR = "inn", "linear"
ERRORS = {MSE: "squared error", RELATIVE: "relative error"}


def inn_beats_linear(rows: TaskRows) -> Iterator[Evidence]:
    """Compare the errors of invertible networks and of linear maps of hidden states."""
    for who, errors in _by_role(rows, methods=(INN, LINEAR)):
        states = _first_kind(errors[errors["kind"] != ATTENTION])
        for (measure, name), (part, where) in _errors_by_rows():
            some = states[(states["measure"] == measure) & (states["rows"] == part)]
            means = _pair_means(some[some["method"].isin([INN, LINEAR])], "method")
            units = [Unit(pair, m[INN] - m[LINEAR]) for pair, m in means.items() if len(m) == 2]
            if units:
                yield Evidence(
                    f"inn minus linear, {name}, {where} rows{who}", units, below, left_out(some)
                )


def _errors_by_rows() -> list[tuple[tuple[str, str], tuple[str, str]]]:
    parts = ((TRAIN, "training"), (HELDOUT, "held-out"))
    return [(error, part) for error in ERRORS.items() for part in parts]


def deeper_varies(rows: TaskRows) -> Iterator[Evidence]:
    """Correlate the error between models of different seeds with depth."""
    for who, errors in _by_role(rows):
        states = _first_kind(errors[(errors["kind"] != ATTENTION) & (errors["rows"] == HELDOUT)])
        for method, measure in product(_methods(states), ERRORS):
            some = states[(states["measure"] == measure) & (states["method"] == method)]
            curves = {}
            for pair, directions in unordered(some):
                layers = [one.set_index("layer_x")["value"] for one in directions]
                curves[pair] = sum(layers[1:], layers[0]) / len(layers)
            units = [Unit(pair, depth_trend(c.index, c)) for pair, c in curves.items()]
            if units:
                yield Evidence(
                    f"Spearman's correlation of depth and {ERRORS[measure]} of {method} maps{who}",
                    units,
                    above,
                    note(f"{len(units)} pair{'s' * (len(units) > 1)} of models", left_out(some)),
                )


def attention_varies_less(rows: TaskRows) -> Iterator[Evidence]:
    """Compare the errors between models for attention and for hidden states."""
    for who, errors in _by_role(rows, attention_too=True):
        errors = errors[errors["rows"] == HELDOUT]
        is_attention = errors["kind"] == ATTENTION
        both = (errors[is_attention], _first_kind(errors[~is_attention]))
        for method, measure in product(_methods(*both), ERRORS):
            sides = [s[(s["measure"] == measure) & (s["method"] == method)] for s in both]
            attention, states = (_pair_means(side, "measure") for side in sides)
            units = [
                Unit(pair, found[measure] - states[pair][measure])
                for pair, found in attention.items()
                if pair in states
            ]
            if units:
                yield Evidence(
                    f"attention minus hidden states, {ERRORS[measure]} of {method} maps{who}",
                    units,
                    below,
                    note(_both(sides), left_out(*sides)),
                )


def _both(sides: list[pd.DataFrame]) -> str:
    """Say what the errors of attention and of hidden states are."""
    lasts = [side[side["layer_x"] == side["layer_x"].max()] for side in sides]
    words = [
        "attention {}, hidden states {}".format(*(number(s["value"].mean()) for s in some))
        for some in (sides, lasts)
    ]
    return "; last layer: ".join(words)


def _by_role(
    rows: TaskRows, *, attention_too: bool = False, methods: Collection[str] = ()
) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield errors between models of one role, and words for the role."""
    errors = rows.alignment(attention_too=attention_too, methods=methods)
    same = errors[errors["role_x"] == errors["role_y"]]
    for role, some in same.groupby("role_x", sort=False):
        yield {TUNED: "", PRETRAINED: ", pretrained models", "": ", other models"}[str(role)], some


def _first_kind(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["kind"] == rows["kind"].iloc[0]] if len(rows) else rows


def _methods(*tables: pd.DataFrame) -> list[str]:
    """Return which of the two methods all tables have: that of the paper, and the linear map."""
    return [name for name in (INN, LINEAR) if all((t["method"] == name).any() for t in tables)]


def _pair_means(rows: pd.DataFrame, by: str) -> dict[frozenset[str], dict[str, float]]:
    """Return, for each pair of models, the mean over layers and directions for each `by`."""
    means: dict[frozenset[str], dict[str, list[float]]] = {}
    for (x, y, name), values in rows.groupby(["x", "y", by], sort=False)["value"]:
        if x != y:
            means.setdefault(frozenset([x, y]), {}).setdefault(name, []).append(values.mean())
    return {
        pair: {name: sum(found) / len(found) for name, found in by_name.items()}
        for pair, by_name in means.items()
    }
