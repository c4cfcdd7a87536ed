"""Claims of Ren et al. 2023 on fine-tuning, injection and complexity."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.evidence.claim import ABOVE, BELOW, Evidence
from simlab.evidence.intervals import Value, value_of
from simlab.evidence.labels import PRETRAINED, TUNED
from simlab.evidence.ren import ERRORS, INN, LINEAR, between_seeds, first_kind, pair_means
from simlab.evidence.rows import TaskRows
from simlab.evidence.studies import left_out, note
from simlab.evidence.wording import KEPT, SHARE, number
from simlab.representations.kinds import ATTENTION
from simlab.store.results import (
    CHOSEN,
    COMPLEXITY,
    HELDOUT,
    INJECTION,
    ITSELF,
    NUCLEAR,
    NUCLEAR_RAW,
    OF_ONE_METHOD,
)
from simlab.tasks.metrics import METRICS

if TYPE_CHECKING:
    import pandas as pd

DEEP_SHARE = 0.5  # layers 7 to 12 of 12 (figure 5)
TOP_SHARE = 1 / 3  # layers 9 to 12 of 12 (appendix B.2)
_COMPLEXITIES = {NUCLEAR: "nuclear norm at unit Frobenius norm", NUCLEAR_RAW: "nuclear norm"}


def deep_layers_move(rows: TaskRows) -> Iterator[Evidence]:
    """Compare the errors of maps between deep layers before and after fine-tuning."""
    states = rows.alignment()
    yield from _grown(rows, first_kind(states[states["kind"] != ATTENTION]), "hidden states", True)


def attention_stays(rows: TaskRows) -> Iterator[Evidence]:
    """Compare the errors of maps of attention before and after fine-tuning."""
    errors = rows.alignment()
    yield from _grown(rows, errors[errors["kind"] == ATTENTION], "attention", False)


def _grown(rows: TaskRows, errors: pd.DataFrame, what: str, deep: bool) -> Iterator[Evidence]:
    """Yield by how much the errors between two pretrained models grow with fine-tuning."""
    errors = errors[(errors["rows"] == HELDOUT) & (errors["role_x"] == errors["role_y"])]
    if deep and len(errors):
        errors = errors[errors["layer_x"] > DEEP_SHARE * errors["layer_x"].max()]
        what = f"{what} of the upper half of the layers"
    for method, measure in product((INN, LINEAR), ERRORS):
        some = errors[(errors["method"] == method) & (errors["measure"] == measure)]
        sides = [some[some["role_x"] == role] for role in (PRETRAINED, TUNED)]
        if any(side.empty for side in sides) or some["protocol"].nunique() > 1:
            continue
        before, after = (pair_means(side, "method") for side in sides)
        first = {_origins(rows, pair): means[method] for pair, means in before.items()}
        growth = {
            pair: means[method] / first[_origins(rows, pair)] - 1
            for pair, means in after.items()
            if _origins(rows, pair) in first and len(_origins(rows, pair)) == 2
        }
        if growth:
            words = "before {}, after {}".format(
                *(number(float(side["value"].mean())) for side in sides)
            )
            yield Evidence(
                f"{ERRORS[measure]} of {method} maps of {what}, after fine-tuning as a share of "
                "that before, minus 1",
                [Value(pair, value) for pair, value in growth.items()],
                SHARE if deep else KEPT,
                ABOVE if deep else BELOW,
                note(words, left_out(*sides)),
            )


def _origins(rows: TaskRows, pair: frozenset[str]) -> frozenset[str]:
    return frozenset(rows.who[name].origin for name in pair)


def inn_keeps_metric(rows: TaskRows) -> Iterator[Evidence]:
    """Compare `inn` with other methods by the metric with mapped states."""
    some = rows.frame[rows.frame["experiment"] == INJECTION]
    some = some[some["measure"].isin(list(METRICS)) & some["value"].notna()]
    some, dropped = _first_protocol(some)
    values = pair_means(rows.read_rows(some), "method")
    for method in ("linear", "cca", "pwcca", "mlp"):
        both = {pair: means for pair, means in values.items() if {INN, method} <= means.keys()}
        gains = {pair: means[INN] - means[method] for pair, means in both.items()}
        pairs = between_seeds(rows, gains)
        if pairs:
            words = [
                f"{name} {number(float(np.mean([means[name] for means in both.values()])))}"
                for name in (INN, method, ITSELF)
                if all(name in means for means in both.values())
            ]
            yield Evidence(
                f"metric with states that inn mapped minus with {method}",
                pairs,
                rows.options.tolerance,
                note=note(", ".join(words), _not_read(dropped, some, (INN, method))),
            )


def _first_protocol(some: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows of the first way of injecting that `inn` has, and the other rows.

    Both have the columns ``method``, ``way`` (the choices of all methods), ``training`` and ``own``
    (the choices of this method alone).
    """
    options = [json.loads(text) for text in some["options"]]
    # Each map has a setting of its own where the best one was searched.
    options = [{k: v for k, v in one.items() if k != CHOSEN} for one in options]
    methods = [one.pop("method") for one in options]
    trainings = [one.pop("training", "") for one in options]
    own = [_in_words({k: one.pop(k) for k in OF_ONE_METHOD if k in one}) for one in options]
    places = zip(some["kind"], some["layer_x"], some["n"], options, strict=True)
    ways = [
        _in_words({"tokens": kind, "layer": int(layer), "n": int(n), **one})
        for kind, layer, n, one in places
    ]
    some = some.assign(method=methods, training=trainings, way=ways, own=own)
    of_inn = some[some["method"] == INN]
    if of_inn.empty:
        return of_inn, some
    # Methods that are solved, and not trained, have no training.
    trained = some["training"].isin(["", of_inn["training"].iloc[0]])
    alike = some[trained & (some["way"] == of_inn["way"].iloc[0])]
    read = alike[alike["own"] == alike["method"].map(alike.groupby("method")["own"].agg(_default))]
    return read, some.drop(index=read.index)


