"""HSIC and CKA by whole n x n Gram matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "center",
    "cka",
    "cka_grid",
    "gram",
    "hsic",
    "hsic_biased",
    "hsic_grid",
    "hsic_of_different_neurons",
    "hsic_unbiased",
    "minibatch_cka",
    "rbf_width",
    "squared_distances",
]

Array = NDArray[np.float64]

_MINIMUM_N = {"biased": 2, "unbiased": 4}


def center(x: ArrayLike) -> Array:
    """Subtract the mean over the rows from every column, in float64.

    Parameters
    ----------
    x : array_like, ``[n, p]``

    Returns
    -------
    ndarray, ``[n, p]``, float64
    """
    x = np.asarray(x, dtype=np.float64)
    # The first row is subtracted before the mean: constant columns become exactly zero, and the
    # mean loses no digits to a large common offset.
    x = x - x[:1]
    return x - x.mean(axis=0)


def squared_distances(x: ArrayLike) -> Array:
    """Return the squared Euclidean distances ``[n, n]`` between all rows of ``x``, ``[n, p]``."""
    x = np.asarray(x, dtype=np.float64)
    return np.stack([np.square(x - row).sum(axis=1) for row in x])


def rbf_width(x: ArrayLike, bandwidth: float = 1.0) -> float:
    """Return the width ``s`` of the RBF kernel: ``bandwidth`` times the median distance.

    ``s = bandwidth * sqrt(median(||x_i - x_j||^2))`` with the median over all n^2 ordered pairs,
    the diagonal included. As in numpy, the median of an even count is the mean of the middle two.

    Parameters
    ----------
    x : array_like, ``[n, p]``
    bandwidth : float
        Multiple of the median; the default is 1.0.

    References
    ----------
    Wu et al. 2020 (the authors' code); Kornblith et al. 2019, section 4.
    """
    return float(bandwidth * np.sqrt(np.median(squared_distances(x))))


def gram(x: ArrayLike, kernel: str = "linear", bandwidth: float = 1.0) -> Array:
    """Return the Gram matrix of one representation.

    Parameters
    ----------
    x : array_like, ``[n, p]``
    kernel : {"linear", "rbf"}
        ``Xc Xc'`` with Xc the centred columns, or ``exp(-||x_i - x_j||^2 / (2 s^2))``.
    bandwidth : float
        See `rbf_width`; ignored by the linear kernel.

    Returns
    -------
    ndarray, ``[n, n]``, float64
        All ``nan`` for the RBF kernel where the median distance is 0: the width is undefined.
    """
    if kernel == "linear":
        centred = center(x)
        return centred @ centred.T
    if kernel != "rbf":
        raise ValueError(f"kernel: wanted 'linear' or 'rbf', got {kernel!r}")
    width = rbf_width(x, bandwidth)
    distances = squared_distances(x)
    if width == 0:
        return np.full_like(distances, np.nan)
    return np.exp(-distances / (2 * width**2))


def hsic_biased(k: Array, m: Array) -> float:
    """Compute the biased HSIC ``tr(K H L H) / (n-1)^2`` of two Gram matrices ``[n, n]``.

    References
    ----------
    Phang et al. 2021, appendix A.
    """
    hkh = center(center(k).T)
    return float(np.sum(hkh * m) / (len(k) - 1) ** 2)


def hsic_unbiased(k: Array, m: Array) -> float:
    """Compute the unbiased HSIC of two Gram matrices ``[n, n]``, n >= 4; it may be negative.

    K~ and L~ are the matrices with a zero diagonal::

        [ tr(K~L~) + (1'K~1)(1'L~1)/((n-1)(n-2)) - 2/(n-2) 1'K~L~1 ] / (n(n-3))

    References
    ----------
    Song et al. 2012, equation 5.
    """
    n = len(k)
    k = k * (1 - np.eye(n))
    m = m * (1 - np.eye(n))
    trace = np.sum(k * m)
    sums = k.sum() * m.sum() / ((n - 1) * (n - 2))
    rows = 2 / (n - 2) * (k.sum(axis=0) @ m.sum(axis=1))
    return float((trace + sums - rows) / (n * (n - 3)))


_ESTIMATORS = {"biased": hsic_biased, "unbiased": hsic_unbiased}


def _grams(layers: Sequence[ArrayLike], kernel: str, estimator: str, bandwidth: float) -> list[Any]:
    if estimator not in _ESTIMATORS:
        raise ValueError(f"estimator: wanted 'biased' or 'unbiased', got {estimator!r}")
    grams = [gram(layer, kernel, bandwidth) for layer in layers]
    for index, k in enumerate(grams):
        if len(k) < _MINIMUM_N[estimator]:
            raise ValueError(
                f"layer {index}: wanted n of at least {_MINIMUM_N[estimator]} for the {estimator} "
                f"estimator, got n = {len(k)}"
            )
    return grams


def hsic(
    x: ArrayLike,
    y: ArrayLike,
    *,
    kernel: str = "linear",
    estimator: str = "biased",
    bandwidth: float = 1.0,
) -> float:
    """Compute the HSIC of two representations ``[n, p]`` and ``[n, q]``.

    Parameters
    ----------
    x, y : array_like
        Same n, same order of the rows.
    kernel : {"linear", "rbf"}
    estimator : {"biased", "unbiased"}
        `hsic_biased`, which needs n >= 2, or `hsic_unbiased`, which needs n >= 4.
    bandwidth : float
        See `rbf_width`.

    References
    ----------
    Phang et al. 2021, appendix A; Song et al. 2012.
    """
    k, m = _grams([x, y], kernel, estimator, bandwidth)
    return _ESTIMATORS[estimator](k, m)


def cka(
    x: ArrayLike,
    y: ArrayLike,
    *,
    kernel: str = "linear",
    estimator: str = "biased",
    bandwidth: float = 1.0,
) -> float:
    """Compute ``HSIC(K, L) / sqrt(HSIC(K, K) HSIC(L, L))``; parameters as in `hsic`.

    Unbiased CKA can be negative. ``nan`` where a self-HSIC is not positive.

    References
    ----------
    Kornblith et al. 2019; Nguyen et al. 2021 (unbiased).
    """
    options: dict[str, Any] = {"kernel": kernel, "estimator": estimator, "bandwidth": bandwidth}
    return float(cka_grid([x], [y], **options)[0, 0])


def hsic_grid(
    x: Sequence[ArrayLike],
    y: Sequence[ArrayLike] | None = None,
    *,
    kernel: str = "linear",
    estimator: str = "biased",
    bandwidth: float = 1.0,
) -> Array:
    """Compute `hsic` of all pairs, ``[len(x), len(y)]``; y defaults to x."""
    rows = _grams(x, kernel, estimator, bandwidth)
    columns = rows if y is None else _grams(y, kernel, estimator, bandwidth)
    return _pairs(rows, columns, estimator)


def _pairs(rows: Sequence[Array], columns: Sequence[Array], estimator: str) -> Array:
    return np.array([[_ESTIMATORS[estimator](k, m) for m in columns] for k in rows])


def _selves(grams: Sequence[Array], estimator: str) -> Array:
    return np.array([_ESTIMATORS[estimator](k, k) for k in grams])


def hsic_of_different_neurons(x: ArrayLike, y: ArrayLike | None = None) -> float:
    """Estimate the HSIC of two populations of neurons from a sample of pairs, linear kernel.

    Column a of ``x`` and column a of ``y`` are the same neuron (``y=None``: y is x). The HSIC of
    the layers is the sum over all pairs (a, b) of `hsic_unbiased` of two single neurons; this is
    the mean over the pairs with ``a != b``, in units of the same sum.

    Parameters
    ----------
    x, y : array_like, ``[n, p]``
        n >= 4, p >= 2.

    References
    ----------
    Chun et al. 2025, *Estimating neural representation alignment from sparsely sampled inputs and
    features*.
    """
    left = [gram(column[:, None]) for column in np.asarray(x, dtype=np.float64).T]
    right = left if y is None else [gram(v[:, None]) for v in np.asarray(y, dtype=np.float64).T]
    pairs = [hsic_unbiased(k, m) for a, k in enumerate(left) for b, m in enumerate(right) if a != b]
    return float(np.mean(pairs) * len(left) ** 2)


def _normalise(xy: Array, xx: Array, yy: Array) -> Array:
    """Return ``xy_ij / sqrt(xx_i yy_j)``; ``nan`` where a self-HSIC is not positive."""
    xx = np.where(xx > 0, xx, np.nan)
    yy = np.where(yy > 0, yy, np.nan)
    # Two square roots: the product of two small self-HSICs may underflow.
    return xy / (np.sqrt(xx)[:, None] * np.sqrt(yy)[None, :])


def cka_grid(
    x: Sequence[ArrayLike],
    y: Sequence[ArrayLike] | None = None,
    *,
    kernel: str = "linear",
    estimator: str = "biased",
    bandwidth: float = 1.0,
    neurons: str = "all",
    form: str = "similarity",
) -> Array:
    """Compute `cka` of all pairs, ``[len(x), len(y)]``; y defaults to x.

    ``form="angular"``: the angle whose cosine it is, in radians.

    ``neurons``: the layers are all there is ("all"), or a sample of neurons that were drawn apart
    for every layer ("sampled") or are the same in all layers ("paired"); the last two are for the
    unbiased estimator of the linear kernel. See `hsic_of_different_neurons`.
    """
    same = y is None
    rows = _grams(x, kernel, estimator, bandwidth)
    columns = rows if y is None else _grams(y, kernel, estimator, bandwidth)
    xy = _pairs(rows, columns, estimator)
    if neurons == "all":
        grid = _normalise(xy, _selves(rows, estimator), _selves(columns, estimator))
        if form == "similarity":
            return grid
        angles = np.arccos(np.clip(grid, -1, 1))
        if same:
            angles[np.diag(np.isfinite(grid.diagonal()))] = 0.0
        return angles
    y = x if y is None else y
    xx, yy = (np.array([hsic_of_different_neurons(v) for v in side]) for side in (x, y))
    if neurons == "paired":
        xy = np.array([[hsic_of_different_neurons(v, w) for w in y] for v in x])
    elif same:
        np.fill_diagonal(xy, xx)
    return _normalise(xy, xx, yy)


def minibatch_cka(
    x_batches: Sequence[Sequence[ArrayLike]], y_batches: Sequence[Sequence[ArrayLike]] | None = None
) -> Array:
    """Compute minibatch CKA with the linear kernel: one ratio of averages of unbiased HSICs.

    The numerator and both factors of the denominator are averages over the batches. Every batch
    counts the same, whatever its size.

    Parameters
    ----------
    x_batches, y_batches : sequence of batches
        Each batch is a list of layers ``[b, p_l]``, b >= 4; y defaults to x.

    Returns
    -------
    ndarray, ``[layers of x, layers of y]``

    References
    ----------
    Nguyen, Raghu and Kornblith 2021, equation 2.
    """
    kind = ("linear", "unbiased", 1.0)
    rows = [_grams(x, *kind) for x in x_batches]
    columns = rows if y_batches is None else [_grams(y, *kind) for y in y_batches]
    xy = [_pairs(*both, "unbiased") for both in zip(rows, columns, strict=True)]
    xx, yy = ([_selves(one, "unbiased") for one in side] for side in (rows, columns))
    return _normalise(np.mean(xy, axis=0), np.mean(xx, axis=0), np.mean(yy, axis=0))
