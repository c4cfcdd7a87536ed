"""Measures of neighbours: the rows of a layer that are nearest to each of its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simcore.reference.hsic import center

__all__ = ["cknna_grid", "knn_curve", "knn_grid", "neighbour_lists"]

Array = NDArray[np.float64]
Lists = NDArray[np.int64]
EPS = 2.0**-52
LEAST_TURN = 4  # directions differ if their entries do by more than this many times eps
ROUNDING = 16  # distances differ if they do by more than this many times eps, and by sqrt(p) more


def _scaled(x: Array) -> Array:
    """Return ``x`` times the power of two that brings its largest entry near 1."""
    largest = np.abs(x).max()
    return np.ldexp(x, -np.frexp(largest)[1]) if largest > 0 else x


def directions(x: ArrayLike) -> Array:
    """Return the rows scaled to unit length; a row of zeros stays zero."""
    rows = np.array([_scaled(row) for row in np.asarray(x, np.float64)])
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)


def distances(x: ArrayLike, metric: str) -> Array:
    """Return what the neighbours of a row are sorted by, ``[n, n]``.

    ``cosine``: 1 - cosine of the rows, computed as half the squared distance of the unit rows, and
    0 within rounding; a row of zeros is at distance 1 from every other row. ``euclidean``: squared
    distances, in units of the layer. ``inner``: minus the inner products, in units of the layer.
    """
    x = np.asarray(x, np.float64)
    if metric == "inner":
        rows = _scaled(x)
        return -np.array([(rows * row).sum(axis=1) for row in rows])
    rows = directions(x) if metric == "cosine" else _scaled(x - x[:1])
    squares = np.array([np.square(rows - row).sum(axis=1) for row in rows])
    if metric == "euclidean":
        return squares
    zero = ~rows.any(axis=1)
    squares[zero] = squares[:, zero] = 2.0
    np.fill_diagonal(squares, 0.0)
    return np.where(squares / 2 > rounding_units(x) ** 2, squares / 2, 0.0)


def is_defined(x: ArrayLike, metric: str, eps: float = EPS) -> bool:
    """Return whether some rows differ; for ``cosine``: whether directions do beyond rounding."""
    x = np.asarray(x, np.float64)
    if (x == x[:1]).all():
        return False
    if metric != "cosine":
        return True
    rows = directions(x)
    return bool(np.abs(rows - rows[:1]).max() > LEAST_TURN * eps * np.abs(rows[0]).max())


def rounding_units(x: ArrayLike) -> float:
    """Return the relative rounding error of a sum over the columns of ``x``."""
    return float(EPS * (ROUNDING + np.sqrt(np.shape(x)[1])))


def rounding(x: ArrayLike, d: Array, metric: str) -> Array:
    """Return the difference up to which two of the `distances` count as equal, ``[n, n]``.

    It is the rounding error of a sum of p terms and, for ``cosine``, of the entries of unit rows.
    """
    x, units = np.asarray(x, np.float64), rounding_units(x)
    if metric == "inner":
        lengths = np.linalg.norm(_scaled(x), axis=1)
        return units * np.outer(lengths, lengths)
    return units * (d + np.sqrt(d)) if metric == "cosine" else units * d


def neighbour_lists(x: ArrayLike, k: int, metric: str = "cosine", *, itself: bool = False) -> Lists:
    """Return the k nearest other rows of every row, nearest first, ``[n, k]``.

    If distances are equal up to `rounding`, the lower index comes first. With ``itself`` the
    row is a candidate too.
    """
    d = distances(x, metric)
    equal = rounding(x, d, metric)
    if not itself:
        np.fill_diagonal(d, np.inf)
    order = np.argsort(d, axis=1, kind="stable")
    ordered = np.take_along_axis(d, order, axis=1)
    steps = np.diff(ordered, axis=1) > np.take_along_axis(equal, order, axis=1)[:, 1:]
    groups = np.pad(np.cumsum(steps, axis=1), ((0, 0), (1, 0)))
    places = [np.lexsort(keys) for keys in zip(order, groups, strict=True)]
    return np.take_along_axis(order, np.array(places), axis=1)[:, :k]


def mutual(a: Lists, b: Lists) -> float:
    """Return ``|N_X & N_Y| / k`` for the lists of one row."""
    return len(np.intersect1d(a, b)) / len(a)


def jaccard(a: Lists, b: Lists) -> float:
    """Return ``|N_X & N_Y| / |N_X or N_Y|`` for the lists of one row."""
    return len(np.intersect1d(a, b)) / len(np.union1d(a, b))


def rank_similarity(a: Lists, b: Lists) -> float:
    """Return the agreement of the ranks of the common neighbours of one row; 0 if there are none.

    ``1 / H_m sum 2 / ((1 + |r_X - r_Y|) (r_X + r_Y))`` with ranks from 1, over the m common ones.
    """
    common, r, s = np.intersect1d(a, b, return_indices=True)
    if len(common) == 0:
        return 0.0
    r, s = r + 1, s + 1
    harmonic = np.sum(1 / np.arange(1, len(common) + 1))
    return float(np.sum(2 / ((1 + np.abs(r - s)) * (r + s))) / harmonic)


OF_LISTS: dict[str, Callable[[Lists, Lists], float]] = {
    "mutual": mutual,
    "jaccard": jaccard,
    "rank": rank_similarity,
}


def second_order(a: Lists, b: Lists, of_x: Array, of_y: Array) -> float:
    """Return the cosine of the distances from one row to its neighbours in either layer.

    ``of_x`` and ``of_y`` are the cosine distances from this row to all rows, ``[n]``. If all
    distances of a layer are 0, the value is 1 if the other's are 0 too, and 0 if not.
    """
    either = np.union1d(a, b)
    v, w = of_x[either], of_y[either]
    if not (v.any() and w.any()):
        return float(v.any() == w.any())
    return float(v @ w / (np.linalg.norm(v) * np.linalg.norm(w)))


def knn_grid(
    x: Sequence[ArrayLike],
    y: Sequence[ArrayLike] | None = None,
    *,
    measure: str = "mutual",
    k: int = 10,
    metric: str = "cosine",
    eps: float = EPS,
) -> Array:
    """Compute the agreement of the rows' k nearest neighbours, ``[len(x), len(y)]``.

    The mean over the rows of `mutual`, `jaccard`, `rank_similarity` or `second_order`. ``nan`` for
    a layer that is not `is_defined`.

    References
    ----------
    mutual: Huh et al. 2024. jaccard, rank: Wang et al. 2022. second-order: Hamilton et al. 2016.
    All but mutual as Klabunde et al. 2024 compute them.
    """

    def found(layer: ArrayLike) -> tuple[Lists, Array] | None:
        if not is_defined(layer, metric, eps):
            return None
        return neighbour_lists(layer, k, metric), distances(layer, "cosine")

    def value(first: tuple[Lists, Array] | None, second: tuple[Lists, Array] | None) -> float:
        if first is None or second is None:
            return float("nan")
        (a, of_x), (b, of_y) = first, second
        if measure == "second-order":
            return float(
                np.mean([second_order(*row) for row in zip(a, b, of_x, of_y, strict=True)])
            )
        return float(np.mean([OF_LISTS[measure](*row) for row in zip(a, b, strict=True)]))

    sides = [[found(layer) for layer in side] for side in (x, y or x)]
    return np.array([[value(first, second) for second in sides[1]] for first in sides[0]])


def knn_curve(
    x: Sequence[ArrayLike],
    y: Sequence[ArrayLike] | None = None,
    *,
    order: ArrayLike,
    galleries: Sequence[int],
    queries: int,
    measure: str = "mutual",
    k: int = 10,
    metric: str = "cosine",
) -> tuple[Array, Array]:
    """Compute the agreement of neighbours among the first N rows of ``order``, for each N.

    Values and standard errors ``[galleries, len(x), len(y)]`` over the first ``queries`` of them;
    errors are of the mean over all N rows, of which the queries are drawn without replacement.
    """
    order = np.asarray(order)
    shape = (len(galleries), len(x), len(y or x))
    values, errors = np.full(shape, np.nan), np.full(shape, np.nan)
    for g, count in enumerate(galleries):
        rows = [[np.asarray(layer)[order[:count]] for layer in side] for side in (x, y or x)]
        for i, a in enumerate(rows[0]):
            for j, b in enumerate(rows[1]):
                if not (is_defined(a, metric) and is_defined(b, metric)):
                    continue
                lists = [neighbour_lists(layer, k, metric)[:queries] for layer in (a, b)]
                each = [OF_LISTS[measure](*row) for row in zip(*lists, strict=True)]
                values[g, i, j] = np.mean(each)
                share = (1 - queries / count) / queries
                errors[g, i, j] = np.sqrt(share * np.var(each, ddof=1)) if share else 0.0
    return values, errors


def masked_hsic(k: Array, l: Array, estimator: str) -> float:
    """Compute HSIC up to a factor that depends on n alone; the matrices need not be symmetric.

    ``tr(K H L H)``, or with a zero diagonal ``tr(K L) + 1'K1 1'L1 / ((n-1)(n-2)) - 2/(n-2) 1'K L1``
    where ``tr(K L)`` is ``sum_ij K_ij L_ji``.
    """
    n = len(k)
    if estimator == "biased":
        k, l = (center(center(m).T).T for m in (k, l))
        return float(np.sum(k * l.T))
    k, l = k * (1 - np.eye(n)), l * (1 - np.eye(n))
    sums = k.sum() * l.sum() / ((n - 1) * (n - 2))
    third = 2 / (n - 2) * (k.sum(axis=0) @ l.sum(axis=1))
    return float(np.sum(k * l.T) + sums - third)


def cknna_grid(
    x: Sequence[ArrayLike],
    y: Sequence[ArrayLike] | None = None,
    *,
    k: int = 10,
    estimator: str = "unbiased",
) -> Array:
    """Compute the kernel alignment of nearest neighbours, ``[len(x), len(y)]``; asymmetric.

    ``HSIC(M.K, M.L) / sqrt(HSIC(M_X.K, M_X.K) HSIC(M_Y.L, M_Y.L))`` with linear kernels of the
    uncentred rows, ``M_X[i, j] = 1`` where j is one of the k neighbours of i by inner product, and
    ``M = M_X . M_Y``. In the biased estimator the row itself is a candidate, and the value is
    symmetric. ``nan`` where a self-HSIC is not positive, or all rows of a layer are equal.

    References
    ----------
    Huh et al. 2024, *The Platonic Representation Hypothesis*, appendix A, and the authors' code.
    """

    def found(layer: ArrayLike) -> tuple[Array, Array]:
        products = -distances(layer, "inner")
        mask = np.zeros_like(products)
        lists = neighbour_lists(layer, k, "inner", itself=estimator == "biased")
        np.put_along_axis(mask, lists, 1.0, axis=1)
        return mask, products if is_defined(layer, "inner") else np.full_like(products, np.nan)

    def norm(mask: Array, products: Array) -> float:
        square = masked_hsic(mask * products, mask * products, estimator)
        return float(np.sqrt(square)) if square > 0 else float("nan")

    def value(first: tuple[Array, Array], second: tuple[Array, Array]) -> float:
        mask = first[0] * second[0]
        aligned = masked_hsic(mask * first[1], mask * second[1], estimator)
        return aligned / (norm(*first) * norm(*second))

    sides = [[found(layer) for layer in side] for side in (x, y or x)]
    return np.array([[value(first, second) for second in sides[1]] for first in sides[0]])
