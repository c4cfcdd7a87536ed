"""Representation topology divergence, by reduction of boundary matrices."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simcore.reference.hsic import squared_distances

__all__ = ["cross_matrix", "first_persistence", "rtd_grid"]

Array = NDArray[np.float64]


def cross_matrix(x: ArrayLike, y: ArrayLike) -> Array:
    """Return the distances ``[2n, 2n]`` of the graph that compares x with y.

    Distances of each layer are divided by their .9 quantile over all ordered pairs, the diagonal
    included; below 1e-6 of their mean they are rounding. The graph holds every row twice::

        [ 0     D_x          ]
        [ D_x   min(D_x, D_y)]

    References
    ----------
    Barannikov et al. 2022, section 2.4.
    """
    of_x, of_y = (np.sqrt(squared_distances(layer)) for layer in (x, y))
    of_x, of_y = (distances / np.quantile(distances, 0.9) for distances in (of_x, of_y))
    of_x, of_y = (np.where(d < 1e-6 * d.mean(), 0.0, d) for d in (of_x, of_y))
    return np.block([[np.zeros_like(of_x), of_x], [of_x, np.minimum(of_x, of_y)]])


def first_persistence(distances: Array) -> float:
    """Return the summed lengths of the bars of dimension 1 of a Vietoris-Rips filtration.

    Coefficients are 0 and 1. Columns of the boundary matrix, ordered by diameter, are added to each
    other until no two of them have the same lowest entry; a column of a triangle then pairs the
    birth of a cycle, the diameter of its lowest edge, with its death, its own diameter.

    Parameters
    ----------
    distances : ndarray, ``[m, m]``
        Symmetric, with a diagonal of 0.
    """
    vertices = range(len(distances))

    def diameter(simplex: tuple[int, ...]) -> float:
        return max(float(distances[i, j]) for i, j in combinations(simplex, 2))

    edges = sorted((diameter(edge), edge) for edge in combinations(vertices, 2))
    place = {edge: at for at, (_, edge) in enumerate(edges)}
    reduced: dict[int, set[int]] = {}
    total = 0.0
    for death, triangle in sorted((diameter(t), t) for t in combinations(vertices, 3)):
        column = {place[edge] for edge in combinations(triangle, 2)}
        while column and max(column) in reduced:
            column ^= reduced[max(column)]
        if column:
            reduced[max(column)] = column
            total += death - edges[max(column)][0]
    return total


def rtd_grid(x: Sequence[ArrayLike], y: Sequence[ArrayLike] | None = None) -> Array:
    """Compute the divergence of all pairs from all rows, ``[len(x), len(y)]``; y defaults to x.

    The mean of `first_persistence` of both orders of `cross_matrix`; ``nan`` for a layer whose .9
    quantile of the distances is 0.

    References
    ----------
    Barannikov et al. 2022.
    """

    def value(a: ArrayLike, b: ArrayLike) -> float:
        if any(np.quantile(squared_distances(layer), 0.9) == 0 for layer in (a, b)):
            return float("nan")
        both = (cross_matrix(a, b), cross_matrix(b, a))
        return float(np.mean([first_persistence(matrix) for matrix in both]))

    return np.array([[value(a, b) for b in (x if y is None else y)] for a in x])
