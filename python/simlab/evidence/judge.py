"""Judge the claims on a results table: estimates, intervals with both errors, verdicts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from simlab.evidence.claim import BOTH, RUNS, TASKS, Claim, Evidence, Finding
from simlab.evidence.intervals import (
    ALPHA,
    CANNOT,
    FAILS,
    HOLDS,
    LEAST_UNITS,
    UNDECIDED,
    Value,
    can_decide,
    holm,
    interval,
    mean_value,
    sign_pvalue,
    value_of,
)
from simlab.evidence.options import ClaimOptions
from simlab.evidence.rows import TaskRows, at_last_steps
from simlab.evidence.units import units_of_task, units_over_tasks
from simlab.tasks.metrics import of_metric

if TYPE_CHECKING:
    import pandas as pd

DRAWS, DRAW_SEED = 20, 0
ALL = "all"  # in place of the name of a task
_EXAMPLES = "interval with the error over examples"
_FEW_SIGNS = "a trend holds by a test of signs too, which needs 6 units"
# Rows of one grid or one curve, such as the errors of a method's maps between two models.
_CURVE = ("x", "y", "experiment", "comparison", "measure", "kind", "options")


@dataclass(frozen=True)
class _Part:
    """The evidence of one task, and its spreads over the examples."""

    base: str
    rows: TaskRows
    evidence: Sequence[Evidence]
    spreads: dict[str, float]


def judge(
    frame: pd.DataFrame, claims: Iterable[Claim], options: ClaimOptions
) -> list[tuple[Claim, list[Finding]]]:
    """Return each claim with its findings; an empty list if there are no rows.

    Of a training run, the last step is judged: its steps are no models of their own.
    Holm's correction counts all findings that have a p-value.

    Raises
    ------
    UserError
        No task has the metric, or two rows give a model two values of one metric.
    """
    frame = of_metric(at_last_steps(frame), options.metric)
    tasks = [TaskRows(str(task), rows, options) for task, rows in frame.groupby("task", sort=False)]
    whole = [("", rows) for rows in tasks]
    apart = [part for rows in tasks for part in rows.by_base()]
    judged = []
    for claim in claims:
        parts = [_part(claim, *one) for one in (apart if claim.about == RUNS else whole)]
        if claim.about == TASKS:
            judged.append((claim, list(_over_tasks(claim, parts, apart=False))))
            continue
        single = [finding for part in parts for finding in _in_task(claim, part)]
        over = _over_tasks(claim, parts) if claim.over_tasks else ()
        judged.append((claim, [*single, *over]))
    return _corrected(judged)


def _part(claim: Claim, base: str, rows: TaskRows) -> _Part:
    rows = rows.with_values(rows.frame["value"].to_numpy(float))
    evidence = list(claim.judge(rows))
    return _Part(base, rows, evidence, _spreads_over_examples(claim, rows, evidence))


def _in_task(claim: Claim, part: _Part) -> Iterator[Finding]:
    for piece in part.evidence:
        kind, units = units_of_task(piece.values, part.rows.who, claim.about)
        spread = part.spreads.get(piece.quantity, 0.0)
        yield finding_of(part.rows.task, part.base, piece, kind, units, spread)


def _over_tasks(claim: Claim, parts: Sequence[_Part], *, apart: bool = True) -> Iterator[Finding]:
    """Yield a finding over the tasks for each base model and quantity of two tasks or more.

    If base models are compared, and not judged apart, one task is enough for a finding. Tasks that
    were judged on texts of their own have the error over examples in their differences; where
    fine-tunings of several tasks read one corpus, the error that they share is added.
    """
    pooled: dict[tuple[str, str], _Pool] = {}
    for part in parts:
        for piece in part.evidence:
            spread = part.spreads.get(piece.quantity, 0.0)
            over = units_over_tasks(piece.values, part.rows.who, piece.statistic, apart=apart)
            for base, units in over.items():
                pool = pooled.setdefault((base, piece.quantity), _Pool())
                pool.add(piece, units, spread if len(units) > 1 else 0.0)
    for (base, _), pool in pooled.items():
        if len(pool.units) > 1 or not apart:
            yield pool.finding(base, TASKS)
    for quantity in dict.fromkeys(quantity for _, quantity in pooled) if claim.pooled else ():
        together = _Pool()
        pools = {base: pool for (base, name), pool in pooled.items() if name == quantity}
        for base, pool in pools.items():
            named = {f"{base}, {task}": value_of(f"{base}, {task}", unit.value)
                     for task, unit in pool.units.items()}  # fmt: skip
            together.merge(pool, named)
        if len(pools) > 1 and any(len(pool.units) > 1 for pool in pools.values()):
            yield together.finding("", BOTH)


@dataclass
class _Pool:
    """The evidence of several tasks on one quantity.

    Attributes
    ----------
    values
        The values of each unit: one from every corpus that models of a task have read.
    """

    pieces: list[Evidence] = field(default_factory=list)
    values: dict[str, list[float]] = field(default_factory=dict)
    spread: float = 0.0

    @property
    def units(self) -> dict[str, Value]:
        """The mean of the values of each unit."""
        return {
            name: value_of(name, mean_value([value_of(name, one) for one in values if one == one]))
            for name, values in self.values.items()
        }

    def add(self, piece: Evidence, units: Mapping[str, Value], spread: float) -> None:
        self.pieces.append(piece)
        for name, unit in units.items():
            self.values.setdefault(name, []).append(unit.value)
        self.spread = max(self.spread, spread)

    def merge(self, other: _Pool, units: Mapping[str, Value]) -> None:
        self.pieces += other.pieces
        self.values |= {name: [unit.value] for name, unit in units.items()}
        self.spread = max(self.spread, other.spread)

    def finding(self, base: str, kind: str) -> Finding:
        unable = self.pieces[0].unable if all(one.unable for one in self.pieces) else ""
        chance = max(one.chance for one in self.pieces)
        asked = replace(self.pieces[0], note="", statistic=mean_value, chance=chance, unable=unable)
        return finding_of(ALL, base, asked, kind, list(self.units.values()), self.spread)


def finding_of(
    task: str, base: str, piece: Evidence, kind: str, units: Sequence[Value], spread: float
) -> Finding:
    """Return a finding whose verdict does not allow for other findings beside it."""
    result = interval(units, piece.statistic, spread, piece.least)
    beyond = piece.side * (result.estimate - piece.least) > 0
    chance, unable = piece.chance, piece.unable
    if piece.signs:
        chance = max(chance, sign_pvalue(units, piece.statistic, piece.least))
        unable = unable or (_FEW_SIGNS if 2.0 ** (1 - result.count) > ALPHA else "")
    if beyond and chance:
        result = replace(result, pvalue=max(result.pvalue, chance))
    able = can_decide(result) and not (beyond and unable)
    reason = "" if able else _missing(result.count, kind, unable if beyond else "")
    words = (piece.note, _EXAMPLES if spread and not math.isnan(result.low) else "", reason)
    note = "; ".join(word for word in words if word)
    verdict = (HOLDS if beyond else FAILS) if able else CANNOT
    return Finding(task, base, piece.quantity, kind, result, piece.least, piece.side, verdict, note)


def _missing(count: int, kind: str, unable: str) -> str:
    if unable and count >= LEAST_UNITS:
        return unable
    if count < LEAST_UNITS:
        return f"wanted {LEAST_UNITS} {kind} or more"
    return "all units agree, and a test of signs needs 6"


def _corrected(judged: list[tuple[Claim, list[Finding]]]) -> list[tuple[Claim, list[Finding]]]:
    """Return the findings with p-values after Holm's correction, and verdicts by these."""
    able = [one for _, findings in judged for one in findings if one.verdict != CANNOT]
    adjusted = iter(holm([one.interval.pvalue for one in able]))
    return [(claim, [_decided(one, adjusted) for one in findings]) for claim, findings in judged]


