"""Rows compared one by one, descriptors of layers, and predictions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simcore.reference.distances import pairs
from simcore.reference.hsic import squared_distances

__all__ = [
    "cosine_grid",
    "descriptor_grid",
    "descriptors",
    "disagreement_grid",
    "output_divergence_grid",
]

Array = NDArray[np.float64]


def unit_rows(x: ArrayLike) -> Array:
    """Return the rows of x scaled to length 1; a row of zeros becomes ``nan``."""
    x = np.asarray(x, dtype=np.float64)
    largest = np.abs(x).max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        x = x / largest
        return x / np.linalg.norm(x, axis=1, keepdims=True)


def cosine_grid(
    x: Sequence[ArrayLike], y: Sequence[ArrayLike] | None = None, *, form: str = "cosine"
) -> Array:
    """Compute the mean cosine of rows with the same number, of all pairs of layers.

    ``form="angular"`` computes the mean of ``arccos(cosine) / pi``. Rows that are zeros in one of
    the two layers are left out of the mean; ``nan`` if none is left.

    References
    ----------
    Men et al. 2024 (block influence is 1 - cosine); Gromov et al. 2024 (angular).
    """

    def value(a: Array, b: Array) -> float:
        cosines = np.clip((a * b).sum(axis=1), -1.0, 1.0)
        cosines = cosines[~np.isnan(cosines)]
        if not len(cosines):
            return float("nan")
        return float(np.mean(cosines if form == "cosine" else np.arccos(cosines) / np.pi))

    rows = [unit_rows(layer) for layer in x]
    columns = None if y is None else [unit_rows(layer) for layer in y]
    same = 1.0 if form == "cosine" else 0.0
    grid = pairs(rows, columns, value, same)
    if y is None:
        np.fill_diagonal(grid, [np.nan if np.isnan(a).all() else same for a in rows])
    return grid


def magnitude(x: ArrayLike) -> float:
    """Return the length of the mean row."""
    return float(np.linalg.norm(np.mean(np.asarray(x, dtype=np.float64), axis=0)))


def concentricity(x: ArrayLike, eps: float = np.finfo(np.float64).eps) -> float:
    """Return the mean cosine of the rows to their mean row; rows of zeros are left out.

    ``nan`` if the mean row is shorter than ``eps`` times the root mean square of the rows' lengths:
    it is then rounding, without a direction.
    """
    x = np.asarray(x, dtype=np.float64)
    mean = x.mean(axis=0)
    if np.linalg.norm(mean) <= eps * np.sqrt(np.square(x).sum(axis=1).mean()):
        return float("nan")
    return float(np.nanmean(unit_rows(x) @ (mean / np.linalg.norm(mean))))


def uniformity(x: ArrayLike) -> float:
    """Return ``log mean exp(-2 ||x_i - x_j||^2)`` over all ordered pairs, the diagonal included."""
    return float(np.log(np.exp(-2 * squared_distances(x)).mean()))


DESCRIPTORS = {"magnitude": magnitude, "concentricity": concentricity, "uniformity": uniformity}


def descriptors(
    layers: Sequence[ArrayLike], *, eps: float = np.finfo(np.float64).eps
) -> dict[str, Array]:
    """Return `magnitude`, `concentricity` and `uniformity` of every layer, ``[L]`` each.

    References
    ----------
    Klabunde et al. 2024; Wang and Isola 2020 (uniformity); Wang et al. 2022 (the other two).
    """
    return {
        "magnitude": np.array([magnitude(layer) for layer in layers]),
        "concentricity": np.array([concentricity(layer, eps) for layer in layers]),
        "uniformity": np.array([uniformity(layer) for layer in layers]),
    }


def descriptor_grid(
    x: Sequence[ArrayLike],
    y: Sequence[ArrayLike] | None = None,
    *,
    descriptor: str,
    eps: float = np.finfo(np.float64).eps,
) -> Array:
    """Compute the absolute difference of a descriptor, of all pairs of layers."""
    rows = descriptors(x, eps=eps)[descriptor]
    columns = rows if y is None else descriptors(y, eps=eps)[descriptor]
    return np.abs(rows[:, None] - columns[None, :])


def disagreement_grid(x: Sequence[ArrayLike], y: Sequence[ArrayLike] | None = None) -> Array:
    """Compute the share of rows whose largest entries are at different places, of all pairs.

    References
    ----------
    Klabunde et al. 2024; Madani et al. 2004.
    """
    rows = [np.argmax(layer, axis=1) for layer in x]
    columns = None if y is None else [np.argmax(layer, axis=1) for layer in y]
    return pairs(rows, columns, lambda a, b: float(np.mean(a != b)), 0.0)


def softmax(x: ArrayLike) -> Array:
    """Return the softmax of every row."""
    x = np.asarray(x, dtype=np.float64)
    weights = np.exp(x - x.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def _divergence(p: Array, q: Array) -> float:
    """Return the mean Jensen-Shannon divergence of the rows, base 2; ``0 log 0 = 0``."""
    middle = (p + q) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.where(p > 0, p * np.log2(p / middle), 0.0)
        parts += np.where(q > 0, q * np.log2(q / middle), 0.0)
    return float(np.mean(parts.sum(axis=1)) / 2)


def output_divergence_grid(x: Sequence[ArrayLike], y: Sequence[ArrayLike] | None = None) -> Array:
    """Compute the mean Jensen-Shannon divergence of the rows' softmax, base 2, of all pairs.

    References
    ----------
    Klabunde et al. 2024; Lin 1991.
    """
    rows = [softmax(layer) for layer in x]
    columns = None if y is None else [softmax(layer) for layer in y]
    return pairs(rows, columns, _divergence, 0.0)
