"""Judge the claims on a results table: estimates, intervals with both errors, verdicts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from simlab.evidence.claim import Claim, Evidence, Finding
from simlab.evidence.intervals import ALPHA, UNDECIDED, interval
from simlab.evidence.options import ClaimOptions
from simlab.evidence.rows import TaskRows
from simlab.tasks.metrics import of_metric

if TYPE_CHECKING:
    import pandas as pd

DRAWS, DRAW_SEED = 20, 0
_EXAMPLES = "interval with the error over examples"
# Rows of one grid or one curve, such as the errors of a method's maps between two models.
_CURVE = ("x", "y", "experiment", "comparison", "measure", "kind", "options")


def judge(
    frame: pd.DataFrame, claims: Iterable[Claim], options: ClaimOptions
) -> Iterator[tuple[Claim, list[Finding]]]:
    """Yield each claim with what was found in each task; an empty list if there are no rows.

    Raises
    ------
    UserError
        No task has the metric, or two rows give a model two values of one metric.
    """
    frame = of_metric(frame, options.metric)
    tasks = [TaskRows(str(task), rows, options) for task, rows in frame.groupby("task", sort=False)]
    whole = [("", rows) for rows in tasks]
    apart = [part for rows in tasks for part in rows.by_base()]
    for claim in claims:
        parts = whole if claim.across else apart
        found = [finding for base, rows in parts for finding in _in_task(claim, base, rows)]
        if claim.summarise:
            for base in dict.fromkeys(finding.base for finding in found):
                found.append(claim.summarise([one for one in found if one.base == base]))
        yield claim, found


def _in_task(claim: Claim, base: str, rows: TaskRows) -> Iterator[Finding]:
    rows = rows.with_values(rows.frame["value"].to_numpy(float))
    evidence = list(claim.judge(rows))
    spreads = _spreads_over_examples(claim, rows, evidence)
    for piece in evidence:
        spread = spreads.get(piece.quantity, 0.0)
        found = interval(piece.units, piece.statistic, spread)
        bounded = not math.isnan(found.low)
        verdict = piece.decide(found) if bounded else UNDECIDED
        notes = [note for note in (piece.note, _EXAMPLES if spread and bounded else "") if note]
        yield Finding(rows.task, base, piece.quantity, found, verdict, "; ".join(notes))


def _spreads_over_examples(
    claim: Claim, rows: TaskRows, evidence: Sequence[Evidence]
) -> dict[str, float]:
    """Return the standard deviation over the examples of each quantity that has one.

    Where rows have intervals over examples, values are drawn from normal distributions of that
    width. Errors that all values of a grid or a curve share move a mean over them, and errors of
    single values move a rank; rows do not say which they are, so both kinds are drawn, and the
    larger counts.
    """
    drawn = (_deviation(rows.frame) > 0) & rows.read
    if not evidence or not drawn.any():
        return {}
    # No quantity is estimated from several measures, so the other measures need not be drawn.
    rows = rows.of_measures(set(rows.frame.loc[drawn, "measure"]))
    deviation, count = _deviation(rows.frame), len(rows.frame)
    curves = rows.frame.groupby(list(_CURVE), dropna=False, sort=False).ngroup().to_numpy()
    draw = np.random.default_rng(DRAW_SEED)
    each = _spread(claim, rows, lambda: deviation * draw.normal(size=count))
    shared = _spread(claim, rows, lambda: deviation * draw.normal(size=curves.max() + 1)[curves])
    larger = {name: max(each[name], shared.get(name, 0.0)) for name in each}
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
    values = rows.frame["value"].to_numpy(float)
    estimates: dict[str, list[float]] = {}
    for _ in range(DRAWS):
        for piece in claim.judge(rows.with_values(values + errors())):
            defined = [unit for unit in piece.units if math.isfinite(unit.value)]
            estimates.setdefault(piece.quantity, []).append(piece.statistic(defined))
    # Of equal numbers numpy's deviation need not be 0, because their mean is rounded.
    return {
        n: float(np.std(found, ddof=1)) if np.ptp(found) else 0.0 for n, found in estimates.items()
    }
