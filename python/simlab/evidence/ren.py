"""Claims of Ren et al. 2023: invertible networks, depth, attention, fine-tuning, complexity."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product

import pandas as pd

from simlab.evidence.claim import Quantity, Values, compared, depth_trend, mean, note, pairs_counted
from simlab.evidence.rows import PRETRAINED, TUNED, Task, one_study
from simlab.representations.kinds import ATTENTION
from simlab.results import results

DEEP_SHARE = 0.5  # layers 7 to 12 of 12 (figure 5)
TOP_SHARE = 1 / 3  # layers 9 to 12 of 12 (appendix B.2)
INN, LINEAR = "inn", "linear"
_ERRORS = {results.MSE: "squared error", results.RELATIVE: "relative error"}
_ROLES = {TUNED: "", PRETRAINED: ", pretrained models", "": ", other models"}


def _pairs(task: Task, rows: pd.DataFrame) -> Values:
    """Return the mean over layers of each pair of models, in each direction and of both."""
    return task.pairs(task.means(rows, "xy"))


def _origins(task: Task, pair: Iterable[str]) -> frozenset[str]:
    return frozenset(task.who["origin"][name] for name in pair)


def _apart(task: Task, quantity: Quantity) -> Quantity:
    """Return the quantity of pairs that were pretrained apart; of all pairs if there are none."""
    apart = {k: v for k, v in quantity.values.items() if len(_origins(task, k)) == 2}
    return replace(quantity, values=apart or quantity.values)


def _by_role(errors: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield errors between models of one role, and words for the role."""
    same = errors[errors["role_x"] == errors["role_y"]]
    for role, part in same.groupby("role_x", sort=False):
        yield _ROLES[str(role)], part


def _states(errors: pd.DataFrame) -> pd.DataFrame:
    """Return the errors of the first kind of hidden states."""
    states = errors[errors["kind"] != ATTENTION]
    return states[states["kind"].eq(states["kind"].iloc[0])] if len(states) else states


def _each(*tables: pd.DataFrame) -> Iterator[tuple[str, str, list[pd.DataFrame]]]:
    """Yield `inn` and `linear`, if all tables have them, with each error and the tables' rows."""
    for method, (measure, name) in product((INN, LINEAR), _ERRORS.items()):
        selected = [t[(t["method"] == method) & (t["measure"] == measure)] for t in tables]
        if all(map(len, selected)):
            yield method, name, selected


def _inn_finds_known_map(task: Task) -> Iterator[Quantity]:
    rows = task.rows(results.KNOWN_MAP)
    rows = rows[rows["rows"] == results.HELDOUT]
    for (measure, name), method in product(_ERRORS.items(), (LINEAR, "cca", "svcca", "pwcca")):
        some = rows[rows["measure"] == measure]
        sides = {way: task.means(some[some["method"] == way], "x") for way in (INN, method)}
        text = f"{name} of inn as a share of that of {method}, minus 1, as inverses of f"
        yield compared(text, sides, share=True)


def _inn_beats_linear(task: Task) -> Iterator[Quantity]:
    for who, errors in _by_role(task.maps((INN, LINEAR))):
        states = _states(errors)
        for measure, name in _ERRORS.items():
            rows = states[states["measure"] == measure]
            sides = {m: _pairs(task, rows[rows["method"] == m]) for m in (INN, LINEAR)}
            text = f"{name} of inn as a share of that of linear, minus 1{who}"
            yield _apart(task, compared(text, sides, *rows["left_out"].unique(), share=True))


def _deeper_layers_vary(task: Task) -> Iterator[Quantity]:
    for who, errors in _by_role(task.maps()):
        for method, name, (rows,) in _each(_states(errors)):
            ends = zip(rows["x"].tolist(), rows["y"].tolist(), strict=True)
            rows = rows.assign(pair=pd.Series([tuple(sorted(xy)) for xy in ends], rows.index))
            curves = task.by(rows[rows["x"] != rows["y"]], "pair", "layer_x")
            text = f"Spearman's correlation of depth and {name} of {method} maps{who}"
            trends = {pair: depth_trend(*curve) for pair, curve in curves.items()}
            apart = _apart(task, Quantity(text, trends))
            words = note(pairs_counted(apart.values), *rows["left_out"].unique())
            yield replace(apart, note=words)


