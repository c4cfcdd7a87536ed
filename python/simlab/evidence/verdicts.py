"""From the quantities of a claim to verdicts: units, intervals, tests, Holm's correction.

A claim is estimated from values of *units*: the pretrained models, tasks or fine-tunings that the
claim is about. A value belongs to one unit or to a pair. The interval comes from the jackknife over
units (Arvesen 1969): with m units, let e be the estimate from all values, and e(k) the estimate
without the values of unit k. Then

    variance = (m - 1) / m * sum over k of (e(k) - mean of all e(k))^2
    interval = e -+ t(1 - ALPHA / 2; m - 1) * sqrt(variance + spread^2)

where `spread` is the standard deviation of e over draws of the examples (`rows`), of several cases
the largest. For the mean of one value of each unit this is the ordinary t interval; for the mean
over pairs it allows for pairs that share a unit. The p-value comes from the t test of the least
effect, two-sided. With fewer than `LEAST_UNITS` units there is neither. Where all units agree
exactly, a test of signs takes the place of the t test, p = 2^(1 - m), which needs six units.

Rank correlations with depth are heaped near -1 and 1, because curves over layers rise or fall as a
whole. So three or five units often agree closely by chance, and the t test takes their agreement
for a small error: where curves are random walks whose mean correlation is .29, the t test says
"beyond .3" in 11 % of the trials with three units and in 8 % with five. A trend therefore holds
only if a test of signs is significant too. Holm's correction is one of the t test's p-value alone.
`verdict-errors.csv` of examples/studies has the errors that are left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from typing import Any

import numpy as np
import pandas as pd

from simlab.evidence.claim import (
    ARCHITECTURES,
    MODELS,
    NETWORKS,
    RUNS,
    TASKS,
    Claim,
    Quantity,
    Values,
    mean,
    note,
    number,
)
from simlab.evidence.rows import CASES, ClaimOptions, Task, tasks_of
from simlab.tasks.task import of_metric

ALPHA = 0.05
LEAST_UNITS = 3
MOST = 0.75  # share of the tasks in which chance must be excluded
EQUAL = 1e-9  # estimates that differ by less are equal, up to rounding
HOLDS, FAILS, UNDECIDED, NO_ROWS = "holds", "fails", "undecided", "no rows"
CANNOT = "cannot be decided by this study"
ALL = "all"  # in place of the name of a task


@dataclass(frozen=True)
class Verdict:
    """A row of the table of claims: an estimate, its interval, and what it says of the claim."""

    estimate: float
    low: float = math.nan  # nan, as `high`, if there is no interval
    high: float = math.nan
    units: int = 0
    pvalue: float = math.nan  # two-sided, of the least effect; nan with too few units
    least: float = 0.0
    side: int = 1
    verdict: str = CANNOT  # before Holm's correction, unless `adjusted` is there
    note: str = ""
    adjusted: float = math.nan  # the p-value after Holm's correction over the table
    task: str = ""  # `ALL` for all tasks
    base: str = ""  # empty for all base models
    quantity: str = ""
    unit: str = ""  # what the estimate is a mean over

    @property
    def agree(self) -> bool:
        """Whether all units agree exactly, so that signs are tested."""
        return math.isnan(self.low) and not math.isnan(self.pvalue)


class Units:
    """Values of units or of pairs of units: their mean, or the difference of two means."""

    def __init__(self, values: Values, minus: Values | None = None) -> None:
        minus = minus or {}
        keys, every = [*values, *minus], [*values.values(), *minus.values()]
        self.names = [frozenset([key] if isinstance(key, str) else key) for key in keys]
        self.values = np.stack(np.broadcast_arrays(*map(np.atleast_1d, every)))  # [.., 1 + draws]
        self.first = np.arange(len(keys)) < len(values)

    def kept(self, kept: np.ndarray | list[bool]) -> Units:
        """Return some of the values."""
        some = copy(self)
        some.names = list(compress(self.names, kept))
        some.values, some.first = self.values[kept], self.first[kept]
        return some

    def named(self, units: Mapping[str, str] | pd.Series) -> Units:
        """Return the values by the names of other units."""
        some = copy(self)
        some.names = [frozenset(units[name] for name in names) for names in self.names]
        return some

    @property
    def every(self) -> list[str]:
        """The names of all units."""
        return sorted(frozenset[str]().union(*self.names))

    def averaged(self) -> Units:
        """Return the mean of the values of equal units."""
        sides: list[dict[Any, list[np.ndarray]]] = [{}, {}]
        for names, first, value in zip(self.names, self.first, self.values, strict=True):
            sides[not first].setdefault(names, []).append(value)
        return Units(*({names: mean(some) for names, some in side.items()} for side in sides))

    def estimates(self) -> np.ndarray:
        """Return the estimate [1 + draws]."""
        first = mean(self.values[self.first])
        return first if self.first.all() else first - mean(self.values[~self.first])

    def spread(self) -> float:
        """Return the standard deviation over the examples in the worst case; 0 if not known."""
        draws = self.estimates()[1:]
        cases = np.split(draws, CASES) if len(draws) else [np.zeros(2)]
        spread = max(np.nanstd(case, ddof=1) for case in cases)
        return float(spread) if spread > EQUAL else 0.0

    def jackknife(self) -> tuple[float, np.ndarray]:
        """Return the estimate, and the estimate without each unit; undefined values left out."""
        defined = self.kept(np.isfinite(self.values[:, 0]))
        defined.values = defined.values[:, :1]
        rest = [
            defined.kept([unit not in names for names in defined.names]) for unit in defined.every
        ]
        return float(defined.estimates()[0]), np.array([some.estimates()[0] for some in rest])

    def interval(self, least: float = 0.0) -> Verdict:
        """Return the estimate, its interval and the p-value of the least effect (see above)."""
        estimate, without = self.jackknife()
        spread, count = self.spread(), len(without)
        if count < LEAST_UNITS:
            return Verdict(estimate, units=count, least=least)
        from scipy.stats import t

        if np.ptp(without) <= EQUAL and spread == 0:
            pvalue = 1.0 if estimate == least else 2.0 ** (1 - count)
            return Verdict(estimate, units=count, pvalue=pvalue, least=least)
        variance = (count - 1) * float(np.var(without))  # nan if a mean needs every unit
        error = math.sqrt(variance + spread**2)
        half = float(t.ppf(1 - ALPHA / 2, count - 1)) * error
        pvalue = 2 * float(t.sf(abs(estimate - least) / error, count - 1))
        return Verdict(estimate, estimate - half, estimate + half, count, pvalue, least)

    def sign_pvalue(self, least: float = 0.0) -> float:
        """Return the p-value of the test of signs: how many units are where the estimate is.

        A unit's own value is the jackknife's pseudo-value m e - (m - 1) e(k) (Tukey 1958). For one
        value of each unit it is that value; of pairs, it is the share of the unit alone.
        """
        from scipy.stats import binom

        estimate, without = self.jackknife()
        pseudo = len(without) * estimate - (len(without) - 1) * without
        agree = np.sum((pseudo - least) * (estimate - least) > 0)
        return min(1.0, 2 * float(binom.sf(agree - 1, len(without), 0.5)))


def pvalue_of_most(pvalues: Sequence[float]) -> float:
    """Return the p-value of "none of the effects is there", which most tests must reject.

    If k of n p-values are at most p, n / k times p is a p-value however the tests depend on each
    other (Rüger 1978). Here k is three quarters of n, rounded up.
    """
    rank = math.ceil(MOST * len(pvalues))
    return min(1.0, len(pvalues) / rank * sorted(pvalues)[rank - 1])


def holm(pvalues: Sequence[float]) -> list[float]:
    """Return p-values adjusted by Holm's method (1979)."""
    order = np.argsort(pvalues, kind="stable")
    steps = np.asarray(pvalues, float)[order] * np.arange(len(order), 0, -1)
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted.tolist()


