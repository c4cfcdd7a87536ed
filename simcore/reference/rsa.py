"""Representational similarity analysis (RSA)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["rank_moments", "rsa_grid"]

Array = NDArray[np.float64]
EPS = 2.0**-52
LEAST_SPREAD = 16  # least variance of dissimilarities, over the variance that rounding gives them


def standardised(x: ArrayLike) -> tuple[Array, Array]:
    """Return rows ``z``, centred and scaled to unit length, and their former lengths ``[n, 1]``.

    ``z`` is ``nan`` for a row without variance.
    """
    x = np.asarray(x, np.float64)
    constant = (x == x[:, :1]).all(axis=1, keepdims=True)
    centred = x - x.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(centred, axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(constant, np.nan, centred / norms), norms


def dissimilarities(x: ArrayLike) -> Array:
    """Compute ``1 - pearson`` of all pairs of rows: the upper triangle as a vector.

    It is computed as ``|z_i - z_j|^2 / 2`` of standardised rows, which is the same number without
    the rounding of ``1 - r`` for r near 1. ``nan`` for a row without variance.
    """
    z, _ = standardised(x)
    rows = [np.square(z[i] - z[i + 1 :]).sum(axis=1) / 2 for i in range(len(z))]
    return np.concatenate(rows)


def rounding_variance(x: ArrayLike, eps: float = EPS) -> float:
    """Return the variance that rounding gives the dissimilarities of the pairs of rows.

    The errors of an entry are taken to be uniform: within half of ``eps`` relative to the entry,
    and within 2 eps of float64 relative to the centred entry. Their variances are propagated
    through ``|z_i - z_j|^2 / 2``: to first order for each pair, to second order by the variance
    between rows of the mean error. The length of a row has an error of its own, relative and within
    2 eps of float64, or more for the sum of many squares; it moves all entries of the row together.
    """
    x = np.asarray(x, np.float64)
    z, norms = standardised(x)
    with np.errstate(invalid="ignore", divide="ignore"):  # nan for a row without variance
        errors = (np.square(eps / 2 * x / norms) + np.square(2 * EPS * z)) / 3
    first = np.concatenate(
        [
            (np.square(z[i] - z[i + 1 :]) * (errors[i] + errors[i + 1 :])).sum(axis=1)
            for i in range(len(x))
        ]
    )
    length = (2 * EPS) ** 2 / 3 * (1 + x.shape[1] / 8192)
    return float(first.mean() + errors.sum(axis=1).var() / 2 + 2 * length**2)


def ranks(values: Array) -> Array:
    """Return ranks from 1 on; equal values share their mean rank. All ``nan`` if one value is."""
    if np.isnan(values).any():
        return np.full_like(values, np.nan)
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]


def rank_moments(
    x: Sequence[ArrayLike], y: Sequence[ArrayLike] | None = None
) -> tuple[Array, Array, Array]:
    """Compute covariances ``[Lx, Ly]`` and variances of the dissimilarities' relative ranks.

    A relative rank is a rank divided by the number of dissimilarities.
    """
    sides = [[dissimilarities(layer) for layer in side] for side in (x, y or x)]
    first, second = (np.array([ranks(d) / len(d) for d in side]) for side in sides)
    first, second = (r - r.mean(axis=1, keepdims=True) for r in (first, second))
    pairs = first.shape[1]
    return first @ second.T / pairs, first.var(axis=1), second.var(axis=1)


def rsa_grid(
    x: Sequence[ArrayLike],
    y: Sequence[ArrayLike] | None = None,
    *,
    correlation: str = "pearson",
    eps: float = EPS,
) -> Array:
    """Compute the correlation of the layers' dissimilarity matrices, ``[len(x), len(y)]``.

    ``nan`` for a layer whose dissimilarities vary by less than `LEAST_SPREAD` times the variance
    that rounding to ``eps`` gives them.

    References
    ----------
    Kriegeskorte et al. 2008.
    """
    transform = {"pearson": lambda v: v, "spearman": ranks}[correlation]

    def vector(layer: ArrayLike) -> Array:
        d = dissimilarities(layer)
        known = d.var() > LEAST_SPREAD * rounding_variance(layer, eps)
        return transform(d if known else np.full_like(d, np.nan))

    sides = [[vector(layer) for layer in side] for side in (x, y or x)]
    return np.array([[_pearson(a, b) for b in sides[1]] for a in sides[0]])


def _pearson(a: Array, b: Array) -> float:
    a, b = a - a.mean(), b - b.mean()
    scale = np.linalg.norm(a) * np.linalg.norm(b)
    return float(a @ b / scale) if scale > 0 else float("nan")
