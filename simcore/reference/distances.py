"""Distances between rows compared: distance correlation, and differences of distance matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simcore.reference.hsic import center, squared_distances

__all__ = ["distance_correlation_grid", "rsm_difference_grid"]

Array = NDArray[np.float64]


def pairs(
    x: Sequence[Any], y: Sequence[Any] | None, value: Callable[..., float], same: float
) -> Array:
    """Return ``value(a, b)`` of all a in x and b in y; ``same`` for an element with itself.

    Without y, the elements of x are compared with each other.
    """
    return np.array(
        [
            [same if y is None and i == j else value(a, b) for j, b in enumerate(y or x)]
            for i, a in enumerate(x)
        ]
    )


def distance_matrix(x: ArrayLike) -> Array:
    """Return the Euclidean distances ``[n, n]`` between the rows of x, ``[n, p]``."""
    return np.sqrt(squared_distances(x))


def _double_centred(x: ArrayLike) -> Array:
    return center(center(distance_matrix(x)).T)


def _distance_correlation(a: Array, b: Array) -> float:
    variances = np.mean(a * a) * np.mean(b * b)
    if variances == 0:
        return float("nan")
    return float(np.sqrt(max(np.mean(a * b), 0.0) / np.sqrt(variances)))


def distance_correlation_grid(
    x: Sequence[ArrayLike], y: Sequence[ArrayLike] | None = None
) -> Array:
    """Compute the distance correlation of all pairs, ``[len(x), len(y)]``.

    ``sqrt(dCov^2 / sqrt(dVar_x^2 dVar_y^2))`` with ``dCov^2 = mean(A * B)`` of the double-centred
    distance matrices A and B; ``nan`` where all rows of a layer are equal.

    References
    ----------
    Szekely, Rizzo and Bakirov 2007, definitions 4 and 5 (the biased estimator).
    """
    rows = [_double_centred(layer) for layer in x]
    columns = None if y is None else [_double_centred(layer) for layer in y]
    grid = pairs(rows, columns, _distance_correlation, np.nan)
    if y is None:
        np.fill_diagonal(grid, [1.0 if a.any() else np.nan for a in rows])
    return grid


_NORMS: dict[str, Literal["fro"] | float] = {"frobenius": "fro", "spectral": 2.0}


def rsm_difference_grid(
    x: Sequence[ArrayLike], y: Sequence[ArrayLike] | None = None, *, norm: str = "frobenius"
) -> Array:
    """Compute the norm of the difference of two layers' distance matrices, of all pairs.

    ``norm`` is "frobenius" or "spectral".

    References
    ----------
    Klabunde et al. 2024 (the authors' code takes the spectral norm).
    """
    rows = [distance_matrix(layer) for layer in x]
    columns = None if y is None else [distance_matrix(layer) for layer in y]
    return pairs(rows, columns, lambda a, b: float(np.linalg.norm(a - b, _NORMS[norm])), 0.0)
