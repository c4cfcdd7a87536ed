"""Measures that match neurons of two layers with each other, or rotate one layer to the other."""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simcore.reference.neurons import correlations

__all__ = ["aligned_cosine_grid", "matching_grid"]

Array = NDArray[np.float64]


def assignment(costs: ArrayLike) -> NDArray[np.int64]:
    """Return the columns ``[rows]``, all different, of least total cost; rows <= columns.

    The Hungarian method: one row after another takes its column along a shortest path of reduced
    costs, by which the potentials of rows and columns change.
    """
    costs = np.asarray(costs, np.float64)
    rows, columns = costs.shape
    # Row and column 0 stand for none.
    of_rows, of_columns = np.zeros(rows + 1), np.zeros(columns + 1)
    row_of, came = np.zeros(columns + 1, int), np.zeros(columns + 1, int)
    for row in range(1, rows + 1):
        row_of[0], column = row, 0
        lengths, used = np.full(columns + 1, np.inf), np.zeros(columns + 1, bool)
        while row_of[column]:
            used[column] = True
            i = row_of[column]
            reduced = costs[i - 1] - of_rows[i] - of_columns[1:]
            shorter = ~used[1:] & (reduced < lengths[1:])
            lengths[1:][shorter], came[1:][shorter] = reduced[shorter], column
            column = 1 + int(np.argmin(np.where(used[1:], np.inf, lengths[1:])))
            step = lengths[column]
            of_rows[row_of[used]] += step
            of_columns[used] -= step
            lengths[~used] -= step
        while column:
            row_of[column], column = row_of[came[column]], came[column]
    column_of = np.zeros(rows, int)
    column_of[row_of[1:][row_of[1:] > 0] - 1] = np.flatnonzero(row_of[1:])
    return column_of


def least_cost(costs: ArrayLike) -> float:
    """Return the total of the assignment of least cost; the smaller side is assigned whole."""
    costs = np.asarray(costs, np.float64)
    costs = costs if costs.shape[0] <= costs.shape[1] else costs.T
    return float(costs[np.arange(len(costs)), assignment(costs)].sum())


def transport_cost(costs: ArrayLike) -> float:
    """Return ``min sum T_ij c_ij`` over plans with rows that sum to 1/p and columns to 1/q.

    With every row and column repeated until there are as many of each, plans are assignments.
    """
    costs = np.asarray(costs, np.float64)
    size = lcm(*costs.shape)
    repeated = costs.repeat(size // len(costs), axis=0).repeat(size // costs.shape[1], axis=1)
    return least_cost(repeated) / size


def _varying(x: ArrayLike, y: ArrayLike) -> Array:
    """Return the correlations of the neurons that vary, ``[p, q]``."""
    r = correlations(x, y)
    r = r[~np.isnan(r).all(axis=1)]
    return r[:, ~np.isnan(r).any(axis=0)]


def _with_zeros(x: Array, width: int) -> Array:
    return np.pad(x, ((0, 0), (0, width - x.shape[1])))


def _squared_distances(x: Array, y: Array) -> Array:
    """Return the squared distances of all columns, ``[p, q]``."""
    return np.square(x[:, :, None] - y[:, None, :]).sum(axis=0)


def match(x: ArrayLike, y: ArrayLike, matching: str, score: str) -> float:
    """Compute one entry of `matching_grid`."""
    if score == "correlation":
        r = _varying(x, y)
        if r.size == 0:
            return float("nan")
        if matching == "best":
            return float((r.max(axis=1).mean() + r.max(axis=0).mean()) / 2)
        if matching == "one-to-one":
            return -least_cost(-r) / min(r.shape)
        return -transport_cost(-r)
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if matching == "transport":
        return float(np.sqrt(transport_cost(_squared_distances(x, y))))
    width = max(x.shape[1], y.shape[1])
    x, y = _with_zeros(x, width), _with_zeros(y, width)
    if score == "angular":
        if not (x.any() and y.any()):
            return float("nan")
        x, y = (side / np.linalg.norm(side) for side in (x, y))
    chord = np.sqrt(least_cost(_squared_distances(x, y)))
    return float(2 * np.arcsin(min(chord / 2, 1.0)) if score == "angular" else chord)


def matching_grid(
    x: Sequence[ArrayLike],
    y: Sequence[ArrayLike] | None = None,
    *,
    matching: str = "one-to-one",
    score: str = "correlation",
) -> Array:
    """Compute the similarity, or the distance, of layers with matched neurons, all pairs.

    References
    ----------
    best and one-to-one, correlation: Li et al. 2016. one-to-one, distance and angular: Williams et
    al. 2021. transport: Khosla & Williams 2024.
    """
    return np.array([[match(a, b, matching, score) for b in y or x] for a in x])


def rotation(x: ArrayLike, y: ArrayLike, eps: float) -> Array:
    """Return the polar factor ``[p, q]`` of ``X'Y``: ``U V'`` of its singular vectors.

    Directions with singular values below ``eps * max(p, q)`` times the largest are left out: there
    a rotation is arbitrary.
    """
    u, s, vt = np.linalg.svd(np.asarray(x).T @ np.asarray(y), full_matrices=False)
    kept = s > s[0] * max(len(u), vt.shape[1]) * eps
    return u[:, kept] @ vt[kept]


def aligned_cosine_grid(
    x: Sequence[ArrayLike],
    y: Sequence[ArrayLike] | None = None,
    *,
    eps: float = np.finfo(np.float64).eps,
) -> Array:
    """Compute the mean cosine of ``x_i Q`` and ``y_i``, Q the rotation of X nearest to Y.

    The layers are not centred, the narrower one has columns of zeros; rows that are zeros in either
    layer are left out.

    References
    ----------
    Klabunde et al. 2024.
    """

    def value(a: ArrayLike, b: ArrayLike) -> float:
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        a, b = a / (np.abs(a).max() or 1.0), b / (np.abs(b).max() or 1.0)
        turned = a @ rotation(a, b, eps)
        lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        some = lengths > 0
        cosines = (turned[some] * b[some]).sum(axis=1) / lengths[some]
        return float(cosines.mean()) if some.any() else float("nan")

    return np.array([[value(a, b) for b in y or x] for a in x])
