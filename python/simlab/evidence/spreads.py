"""The error over examples of the quantities of a claim.

All models of a task read the same texts. Where rows have draws (`simlab.store.draws`), draw k of
every row is of the same texts: the spread of a quantity is its standard deviation over draws of all
rows at once. Where rows have no more than intervals, such as the held-out errors of alignment, they
do not say how far their errors go together. The part of each layer and unit in the error is then
found once, by moving the rows of a layer by their own error. The parts are added up in several
ways, one for each case of errors that go together, and the largest spread counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from simlab.evidence.claim import Claim, Evidence
from simlab.evidence.intervals import ALPHA, EQUAL, Statistic, Value
from simlab.evidence.rows import TaskRows
from simlab.evidence.units import units_of_task
from simlab.store.draws import unpack
from simlab.store.results import FREEZING

if TYPE_CHECKING:
    import pandas as pd

    _Units = tuple[Sequence[Value], Statistic]

DRAWS, DRAW_SEED = 50, 0  # moves of drawn layers, where there are more layers than that
LEAST_DRAWS = 20  # a spread of fewer is too uncertain
# Rows that differ by no more than their models and layers: the sides that claims compare. No
# quantity is estimated from several measures.
_SIDE = ("experiment", "kind", "options", "role_x", "role_y", "one_base", "way")
_CELL = (*_SIDE, "layer_x", "layer_y")  # a layer, or a pair of them, of all models of a side


def spreads_over_examples(
    claim: Claim, rows: TaskRows, evidence: Sequence[Evidence]
) -> dict[str, float]:
    """Return the standard deviation over the examples of each quantity that has one."""
    drawn = (_deviation(rows.frame) > 0) & rows.read
    if not evidence or not drawn.any():
        return {}
    # No quantity is estimated from several measures, so the other measures need not be moved.
    rows = rows.read_before(set(rows.frame.loc[drawn, "measure"]))
    deviation = _deviation(rows.frame)
    if not (found := _units(claim, rows, 0 * deviation)):  # all quantities are of other measures
        return {}
    together = joint_errors(rows.frame, deviation)
    if together is None:
        spreads = _of_intervals(claim, rows, deviation, found)
    else:
        spreads = _of_draws(claim, rows, together)
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


def _deviation(frame: pd.DataFrame) -> np.ndarray:
    """Return the standard deviation of each value over the examples; 0 where it is not known.

    An end that lies beyond the range of the measure is stored as the end of the range, so that the
    end further from the value tells the deviation.
    """
    value, low, high = (frame[name].to_numpy(float) for name in ("value", "low", "high"))
    half = np.maximum(high - value, value - low)
    return np.nan_to_num(half) / NormalDist().inv_cdf(1 - ALPHA / 2)


def _of_draws(claim: Claim, rows: TaskRows, errors: Iterable[np.ndarray]) -> dict[str, float]:
    """Return the standard deviation of each quantity over errors of all rows."""
    estimates: dict[str, list[float]] = {}
    for error in errors:
        for quantity, (units, statistic) in _units(claim, rows, error).items():
            value = statistic([unit for unit in units if math.isfinite(unit.value)])
            if math.isfinite(value):
                estimates.setdefault(quantity, []).append(value)
    return {
        quantity: float(np.std(values, ddof=1))
        for quantity, values in estimates.items()
        if len(values) > 1
    }


def _of_intervals(
    claim: Claim, rows: TaskRows, deviation: np.ndarray, found: Mapping[str, _Units]
) -> dict[str, float]:
    """Return the largest spread of each quantity over several cases.

    Each value has an error of its own; values of one layer share theirs in all models; values of
    one unit and side do, such as the errors of a method's maps between two models; all values of
    one side of a comparison do, such as maps of attention beside maps of hidden states; or all do.
    """
    cells, sides = _groups_of_errors(rows.frame)
    moving = np.unique(cells[deviation > 0])
    if len(moving) <= DRAWS:
        by_cell, share = deviation * np.equal.outer(moving, cells), 1.0
    else:
        draws = np.random.default_rng(DRAW_SEED).normal(size=(DRAWS, cells.max() + 1))
        by_cell, share = deviation * draws[:, cells], DRAWS**-0.5
    by_side = deviation * np.equal.outer(np.unique(sides[deviation > 0]), sides)
    of_cells, of_sides = (_parts(claim, rows, found, moves) for moves in (by_cell, by_side))
    spreads = {}
    for quantity in found:
        alone, shared = share * of_cells[quantity], of_sides[quantity]
        cases = (alone, alone.sum(axis=1), shared, shared.sum(axis=1), shared.sum())
        spreads[quantity] = max(float(np.linalg.norm(case)) for case in cases)
    return spreads


def _groups_of_errors(frame: pd.DataFrame) -> list[np.ndarray]:
    """Return the number of the cell of each row, and the number of its side."""
    rows = frame.assign(
        one_base=frame["base_x"] == frame["base_y"],
        way=frame["label_x"].where(frame["experiment"] == FREEZING, ""),
    )
    groups = (rows.groupby(list(names), dropna=False, sort=False) for names in (_CELL, _SIDE))
    return [one.ngroup().to_numpy() for one in groups]


def _parts(
    claim: Claim, rows: TaskRows, found: Mapping[str, _Units], moves: np.ndarray
) -> dict[str, np.ndarray]:
    """Return how far each of several moves of the rows moves an estimate by each of its units.

    The moves are errors [moves, rows], and the parts of a quantity are [moves, units].
    """
    ends = [[_units(claim, rows, sign * move) for move in moves] for sign in (1, -1)]
    parts = {}
    for quantity, (units, statistic) in found.items():
        up, down = (
            np.array([[unit.value for unit in one[quantity][0]] for one in moved]) for moved in ends
        )
        parts[quantity] = np.nan_to_num((up - down) / 2) * _weights(units, statistic)
    return parts


def _weights(units: Sequence[Value], statistic: Statistic) -> np.ndarray:
    """Return by how much an estimate grows with each unit; 0 for units that are undefined."""
    weights = np.zeros(len(units))
    defined = [place for place, unit in enumerate(units) if math.isfinite(unit.value)]
    still = [replace(units[place], value=0.0) for place in defined]
    for k, place in enumerate(defined):
        moved = [*still[:k], replace(still[k], value=1.0), *still[k + 1 :]]
        weights[place] = statistic(moved)  # linear in the values, as all statistics are
    return weights


def _units(claim: Claim, rows: TaskRows, errors: np.ndarray) -> dict[str, _Units]:
    """Return the units and the statistic of each quantity, with errors added to all rows."""
    moved = rows.with_values(rows.frame["value"].to_numpy(float) + errors)
    return {
        piece.quantity: (units_of_task(piece.values, rows.who, claim.about)[1], piece.statistic)
        for piece in claim.judge(moved)
    }
