"""Claims of Phang et al. 2021 on kinds of models: ELECTRA and ALBERT against the others.

A task has one value, the difference between the kinds of models in it; the tasks are the units.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from simlab.evidence.blocks import block_scores
from simlab.evidence.claim import BELOW, Evidence
from simlab.evidence.intervals import Value, difference_of_groups
from simlab.evidence.phang import gains_without_top, truncation_curves
from simlab.evidence.rows import TaskRows
from simlab.evidence.wording import SLIGHT

if TYPE_CHECKING:
    import pandas as pd

ELECTRA, ALBERT = "electra", "albert"
_ONE, _OTHERS = "one", "others"
_DIFFERENCE = difference_of_groups(_ONE, _OTHERS)


def electra_without_blocks(rows: TaskRows) -> Iterator[Evidence]:
    """Compare the block scores of ELECTRA with the other models' scores."""
    values = _groups(rows, block_scores(rows), ELECTRA)
    if values:
        quantity = "score of the split into two blocks, ELECTRA minus the other models"
        yield Evidence(quantity, values, -SLIGHT, BELOW, statistic=_DIFFERENCE)


def electra_needs_top(rows: TaskRows) -> Iterator[Evidence]:
    """Compare how much the metric changes without the top layers, in ELECTRA and elsewhere."""
    for mode in ("untuned", "tuned"):
        gains, _ = gains_without_top(rows, mode)
        values = _groups(rows, gains, ELECTRA)
        if values:
            yield Evidence(
                "metric without the top quarter of the layers minus with all, "
                f"{mode} head, ELECTRA minus the other models",
                values,
                -rows.options.tolerance,
                BELOW,
                statistic=_DIFFERENCE,
            )


def albert_spares_more(rows: TaskRows) -> Iterator[Evidence]:
    """Compare the share of layers that can go at the top of ALBERT and of other models."""
    whole = {model: curve.iloc[-1] for model, curve in truncation_curves(rows, "untuned")}
    for mode in ("untuned", "tuned"):
        shares = {
            model: spare_share(
                curve.drop(0, errors="ignore") - whole[model], rows.options.tolerance
            )
            for model, curve in truncation_curves(rows, mode)
            if model in whole
        }
        values = _groups(rows, shares, ALBERT, without=ELECTRA)
        if values:
            yield Evidence(
                f"share of layers that can go, {mode} head, ALBERT minus the other models",
                values,
                SLIGHT,
                statistic=_DIFFERENCE,
                signs=True,  # in few tasks one dear cut loses most layers: most means are too high
            )


def spare_share(gains: pd.Series, tolerance: float) -> float:
    """Return the share of layers that can go one after the other from the top.

    The lowest of all layers at which the loss is small could be a lucky one, above which many cost.
    """
    layers = sorted(gains.index)
    dear = [layer for layer in layers[:-1] if not gains[layer] >= -tolerance]
    lowest = layers[layers.index(dear[-1]) + 1] if dear else layers[0]
    return float(layers[-1] - lowest) / layers[-1]


def _groups(
    rows: TaskRows, values: Mapping[str, float], kind: str, without: str = ""
) -> list[Value]:
    """Return a value for each base model and task; nothing if all are of `kind`, or none is."""
    parts: dict[tuple[str, str, str], list[str]] = {}
    for model, value in values.items():
        one = rows.who[model]
        called = f"{one.base} {one.origin} {model}".lower()
        if not math.isnan(value) and not (without and without in called):
            group = _ONE if kind in called else _OTHERS
            parts.setdefault((group, one.base, one.task), []).append(model)
    if {group for group, *_ in parts} != {_ONE, _OTHERS}:
        return []
    return [
        Value(frozenset(models), float(np.mean([values[name] for name in models])), group)
        for (group, *_), models in parts.items()
    ]