def _attention_varies_less(task: Task) -> Iterator[Quantity]:
    for who, errors in _by_role(task.maps(alike=True)):
        for method, name, both in _each(errors[errors["kind"] == ATTENTION], _states(errors)):
            text = f"{name} of {method} maps of attention as a share of that of hidden states"
            attention, states = (_pairs(task, rows) for rows in both)
            sides = {"attention": attention, "hidden states": states}
            notes = pd.concat(both)["left_out"].unique()
            yield _apart(task, compared(f"{text}, minus 1{who}", sides, *notes, share=True))


def _growth(task: Task, errors: pd.DataFrame, what: str) -> Iterator[Quantity]:
    """Yield by how much the errors between two pretrained models grow with fine-tuning."""
    errors = errors[errors["role_x"] == errors["role_y"]]
    before, after = (errors[errors["role_x"] == role] for role in (PRETRAINED, TUNED))
    for method, name, both in _each(after, before):
        if pd.concat(both)["protocol"].nunique() == 1:
            grown, first = (_pairs(task, rows) for rows in both)
            start = {_origins(task, pair): value for pair, value in first.items()}
            ends = {pair: _origins(task, pair) for pair in grown if len(_origins(task, pair)) == 2}
            begun = {pair: start[ends[pair]] for pair in ends if ends[pair] in start}
            sides, notes = {"after": grown, "before": begun}, pd.concat(both)["left_out"].unique()
            text = f"{name} of {method} maps of {what}, after fine-tuning as a share of that before"
            yield _apart(task, compared(f"{text}, minus 1", sides, *notes, share=True))


def _deep_layers_move_apart(task: Task) -> Iterator[Quantity]:
    errors = _states(task.maps())
    deep = errors[errors["layer_x"] > DEEP_SHARE * errors["layer_x"].max()]
    yield from _growth(task, deep, "hidden states of the upper half of the layers")


def _attention_is_kept(task: Task) -> Iterator[Quantity]:
    errors = task.maps()
    yield from _growth(task, errors[errors["kind"] == ATTENTION], "attention")


def _inn_keeps_metric(task: Task) -> Iterator[Quantity]:
    rows = task.rows(results.INJECTION, metric=True).dropna(subset="value")
    for method in (LINEAR, "cca", "pwcca", "mlp"):
        read = one_study(rows, ["experiment"], ["kind", "layer_x", "protocol", "n"], (INN, method))
        sides = {m: _pairs(task, read[read["method"] == m]) for m in (INN, method)}
        text = f"metric with states that inn mapped minus with {method}"
        yield _apart(task, compared(text, sides, *read["left_out"].unique()))


def _complexity_drops(task: Task) -> Iterator[Quantity]:
    rows = task.rows(results.COMPLEXITY)
    rows = rows[rows["layer_x"] > 0].dropna(subset="value")
    rows = rows[rows["kind"] == rows["kind"].iloc[0]] if len(rows) else rows
    measures = ((results.NUCLEAR, "nuclear norm at unit Frobenius norm"),
                (results.NUCLEAR_RAW, "nuclear norm"))  # fmt: skip
    for (measure, name), role in product(measures, (PRETRAINED, TUNED)):
        some = rows[(rows["measure"] == measure) & (rows["role_x"] == role)]
        drops = {}
        for model, (layers, norms) in task.by(some, "x", "layer_x").items():
            top = math.ceil(TOP_SHARE * len(layers))
            drops[model] = mean(norms[-top:]) / mean(norms[:-top]) - 1
        text = f"{name} of the top third of the layers as a share of that below, minus 1"
        yield Quantity(f"{text}, {role} models", drops)