def corrected_verdicts(
    frame: pd.DataFrame, claims: Iterable[Claim], options: ClaimOptions
) -> list[tuple[Claim, Verdict]]:
    """Return the verdicts on each claim, with Holm's correction over all that have a p-value."""
    tasks = tasks_of(of_metric(frame, options.metric), options)
    judged = [(claim, result) for claim in claims for result in verdicts(claim, tasks)]
    able = [index for index, (_, result) in enumerate(judged) if result.verdict != CANNOT]
    tests = [judged[index][1] for index in able]
    # Units that agree have a test of signs alone, which is not corrected.
    pvalues = [
        0.0 if result.agree and result.pvalue <= ALPHA else result.pvalue for result in tests
    ]
    for index, result, adjusted in zip(able, tests, holm(pvalues), strict=True):
        pvalue = max(adjusted, result.pvalue)
        verdict = result.verdict if pvalue <= ALPHA else UNDECIDED
        judged[index] = judged[index][0], replace(result, adjusted=pvalue, verdict=verdict)
    return judged


def verdicts(claim: Claim, tasks: Sequence[Task]) -> Iterator[Verdict]:
    """Yield verdicts that do not allow for other verdicts beside them: in tasks, then over them."""
    whole = [("", task) for task in tasks]
    parts = [part for task in tasks for part in task.of_bases] if claim.about == RUNS else whole
    quantities = [
        (base, task, estimated)
        for base, task in parts
        for estimated in claim.quantities(task)
        if estimated.values
    ]
    for base, task, quantity in quantities if claim.about != TASKS else ():
        units, kind = Units(quantity.values, quantity.minus), claim.about
        if kind == ARCHITECTURES:
            units = units.named(task.who["architecture"]).averaged()
        elif kind != NETWORKS:
            origins = units.named(task.who["origin"])
            # Fine-tunings of several pretrained models are no restarts of one.
            if kind == MODELS or len(origins.every) > 1:
                units, kind = origins, MODELS
        yield decide(claim, quantity, units, kind, task.options, task.name, base)
    if claim.over_tasks or claim.about == TASKS:
        yield from _over_tasks(claim, quantities)