def _decided(finding: Finding, adjusted: Iterator[float]) -> Finding:
    if finding.verdict == CANNOT:
        return finding
    pvalue = next(adjusted)
    if pvalue <= ALPHA:
        return replace(finding, adjusted=pvalue)
    return replace(finding, adjusted=pvalue, verdict=UNDECIDED)


def _spreads_over_examples(
    claim: Claim, rows: TaskRows, evidence: Sequence[Evidence]
) -> dict[str, float]:
    """Return the standard deviation over the examples of each quantity that has one.

    Where rows have intervals over examples, values are drawn from normal distributions of that
    width. All models read the same texts, but rows do not say how far their errors go together.
    Three cases are computed, and the largest spread counts: each value has an error of its own,
    values of one grid or one curve share theirs, and all values share one.
    """
    drawn = (_deviation(rows.frame) > 0) & rows.read
    if not evidence or not drawn.any():
        return {}
    # No quantity is estimated from several measures, so the other measures need not be drawn.
    rows = rows.of_measures(set(rows.frame.loc[drawn, "measure"]))
    deviation, count = _deviation(rows.frame), len(rows.frame)
    # The number of its curve for each row: a draw for every curve is spread over the rows by it.
    curves = rows.frame.groupby(list(_CURVE), dropna=False, sort=False).ngroup().to_numpy()
    draw = np.random.default_rng(DRAW_SEED)
    each = _spread(claim, rows, lambda: deviation * draw.normal(size=count))
    shared = _spread(claim, rows, lambda: deviation * draw.normal(size=curves.max() + 1)[curves])
    of_texts = _shift(claim, rows, deviation)
    kinds = (each, shared, of_texts)
    larger = {name: max(spreads.get(name, 0.0) for spreads in kinds) for name in each}
    return {name: value for name, value in larger.items() if value > 0}


