"""Multi-scale intrinsic distance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simcore.reference.neighbours import is_defined, neighbour_lists

__all__ = ["imd_grid"]

Array = NDArray[np.float64]
TEMPERATURES = np.logspace(-1, 1, 256)


def spectrum(x: ArrayLike, k: int = 5) -> Array:
    """Return the eigenvalues of the normalised Laplacian of the k-nearest-neighbour graph.

    Two rows are joined if one of them is among the k nearest of the other by Euclidean distance.
    """
    lists = neighbour_lists(x, k, "euclidean")
    edges = np.zeros((len(lists), len(lists)))
    np.put_along_axis(edges, lists, 1.0, axis=1)
    edges = np.maximum(edges, edges.T)
    scale = 1 / np.sqrt(edges.sum(axis=1))
    return np.linalg.eigvalsh(np.eye(len(edges)) - scale[:, None] * edges * scale)


def heat_trace(x: ArrayLike) -> Array:
    """Return ``tr exp(-t L) / n`` for the 256 temperatures, without an estimate.

    ``nan`` for equal rows, and for 6 rows, whose graph joins every row to every other.
    """
    if len(np.asarray(x)) <= 6 or not is_defined(x, "euclidean"):
        return np.full(len(TEMPERATURES), np.nan)
    return np.exp(-np.outer(TEMPERATURES, spectrum(x))).mean(axis=1)


def imd_grid(x: Sequence[ArrayLike], y: Sequence[ArrayLike] | None = None) -> Array:
    """Compute ``max_t exp(-2 (t + 1/t)) |h_X(t) - h_Y(t)|`` of all pairs, ``[len(x), len(y)]``.

    References
    ----------
    Tsitsulin et al. 2020, who estimate the traces h.
    """
    weights = np.exp(-2 * (TEMPERATURES + 1 / TEMPERATURES))
    of_x, of_y = ([heat_trace(layer) for layer in side] for side in (x, y or x))
    return np.array([[(weights * np.abs(a - b)).max() for b in of_y] for a in of_x])