def _over_tasks(
    claim: Claim, quantities: Iterable[tuple[str, Task, Quantity]]
) -> Iterator[Verdict]:
    """Yield a verdict for each base model and quantity of several tasks of fine-tuning.

    Where base models are compared, one task is enough. Values of pairs of bases or tasks are left
    out, and models that read several corpora have the mean. The errors of tasks with texts of their
    own are in their differences; where several tasks read one corpus, its error is added.
    """
    pools: dict[str, dict[str, list[tuple[Quantity, Units]]]] = {}
    for _, task, quantity in quantities:
        who = task.who.assign(family="") if claim.about == TASKS else task.who
        base_of, tuned_on = who["family"], who["tuned_on"].replace("", task.name)
        places = dict(zip(who.index, zip(base_of, tuned_on, strict=True), strict=True))
        units, options = Units(quantity.values, quantity.minus), task.options
        alone = units.kept([len({places[name] for name in names}) == 1 for names in units.names])
        bases = [base_of[min(names)] for names in alone.names]
        for base in dict.fromkeys(bases):
            shared = alone.kept([base == other for other in bases]).named(tuned_on)
            shared.values = shared.values[:, : None if len(set(shared.names)) > 1 else 1]
            pools.setdefault(quantity.text, {}).setdefault(base, []).append((quantity, shared))
    for by_base in pools.values():
        for base, parts in by_base.items():
            members = [shared for _, shared in parts]
            if claim.about != TASKS and len({unit for one in members for unit in one.every}) < 2:
                continue
            width = max(member.values.shape[1] for member in members)
            units = copy(members[0])
            units.names = [names for member in members for names in member.names]
            units.values = np.concatenate(
                [np.broadcast_to(m.values, (len(m.names), width)) for m in members]
            )
            units.first = np.concatenate([member.first for member in members])
            chances = [quantity.chance for quantity, _ in parts if quantity.chance is not None]
            chance = partial(_chance_of_most, chances) if chances else None
            first = parts[0][0]
            unable = first.unable if all(quantity.unable for quantity, _ in parts) else ""
            asked = replace(first, note="", chance=chance, unable=unable)
            yield decide(claim, asked, units.averaged(), TASKS, options, ALL, base)


def _chance_of_most(chances: Sequence[Callable[[], float]]) -> float:
    return pvalue_of_most([draw() for draw in chances])


def decide(
    claim: Claim,
    quantity: Quantity,
    units: Units,
    kind: str,
    options: ClaimOptions,
    task: str = "",
    base: str = "",
) -> Verdict:
    """Return the verdict on a quantity of these units.

    If the estimate is beyond the least effect, the verdict is "holds" or, if a further condition of
    the claim is not met, "undecided"; else it is "fails". The conditions are not corrected: few
    units could never meet a corrected level; eight of them have p = .0078 at least by their signs.
    """
    least = claim.least(options.tolerance) if quantity.least is None else quantity.least
    result = units.interval(least)
    beyond = claim.side * (result.estimate - least) > 0
    few = 2.0 ** (1 - result.units) > ALPHA  # for a test of signs
    unable = quantity.unable if beyond else ""
    if few and claim.signs and beyond:
        unable = unable or "a trend holds by a test of signs too, which needs 6 units"
    if few and result.agree:
        unable = unable or "all units agree, and a test of signs needs 6"
    if result.units < LEAST_UNITS:
        unable = f"wanted {LEAST_UNITS} {kind} or more"
    conditions = {} if quantity.chance is None else {"chance": quantity.chance()}
    if claim.signs and beyond and not unable:
        conditions["signs"] = units.sign_pvalue(least)
    verdict = HOLDS if beyond else FAILS
    if result.pvalue > ALPHA or (beyond and max(conditions.values(), default=0.0) > ALPHA):
        verdict = UNDECIDED
    if unable or math.isnan(result.pvalue):
        verdict = CANNOT
    words = note(
        quantity.note,
        *(f"p of {name} {number(pvalue)}" for name, pvalue in conditions.items()),
        "interval with the error over examples" * (units.spread() > 0 and result.low < result.high),
        unable,
    )
    said = replace(result, side=claim.side, verdict=verdict, note=words)
    return replace(said, task=task, base=base, quantity=quantity.text, unit=kind)