def _deviation(frame: pd.DataFrame) -> np.ndarray:
    """Return the standard deviation of each value over the examples; 0 where it is not known.

    An end that lies beyond the range of the measure is stored as the end of the range, so that the
    end further from the value tells the deviation.
    """
    value, low, high = (frame[name].to_numpy(float) for name in ("value", "low", "high"))
    half = np.maximum(high - value, value - low)
    return np.nan_to_num(half) / NormalDist().inv_cdf(1 - ALPHA / 2)


def _spread(claim: Claim, rows: TaskRows, errors: Callable[[], np.ndarray]) -> dict[str, float]:
    estimates: dict[str, list[float]] = {}
    for _ in range(DRAWS):
        for quantity, value in _estimates(claim, rows, errors()).items():
            estimates.setdefault(quantity, []).append(value)
    # Of equal numbers numpy's deviation need not be 0, because their mean is rounded.
    return {
        n: float(np.std(draws, ddof=1)) if np.ptp(draws) else 0.0 for n, draws in estimates.items()
    }


def _shift(claim: Claim, rows: TaskRows, deviation: np.ndarray) -> dict[str, float]:
    """Return by how much one standard deviation that all values share moves each estimate."""
    ends = [_estimates(claim, rows, sign * deviation) for sign in (1, -1)]
    return {name: abs(ends[0][name] - ends[1][name]) / 2 for name in ends[0].keys() & ends[1]}


def _estimates(claim: Claim, rows: TaskRows, errors: np.ndarray) -> dict[str, float]:
    values = rows.frame["value"].to_numpy(float)
    estimates = {}
    for piece in claim.judge(rows.with_values(values + errors)):
        _, units = units_of_task(piece.values, rows.who, claim.about)
        defined = [unit for unit in units if math.isfinite(unit.value)]
        estimates[piece.quantity] = piece.statistic(defined)
    return estimates
