"""Estimates over units, their intervals, and the p-values that decide verdicts.

A claim is estimated from values of *units*: the pretrained models, tasks or fine-tunings that the
claim is about. A value belongs to one unit or to a pair. The interval comes from the jackknife over
units (Arvesen 1969): with m units, let e be the estimate from all values, and e(k) the estimate
without the values of unit k. Then

    variance = (m - 1) / m * sum over k of (e(k) - mean of all e(k))^2
    interval = e -+ t(1 - ALPHA / 2; m - 1) * sqrt(variance + spread^2)

where `spread` is the error of e over the examples, if it is known. For the mean of one value of
each unit this is the ordinary t interval; for the mean over pairs it allows for pairs that share a
unit. The p-value comes from the t test of the least effect, two-sided.

With fewer than `LEAST_UNITS` units there is neither. Where all units agree exactly, a t interval
would have no width, and the t test p = 0: the test of signs takes its place, p = 2^(1 - m), which
needs six units.

Rank correlations with depth are heaped near -1 and 1, because curves over layers rise or fall as a
whole. So three or five units often agree closely by chance, and the t test takes their agreement
for a small error. Where curves are random walks whose mean correlation is .29, the t test says
"beyond .3" in 11 % of the trials with three units and in 8 % with five. A trend therefore holds
only if a test of signs is significant too, which needs six units. Holm's correction is one of the
t test's p-value alone. `verdict-errors.csv` of examples/studies has the errors that are left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

ALPHA = 0.05
LEAST_UNITS = 3
MOST = 0.75  # share of the tasks of which a condition must be met
HOLDS, FAILS, UNDECIDED, NO_ROWS = "holds", "fails", "undecided", "no rows"
CANNOT = "cannot be decided by this study"
EQUAL = 1e-9  # estimates that differ by less are equal, up to rounding


@dataclass(frozen=True)
class Value:
    """A value that one model or unit, or one pair of them, gave."""

    names: frozenset[str]  # of the models, as `TaskRows.who` has them, or of the units
    value: float  # nan where it is undefined
    group: str = ""  # which of several means the value belongs to, where a claim compares means


@dataclass(frozen=True)
class Interval:
    """An estimate, its bounds, and the p-value of the least effect."""

    estimate: float
    low: float  # nan, as `high`, if there is no interval
    high: float
    count: int  # number of units
    pvalue: float = math.nan  # two-sided; nan with fewer than `LEAST_UNITS` units


Statistic = Callable[[Sequence[Value]], float]


def value_of(name: str, value: float) -> Value:
    """Return the value of one model or unit."""
    return Value(frozenset([name]), float(value))


def mean_value(units: Sequence[Value]) -> float:
    """Return the mean of all units; nan if there are none."""
    return float(np.mean([unit.value for unit in units])) if units else math.nan


def difference_of_groups(first: str, second: str) -> Statistic:
    """Return the statistic "mean of group `first` minus mean of group `second`"."""

    def difference(units: Sequence[Value]) -> float:
        means = [mean_value([u for u in units if u.group == name]) for name in (first, second)]
        return means[0] - means[1]

    return difference


def interval(
    units: Sequence[Value],
    statistic: Statistic = mean_value,
    spread: float = 0.0,
    least: float = 0.0,
) -> Interval:
    """Return the estimate from all values that are defined, its interval and p-value (see above).

    `spread` is the standard deviation of the estimate over the examples, and `least` the least
    effect of interest, which the estimate is tested against.
    """
    estimate, without = _jackknife(units, statistic)
    count = len(without)
    if count < LEAST_UNITS:
        return Interval(estimate, math.nan, math.nan, count)
    from scipy.stats import t

    if np.ptp(without) <= EQUAL and spread == 0:
        pvalue = 1.0 if estimate == least else 2.0 ** (1 - count)
        return Interval(estimate, math.nan, math.nan, count, pvalue)
    variance = (count - 1) * float(np.var(without))  # nan if a statistic needs every unit
    error = math.sqrt(variance + spread**2)
    half = float(t.ppf(1 - ALPHA / 2, count - 1)) * error
    pvalue = 2 * float(t.sf(abs(estimate - least) / error, count - 1))
    return Interval(estimate, estimate - half, estimate + half, count, pvalue)


def sign_pvalue(
    units: Sequence[Value], statistic: Statistic = mean_value, least: float = 0.0
) -> float:
    """Return the p-value of the test of signs: how many units are where the estimate is.

    That is beyond `least` or short of it; the p-value is two-sided.

    A unit's own value is the jackknife's pseudo-value m e - (m - 1) e(k) (Tukey 1958). For one
    value of each unit it is that value; of pairs, it is the share of the unit alone.
    """
    from scipy.stats import binom

    estimate, without = _jackknife(units, statistic)
    count = len(without)
    own = count * estimate - (count - 1) * without
    agree = np.sum((own - least) * (estimate - least) > 0)
    return min(1.0, 2 * float(binom.sf(agree - 1, count, 0.5)))


def _jackknife(units: Sequence[Value], statistic: Statistic) -> tuple[float, np.ndarray]:
    """Return the estimate from all values that are defined, and without each unit's values."""
    defined = [unit for unit in units if math.isfinite(unit.value)]
    names = sorted(frozenset[str]().union(*(unit.names for unit in defined)))
    without = [statistic([u for u in defined if name not in u.names]) for name in names]
    return statistic(defined), np.array(without)


def pvalue_of_most(pvalues: Sequence[float]) -> float:
    """Return the p-value of "none of the effects is there", which most tests must reject.

    If k of n p-values are at most p, n / k times p is a p-value however the tests depend on each
    other (Rüger 1978). Here k is three quarters of n, rounded up.
    """
    ordered = sorted(pvalues)
    rank = math.ceil(MOST * len(ordered))
    return min(1.0, len(ordered) / rank * ordered[rank - 1])


def holm(pvalues: Sequence[float]) -> list[float]:
    """Return p-values adjusted by Holm's method (1979); nan counts for nothing and stays nan."""
    order = sorted((p, place) for place, p in enumerate(pvalues) if not math.isnan(p))
    adjusted, largest = [math.nan] * len(pvalues), 0.0
    for rank, (pvalue, place) in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * pvalue))
        adjusted[place] = largest
    return adjusted


def can_decide(interval: Interval) -> bool:
    """Return whether the units could decide a claim, if there were no other claim."""
    if math.isnan(interval.pvalue):
        return False
    return not agree(interval) or 2.0 ** (1 - interval.count) <= ALPHA


def agree(interval: Interval) -> bool:
    """Return whether all units agree exactly, so that signs are tested."""
    return math.isnan(interval.low) and not math.isnan(interval.pvalue)
