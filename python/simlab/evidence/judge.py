"""Judge the claims on a results table: estimates, intervals with both errors, verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from simlab.evidence.claim import BOTH, RUNS, TASKS, Claim, Evidence, Finding
from simlab.evidence.intervals import (
    ALPHA,
    CANNOT,
    FAILS,
    HOLDS,
    LEAST_UNITS,
    UNDECIDED,
    Interval,
    Value,
    agree,
    can_decide,
    holm,
    interval,
    mean_value,
    pvalue_of_most,
    sign_pvalue,
    value_of,
)
from simlab.evidence.options import ClaimOptions
from simlab.evidence.rows import TaskRows, at_last_steps
from simlab.evidence.spreads import spreads_over_examples
from simlab.evidence.units import units_of_task, units_over_tasks
from simlab.evidence.wording import number
from simlab.tasks.metrics import of_metric

if TYPE_CHECKING:
    import pandas as pd

ALL = "all"  # in place of the name of a task
_EXAMPLES = "interval with the error over examples"
_FEW_SIGNS = "a trend holds by a test of signs too, which needs 6 units"


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

    Of a training run, the last step is judged: its steps are no models of their own. Holm's
    correction counts all findings that have a p-value.
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
    return _Part(base, rows, evidence, spreads_over_examples(claim, rows, evidence))


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
    """The evidence of several tasks on one quantity."""

    pieces: list[Evidence] = field(default_factory=list)
    # Of each unit: one value from every corpus that models of a task have read.
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
        chances = [one.chance for one in self.pieces if one.chance is not None]
        chance = (lambda: pvalue_of_most([one() for one in chances])) if chances else None
        asked = replace(self.pieces[0], note="", statistic=mean_value, chance=chance, unable=unable)
        return finding_of(ALL, base, asked, kind, list(self.units.values()), self.spread)


def finding_of(
    task: str, base: str, piece: Evidence, kind: str, units: Sequence[Value], spread: float
) -> Finding:
    """Return a finding whose verdict does not allow for other findings beside it.

    If the estimate is beyond the least effect, the verdict is "holds" or, if a further condition of
    the claim is not met, "undecided"; else it is "fails".
    """
    result = interval(units, piece.statistic, spread, piece.least)
    beyond = piece.side * (result.estimate - piece.least) > 0
    few = piece.signs and 2.0 ** (1 - result.count) > ALPHA
    unable = (piece.unable or (_FEW_SIGNS if few else "")) if beyond else ""
    able = can_decide(result) and not unable
    conditions = _conditions(piece, units, signs=piece.signs and beyond and able)
    reason = "" if able else _missing(result.count, kind, unable)
    words = (
        piece.note,
        *(f"p of {name} {number(pvalue)}" for name, pvalue in conditions.items()),
        _EXAMPLES if spread and not math.isnan(result.low) else "",
        reason,
    )
    note = "; ".join(word for word in words if word)
    met = max(conditions.values(), default=0.0) <= ALPHA
    verdict = ((HOLDS if met else UNDECIDED) if beyond else FAILS) if able else CANNOT
    about = Finding(task, base, piece.quantity, kind, result, piece.least, piece.side, verdict)
    return replace(about, note=note, met=met)


def _conditions(piece: Evidence, units: Sequence[Value], *, signs: bool) -> dict[str, float]:
    """Return the p-values that must be significant too for the claim to hold.

    They are not corrected: they are conditions of each verdict, beside the p-value that is. Few
    units could never meet a corrected level: eight of them have p = .0078 at least by their signs.
    """
    found = {} if piece.chance is None else {"chance": piece.chance()}
    if signs:
        found["signs"] = sign_pvalue(units, piece.statistic, piece.least)
    return found


def _missing(count: int, kind: str, unable: str) -> str:
    if unable and count >= LEAST_UNITS:
        return unable
    if count < LEAST_UNITS:
        return f"wanted {LEAST_UNITS} {kind} or more"
    return "all units agree, and a test of signs needs 6"


def _corrected(judged: list[tuple[Claim, list[Finding]]]) -> list[tuple[Claim, list[Finding]]]:
    """Return the findings with p-values after Holm's correction, and verdicts by these."""
    able = [one for _, findings in judged for one in findings if one.verdict != CANNOT]
    adjusted = iter(holm([_of_t_test(one.interval) for one in able]))
    return [(claim, [_decided(one, adjusted) for one in findings]) for claim, findings in judged]


def _of_t_test(interval: Interval) -> float:
    """Return the p-value of the t test: 0 if all units agree, whose signs are a condition."""
    return 0.0 if agree(interval) and interval.pvalue <= ALPHA else interval.pvalue


def _decided(finding: Finding, adjusted: Iterator[float]) -> Finding:
    if finding.verdict == CANNOT:
        return finding
    pvalue = max(next(adjusted), finding.interval.pvalue)
    verdict = finding.verdict if pvalue <= ALPHA else UNDECIDED
    return replace(finding, adjusted=pvalue, verdict=verdict)
