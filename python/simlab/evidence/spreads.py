"""The error over examples of the quantities of a claim.

All models of a task read the same texts. Where rows have draws (`simlab.store.draws`), draw k of
every row is of the same texts: the spread of a quantity is its standard deviation over draws of all
rows at once. Where rows have no more than intervals, such as the held-out errors of alignment, they
do not say how far their errors go together. Values are then drawn from normal distributions of that
width, for several cases, and the largest spread counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from simlab.evidence.claim import Claim, Evidence
from simlab.evidence.intervals import ALPHA, EQUAL
from simlab.evidence.rows import TaskRows
from simlab.evidence.units import units_of_task
from simlab.store.draws import unpack
from simlab.store.results import FREEZING

if TYPE_CHECKING:
    import pandas as pd

DRAWS, DRAW_SEED = 50, 0  # a spread of so many is known to 10 %
LEAST_DRAWS = 20  # a spread of fewer is too uncertain
# Rows of one grid or one curve, such as the errors of a method's maps between two models.
_CURVE = ("x", "y", "experiment", "comparison", "measure", "kind", "options")
# Rows that differ by no more than their models and layers: the sides that claims compare.
_SIDE = ("experiment", "measure", "kind", "options", "role_x", "role_y", "one_base", "way")
_CELL = (*_SIDE, "layer_x", "layer_y")  # a layer, or a pair of them, of all models of a side


def spreads_over_examples(
    claim: Claim, rows: TaskRows, evidence: Sequence[Evidence]
) -> dict[str, float]:
    """Return the standard deviation over the examples of each quantity that has one.

    Parameters
    ----------
    rows
        The rows that `evidence` was found in.
    """
    drawn = (_deviation(rows.frame) > 0) & rows.read
    if not evidence or not drawn.any():
        return {}
    # No quantity is estimated from several measures, so the other measures need not be drawn.
    rows = rows.read_before(set(rows.frame.loc[drawn, "measure"]))
    deviation = _deviation(rows.frame)
    if not _estimates(claim, rows, 0 * deviation):  # all quantities are of other measures
        return {}
    together = joint_errors(rows.frame, deviation)
    if together is None:
        spreads = _shift(claim, rows, deviation)
        cases = [_drawn(deviation, groups) for groups in _groups_of_errors(rows.frame)]
    else:
        spreads, cases = {}, [together]
    for errors in cases:
        for quantity, spread in _spread(claim, rows, errors).items():
            spreads[quantity] = max(spread, spreads.get(quantity, 0.0))
    return {quantity: spread for quantity, spread in spreads.items() if spread > EQUAL}


def joint_errors(frame: pd.DataFrame, deviation: np.ndarray) -> np.ndarray | None:
    """Return the errors of all rows in each draw of the examples, [draws, rows].

    None if a row with an interval has no draws, or if there are too few. Rows with other draws,
    such as rows of another number of examples, have errors of their own.
    """
    has_draws = frame["draws"].notna().to_numpy()
    if ((deviation > 0) & ~has_draws).any():
        return None
    texts = frame.loc[has_draws, ["draws", "resampling"]].itertuples(index=False, name=None)
    unpacked = [(*unpack(text), resampling) for text, resampling in texts]
    count = min((len(draws) for _, draws, _ in unpacked), default=0)
    if count < LEAST_DRAWS:
        return None
    errors = np.zeros((count, len(frame)))
    order: dict[tuple[int, int, str], np.ndarray] = {}
    for row, (examples, draws, resampling) in zip(np.flatnonzero(has_draws), unpacked, strict=True):
        source = (examples, len(draws), str(resampling))
        if source not in order:
            shuffled = np.random.default_rng([DRAW_SEED, len(order)]).permutation(len(draws))
            order[source] = shuffled if order else np.arange(len(draws))
        errors[:, row] = draws[order[source][:count]]
    return errors


def _groups_of_errors(frame: pd.DataFrame) -> Iterator[np.ndarray]:
    """Yield, for each case, the number of the error that each row has.

    Each value has an error of its own; values of one grid or curve share theirs; values of one
    layer do in all models; and all values of one side of a comparison do, such as maps of attention
    beside maps of hidden states. That all values share one error is the case of `_shift`.
    """
    rows = frame.assign(
        one_base=frame["base_x"] == frame["base_y"],
        way=frame["label_x"].where(frame["experiment"] == FREEZING, ""),
    )
    cases = [np.arange(len(rows))]
    for columns in (_CURVE, _CELL, _SIDE):
        groups = rows.groupby(list(columns), dropna=False, sort=False).ngroup().to_numpy()
        if not any(np.array_equal(groups, case) for case in cases):
            cases.append(groups)
    yield from cases


def _deviation(frame: pd.DataFrame) -> np.ndarray:
    """Return the standard deviation of each value over the examples; 0 where it is not known.

    An end that lies beyond the range of the measure is stored as the end of the range, so that the
    end further from the value tells the deviation.
    """
    value, low, high = (frame[name].to_numpy(float) for name in ("value", "low", "high"))
    half = np.maximum(high - value, value - low)
    return np.nan_to_num(half) / NormalDist().inv_cdf(1 - ALPHA / 2)


def _drawn(deviation: np.ndarray, groups: np.ndarray) -> Iterator[np.ndarray]:
    """Yield drawn errors of all rows, of which the rows of one group share one."""
    draw = np.random.default_rng(DRAW_SEED)
    for _ in range(DRAWS):
        yield deviation * draw.normal(size=groups.max() + 1)[groups]


def _spread(claim: Claim, rows: TaskRows, errors: Iterable[np.ndarray]) -> dict[str, float]:
    """Return the standard deviation of each quantity over errors of all rows."""
    estimates: dict[str, list[float]] = {}
    for error in errors:
        for quantity, value in _estimates(claim, rows, error).items():
            if math.isfinite(value):
                estimates.setdefault(quantity, []).append(value)
    return {
        quantity: float(np.std(values, ddof=1))
        for quantity, values in estimates.items()
        if len(values) > 1
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
