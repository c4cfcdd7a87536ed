"""Claims of Ren et al. 2023: invertible networks, depth, attention."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from simlab.evidence.claim import BELOW, Evidence
from simlab.evidence.intervals import Value, value_of
from simlab.evidence.labels import PRETRAINED, TUNED
from simlab.evidence.rows import TaskRows, depth_trends
from simlab.evidence.studies import left_out, note
from simlab.evidence.wording import SHARE, TREND, number
from simlab.representations.kinds import ATTENTION
from simlab.store.results import HELDOUT, KNOWN_MAP, MSE, RELATIVE

if TYPE_CHECKING:
    import pandas as pd

INN, LINEAR = "inn", "linear"
_LINEAR_MAPS = (LINEAR, "cca", "svcca", "pwcca")  # those of table 3
ERRORS = {MSE: "squared error", RELATIVE: "relative error"}


def inn_beats_linear(rows: TaskRows) -> Iterator[Evidence]:
    """Compare the errors of invertible networks and of linear maps of hidden states."""
    for who, errors in _by_role(rows, methods=(INN, LINEAR)):
        states = first_kind(errors[(errors["kind"] != ATTENTION) & (errors["rows"] == HELDOUT)])
        for measure, name in ERRORS.items():
            of_measure = states[states["measure"] == measure]
            means = pair_means(of_measure[of_measure["method"].isin([INN, LINEAR])], "method")
            ratios = {p: m[INN] / m[LINEAR] - 1 for p, m in means.items() if len(m) == 2}
            values = between_seeds(rows, ratios)
            if values:
                both = [float(np.mean([m[way] for m in means.values() if len(m) == 2]))
                        for way in (INN, LINEAR)]  # fmt: skip
                words = "inn {}, linear {}".format(*map(number, both))
                yield Evidence(
                    f"{name} of inn as a share of that of linear, minus 1{who}",
                    values,
                    -SHARE,
                    BELOW,
                    note(words, left_out(of_measure)),
                )


def inn_finds_known_map(rows: TaskRows) -> Iterator[Evidence]:
    """Compare the errors of `inn` and of each linear method as inverses of untrained networks."""
    some = rows.frame[rows.frame["experiment"] == KNOWN_MAP]
    options = [json.loads(text) for text in some["options"]]
    some = some.assign(**{name: [one.get(name) for one in options] for name in ("method", "rows")})
    some = rows.read_rows(some[some["rows"] == HELDOUT])
    for measure, name in ERRORS.items():
        errors = some[some["measure"] == measure].pivot_table("value", "x", "method")
        for method in (way for way in _LINEAR_MAPS if {way, INN} <= set(errors)):
            both = errors[[INN, method]].dropna()
            means = [f"{way} {number(both[way].mean())}" for way in (INN, method)]
            yield Evidence(
                f"{name} of inn as a share of that of {method}, minus 1, as inverses of f",
                [*map(value_of, both.index, both[INN] / both[method] - 1)],
                -SHARE,
                BELOW,
                ", ".join(means),
            )


def between_seeds(rows: TaskRows, values: Mapping[frozenset[str], float]) -> list[Value]:
    """Return the values of pairs that were pretrained apart; of all pairs if there are none."""
    origin = rows.origins
    apart = {p: v for p, v in values.items() if len({origin[name] for name in p}) == 2}
    return [Value(pair, value) for pair, value in (apart or values).items()]


def deeper_varies(rows: TaskRows) -> Iterator[Evidence]:
    """Correlate the error between models of different seeds with depth."""
    for who, errors in _by_role(rows):
        states = first_kind(errors[(errors["kind"] != ATTENTION) & (errors["rows"] == HELDOUT)])
        for method, measure in product(_methods(states), ERRORS):
            errors_of = states[(states["measure"] == measure) & (states["method"] == method)]
            values = between_seeds(rows, _trends(errors_of))
            if values:
                pairs = f"{len(values)} pair{'s' * (len(values) > 1)} of models"
                yield Evidence(
                    f"Spearman's correlation of depth and {ERRORS[measure]} of {method} maps{who}",
                    values,
                    TREND,
                    note=note(pairs, left_out(errors_of)),
                    signs=True,
                )


def _trends(errors: pd.DataFrame) -> dict[frozenset[str], float]:
    """Return, for each pair of models, the trend of the mean over directions with depth."""
    table = errors[errors["x"] != errors["y"]].pivot(
        index="layer_x", columns=["x", "y"], values="value"
    )
    curves: dict[frozenset[str], list[np.ndarray]] = {}
    for pair, curve in zip(table, table.to_numpy(float).T, strict=True):
        curves.setdefault(frozenset(pair), []).append(curve)
    means = np.array([sum(some) / len(some) for some in curves.values()])
    return dict(zip(curves, depth_trends(table.index, means).tolist(), strict=True))


def attention_varies_less(rows: TaskRows) -> Iterator[Evidence]:
    """Compare the errors between models for attention and for hidden states."""
    for who, errors in _by_role(rows, attention_too=True):
        errors = errors[errors["rows"] == HELDOUT]
        is_attention = errors["kind"] == ATTENTION
        both = (errors[is_attention], first_kind(errors[~is_attention]))
        for method, measure in product(_methods(*both), ERRORS):
            sides = [s[(s["measure"] == measure) & (s["method"] == method)] for s in both]
            attention, states = (pair_means(side, "measure") for side in sides)
            ratios = {
                pair: errors_of[measure] / states[pair][measure] - 1
                for pair, errors_of in attention.items()
                if pair in states
            }
            values = between_seeds(rows, ratios)
            if values:
                yield Evidence(
                    f"{ERRORS[measure]} of {method} maps of attention as a share of that of "
                    f"hidden states, minus 1{who}",
                    values,
                    -SHARE,
                    BELOW,
                    note(_both(sides), left_out(*sides)),
                )


def _both(sides: list[pd.DataFrame]) -> str:
    """Say what the errors of attention and of hidden states are."""
    lasts = [side[side["layer_x"] == side["layer_x"].max()] for side in sides]
    words = [
        "attention {}, hidden states {}".format(*(number(s["value"].mean()) for s in parts))
        for parts in (sides, lasts)
    ]
    return "; last layer: ".join(words)


def _by_role(
    rows: TaskRows, *, attention_too: bool = False, methods: Collection[str] = ()
) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield errors between models of one role, and words for the role."""
    errors = rows.alignment(attention_too=attention_too, methods=methods)
    same = errors[errors["role_x"] == errors["role_y"]]
    for role, part in same.groupby("role_x", sort=False):
        yield {TUNED: "", PRETRAINED: ", pretrained models", "": ", other models"}[str(role)], part


def first_kind(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the kind of representation that comes first."""
    return rows[rows["kind"] == rows["kind"].iloc[0]] if len(rows) else rows


def _methods(*tables: pd.DataFrame) -> list[str]:
    """Return which of the two methods all tables have: the paper's own, and the linear map."""
    return [name for name in (INN, LINEAR) if all((t["method"] == name).any() for t in tables)]


def pair_means(rows: pd.DataFrame, by: str) -> dict[frozenset[str], dict[str, float]]:
    """Return, for each pair of models, the mean over layers and directions for each `by`."""
    means: dict[frozenset[str], dict[str, list[float]]] = {}
    for (x, y, name), mean in rows.groupby(["x", "y", by], sort=False)["value"].mean().items():
        if x != y:
            means.setdefault(frozenset([x, y]), {}).setdefault(name, []).append(mean)
    return {
        pair: {name: sum(parts) / len(parts) for name, parts in by_name.items()}
        for pair, by_name in means.items()
    }
