"""Permutations and resamples as plain loops, which reindex Gram matrices one draw at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from simcore.reference.hsic import _ESTIMATORS, Array, _grams, _normalise


def permuted_products(
    x: ArrayLike, y: ArrayLike, rows: ArrayLike, weights: ArrayLike | None = None
) -> Array:
    """Compute ``sum_ij w_i w_j x[i, j, a] y[r_i, r_j, b]`` for every draw (r, w).

    ``x`` and ``y`` are ``[n, n, Lx]`` and ``[n, n, Ly]``, ``rows`` and ``weights`` (default 1) are
    ``[draws, n]``, and the result is ``[draws, Lx, Ly]``.
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    rows = np.asarray(rows)
    weights = np.ones(rows.shape) if weights is None else np.asarray(weights, dtype=np.float64)
    return np.stack(
        [
            np.einsum("ija,ijb,i,j->ab", x, y[np.ix_(r, r)], w, w)
            for r, w in zip(rows, weights, strict=True)
        ]
    )


def resampled_cka(
    x: Sequence[ArrayLike],
    y: Sequence[ArrayLike],
    rows_x: Sequence[ArrayLike] | Array,
    rows_y: Sequence[ArrayLike] | Array,
    *,
    kernel: str = "linear",
    estimator: str = "biased",
    bandwidth: float = 1.0,
) -> Array:
    """Compute the CKA of all layer pairs for every draw; kernels keep the width of all rows.

    The rows of a draw are a permutation, a resample with repetitions, or some of the rows. The
    result is ``[draws, len(x), len(y)]``.
    """
    grams_x = _grams(x, kernel, estimator, bandwidth)
    grams_y = _grams(y, kernel, estimator, bandwidth)
    hsic = _ESTIMATORS[estimator]
    grids = []
    for r, s in zip(map(np.asarray, rows_x), map(np.asarray, rows_y), strict=True):
        left = [k[np.ix_(r, r)] for k in grams_x]
        right = [k[np.ix_(s, s)] for k in grams_y]
        xy = np.array([[hsic(k, m) for m in right] for k in left])
        xx, yy = (np.array([hsic(k, k) for k in side]) for side in (left, right))
        grids.append(_normalise(xy, xx, yy))
    return np.stack(grids)


def permutation_pvalue(observed: ArrayLike, null: ArrayLike) -> Array:
    """Return ``(1 + k) / (1 + K)``: k of K null values ``[K, ...]`` are at least ``observed``."""
    null = np.asarray(null)
    return (1 + (null >= np.asarray(observed)).sum(axis=0)) / (1 + len(null))