def _default(choices: pd.Series) -> str:
    """Return no choice if there are rows without one, or else the first."""
    return "" if (choices == "").any() else str(choices.iloc[0])


def _in_words(choices: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {choice}" for name, choice in choices.items())


def _not_read(dropped: pd.DataFrame, read: pd.DataFrame, methods: Collection[str]) -> str:
    """Say which protocols of these methods were not read; nothing if all were read."""
    way = set(read["way"].iloc[0].split(", "))
    trainings = set(read["training"])
    words = []
    some = dropped[dropped["method"].isin(methods)]
    for one in some[["method", "way", "training", "own"]].drop_duplicates().itertuples():
        other = [word for word in one.way.split(", ") if word not in way]
        training = "" if one.training in trainings else f"training {one.training or 'ours'}"
        own = f"{one.method} with {one.own}" if one.own else ""
        words.append(", ".join(word for word in (*other, training, own) if word) or one.method)
    return f"left out {'; '.join(dict.fromkeys(words))}" if words else ""


def complexity_drops(rows: TaskRows) -> Iterator[Evidence]:
    """Compare the nuclear norms of the top third of the layers with the layers below."""
    some = rows.frame[rows.frame["experiment"] == COMPLEXITY]
    some = rows.read_rows(first_kind(some[some["layer_x"] > 0].dropna(subset="value")))
    for measure, name in _COMPLEXITIES.items():
        for role, who in ((PRETRAINED, ", pretrained models"), (TUNED, ", fine-tuned models")):
            part = some[(some["measure"] == measure) & (some["role_x"] == role)]
            curves = {
                str(model): mine.sort_values("layer_x")["value"].to_numpy(float)
                for model, mine in part.groupby("x", sort=False)
            }
            if curves:
                depths = sorted({len(norms) for norms in curves.values()})
                yield Evidence(
                    f"{name} of the top third of the layers as a share of that below, minus 1{who}",
                    [value_of(model, _drop(norms)) for model, norms in curves.items()],
                    -SHARE,
                    BELOW,
                    note=" or ".join(f"top {_of_top(depth)} of {depth} layers" for depth in depths),
                )


def _of_top(depth: int) -> int:
    """Return how many layers are the top third: 2 of 4, because a third is rounded up."""
    return math.ceil(TOP_SHARE * depth)


def _drop(norms: np.ndarray) -> float:
    top = _of_top(len(norms))
    return float(norms[-top:].mean() / norms[:-top].mean() - 1) if top < len(norms) else math.nan
