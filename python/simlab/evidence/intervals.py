"""Estimates over models, their intervals, and the verdicts that follow from an interval.

A claim is estimated from *units*: values that one model gave (a fine-tuning with one seed), or a
pair of models. The interval is that of the jackknife over models (Arvesen 1969): with m models, let
e be the estimate from all units, and e(k) the estimate without the units of model k. Then

    variance = (m - 1) / m * sum over k of (e(k) - mean of all e(k))^2
    interval = e -+ t(1 - ALPHA / 2; m - 1) * sqrt(variance + spread^2)

where `spread` is the error of e over the examples, if it is known. For the mean of one value a
model this is the ordinary t interval; for the mean over pairs it allows for pairs that share a
model. With fewer than `LEAST_MODELS` models there is no interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

ALPHA = 0.05
LEAST_MODELS = 3
HOLDS, FAILS, UNDECIDED, NO_ROWS = "holds", "fails", "undecided", "no rows"


@dataclass(frozen=True)
class Unit:
    """A value that one model or one pair of models gave.

    Attributes
    ----------
    models
        Names of the models.
    value
        A number; nan where it is undefined.
    group
        Which of several means the value belongs to, where a claim compares means.
    """

    models: frozenset[str]
    value: float
    group: str = ""


@dataclass(frozen=True)
class Interval:
    """An estimate and its bounds (nan if there is no interval), from a number of models."""

    estimate: float
    low: float
    high: float
    models: int


Statistic = Callable[[Sequence[Unit]], float]
Decide = Callable[[Interval], str]


def unit(model: str, value: float, group: str = "") -> Unit:
    """Return the value of one model."""
    return Unit(frozenset([model]), float(value), group)


def mean_value(units: Sequence[Unit]) -> float:
    """Return the mean of all units; nan if there are none."""
    return float(np.mean([unit.value for unit in units])) if units else math.nan


def difference_of_groups(first: str, second: str) -> Statistic:
    """Return the statistic "mean of group `first` minus mean of group `second`"."""

    def difference(units: Sequence[Unit]) -> float:
        means = [mean_value([u for u in units if u.group == name]) for name in (first, second)]
        return means[0] - means[1]

    return difference


def interval(
    units: Sequence[Unit], statistic: Statistic = mean_value, spread: float = 0.0
) -> Interval:
    """Return the estimate from all units that are defined, and its interval (see above).

    Parameters
    ----------
    spread
        Standard deviation of the estimate over the examples.
    """
    defined = [unit for unit in units if math.isfinite(unit.value)]
    models = sorted(frozenset[str]().union(*(unit.models for unit in defined)))
    estimate, count = statistic(defined), len(models)
    if count < LEAST_MODELS:
        return Interval(estimate, math.nan, math.nan, count)
    from scipy.stats import t

    without = [statistic([u for u in defined if model not in u.models]) for model in models]
    variance = (count - 1) * float(np.var(without))  # nan if a statistic needs every model
    half = float(t.ppf(1 - ALPHA / 2, count - 1)) * math.sqrt(variance + spread**2)
    return Interval(estimate, estimate - half, estimate + half, count)


def above(found: Interval) -> str:
    """Decide the claim that the estimated quantity is above 0."""
    if found.low > 0:
        return HOLDS
    return FAILS if found.high < 0 else UNDECIDED


def below(found: Interval) -> str:
    """Decide the claim that the estimated quantity is below 0."""
    if found.high < 0:
        return HOLDS
    return FAILS if found.low > 0 else UNDECIDED


def at_all(found: Interval) -> str:
    """Decide the claim that a mean count is not 0; it fails where the mean is certainly below 1."""
    is_some, is_none = found.low > 0, found.high < 1
    return UNDECIDED if is_some == is_none else HOLDS if is_some else FAILS
