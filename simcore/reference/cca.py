"""Canonical correlations, linear regression and Procrustes similarity, by singular values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simcore.reference.distances import pairs
from simcore.reference.hsic import center

__all__ = [
    "basis",
    "canonical_correlations",
    "cca_grid",
    "linreg_grid",
    "procrustes_grid",
    "pwcca_grid",
    "svcca_grid",
]

Array = NDArray[np.float64]
Truncation = float | int | Sequence[int] | None
TopK = float | int | None


def standard_columns(x: ArrayLike) -> Array:
    """Divide the centred columns by their standard deviation; constant columns become zero."""
    centred = center(x)
    deviation = centred.std(axis=0)
    return np.divide(centred, deviation, out=np.zeros_like(centred), where=deviation > 0)


def rounding(x: ArrayLike, eps: float) -> float:
    """Return the rounding of the entries, relative to the length of their column.

    16 roundings of float32, or of float64 where some entry is no float32 number; and two halves of
    the rounding of half precision where the values had such a dtype, of machine precision ``eps``,
    or are all such numbers and lack more than 40 digits of whole numbers: see `_missing_digits`.
    """
    values = np.asarray(x, dtype=np.float64)
    with np.errstate(over="ignore"):
        single, half = values.astype(np.float32), values.astype(np.float16)
    if eps < 2.0**-24 and not np.array_equal(values, single):
        return 16 * 2.0**-53
    bfloat16 = np.array_equal(values, single) and not (single.view(np.uint32) & 0xFFFF).any()
    found = eps / 4 if eps > 2.0**-23 else 0.0  # of half precision: 2^-9 or 2^-12
    for holds, bits in ((np.array_equal(values, half), 11), (bfloat16, 8)):
        if holds and _missing_digits(values, bits) > 40:
            found = 2.0 ** -(bits + 1)
    return 16 * 2.0**-24 + 2 * found


def _missing_digits(values: Array, bits: int) -> int:
    """Count the binary digits that the distinct values lack of whole multiples of their last digit.

    Values of so many ``bits`` lack those that a multiple beyond ``2^bits`` has at its end.
    """
    distinct = np.unique(np.abs(values[values != 0]))
    mantissa, exponent = np.frexp(distinct)
    whole = (mantissa * 2.0**53).astype(np.int64)
    last = np.log2(whole & -whole).astype(int) + exponent - 53
    return int(np.maximum(exponent - bits - last.min(initial=9999), 0).sum())


def floor(n: int, p: int, unit: float) -> float:
    """Return the share of the largest singular value below which no component counts."""
    return 2 * np.sqrt(min(n, p) * 2.0**-52) if unit > 2.0**-24 else max(n, p) * 2.0**-52


def svd(
    x: ArrayLike, eps: float = np.finfo(np.float64).eps, *, standardize: bool = False
) -> tuple[Array, Array, Array]:
    """Compute the thin SVD of the centred columns, cut at the numerical rank.

    The component with right vector v counts if its singular value is above `rounding` times
    ``sqrt(sum_j v_j^2 |x_j|^2)``, ``|x_j|`` the length of column j before it is centred, or above
    `rounding` times ``sqrt(n sum_r u_r^2 sum_j v_j^2 x_rj^2)`` with its left vector u, and above
    ``2 sqrt(2^-52 min(n, p))`` times the largest, which float64 covariances resolve, or for float64
    numbers ``2^-52 max(n, p)``. With ``standardize`` the columns are divided by their standard
    deviation. The result is u ``[n, rank]``, s ``[rank]`` in descending order, and vt
    ``[rank, p]``.
    """
    values = np.asarray(x, dtype=np.float64)
    centred = center(values)
    n, p = centred.shape
    unit = np.abs(centred).max() or 1.0  # squares stay in range
    entries = np.where(np.any(centred != 0, axis=0), values / unit, 0.0)
    centred = centred / unit
    if standardize:
        deviation = centred.std(axis=0)
        entries = entries * np.divide(1.0, deviation, out=np.zeros(p), where=deviation > 0)
        unit, centred = 1.0, standard_columns(values)
    u, s, vt = np.linalg.svd(centred, full_matrices=False)
    noise = entries**2 @ (vt**2).T  # [n, rank], squares for each row
    least = np.minimum(noise.sum(0), n * (u**2 * noise).sum(0)) ** 0.5 * rounding(values, eps)
    counts = (s > least) & (s > floor(n, p, rounding(values, eps)) * s[0])
    counts[n - 1 :] = False  # centring leaves no more
    return u[:, counts], s[counts] * unit, vt[counts]


def kept(s: Array, truncation: float | int | None) -> int:
    """Return the number of components that a truncation keeps of descending singular values ``s``.

    A float is a share of the variance: it keeps the smallest number of components whose squared
    singular values sum to at least that share of the total. An int keeps that number, at most the
    rank, and None keeps all (Raghu et al. 2017; Wu et al. 2020, appendix A.3).
    """
    if truncation is None:
        return len(s)
    if isinstance(truncation, int):
        return min(truncation, len(s))
    shares = np.cumsum(s**2)
    return int(np.sum(shares < truncation * shares[-1])) + 1 if len(s) else 0


def basis(
    x: ArrayLike,
    *,
    truncation: float | int | None = None,
    standardize: bool = False,
    eps: float = np.finfo(np.float64).eps,
) -> Array:
    """Return an orthonormal basis ``[n, k]`` of the (truncated) column space of the centred x."""
    u, s, _ = svd(x, eps, standardize=standardize)
    return u[:, : kept(s, truncation)]


def canonical_correlations(q_x: Array, q_y: Array) -> Array:
    """Return the singular values of ``Q_x' Q_y``, clipped to 1; ``[min(k_x, k_y)]``."""
    return np.minimum(np.linalg.svd(q_x.T @ q_y, compute_uv=False), 1.0)


def top_count(top_k: TopK, count: int) -> int:
    """Return how many of `count` values are kept: `top_k` of them, or that share, rounded down.

    At least one value is kept. A share of a whole number of values keeps that number, also where
    the product is below it by rounding.
    """
    if top_k is None:
        return count
    wanted = top_k if isinstance(top_k, int) else int(np.floor(np.round(top_k * count, 6)))
    return min(max(wanted, 1), count)


def _mean_correlation(q_x: Array, q_y: Array, power: int, top_k: TopK) -> float:
    rho = canonical_correlations(q_x, q_y)
    rho = rho[: top_count(top_k, len(rho))]
    return float(np.mean(rho**power)) if len(rho) else float("nan")


def _truncations(layers: Sequence[ArrayLike], truncation: Truncation) -> list[float | int | None]:
    if isinstance(truncation, Sequence):
        return list(truncation)
    return [truncation] * len(layers)


def _bases(
    layers: Sequence[ArrayLike], truncation: Truncation, **options: float | bool
) -> list[Any]:
    cuts = _truncations(layers, truncation)
    return [basis(x, truncation=t, **options) for x, t in zip(layers, cuts, strict=True)]  # type: ignore[arg-type]


_POWERS = {"mean": 1, "r2": 2}


def cca_grid(
    x: Sequence[ArrayLike],
    y: Sequence[ArrayLike] | None = None,
    *,
    reduction: str = "mean",
    truncation: Truncation = None,
    standardize: bool = False,
    top_k: TopK = None,
    eps: float = np.finfo(np.float64).eps,
) -> Array:
    """Compute the mean (squared) canonical correlation of all pairs, ``[len(x), len(y)]``.

    ``sum(rho) / c`` or ``sum(rho^2) / c``, ``c = min(k_x, k_y)``; with ``truncation`` the measure
    is SVCCA. With ``top_k``, the mean over the largest correlations. ``nan`` where a layer has no
    variance.

    References
    ----------
    Ren et al. 2023, equations 3 to 6 and table 2; Raghu et al. 2017; Wu et al. 2020, footnote 3.
    """
    rows = _bases(x, truncation, standardize=standardize, eps=eps)
    columns = rows if y is None else _bases(y, truncation, standardize=standardize, eps=eps)
    power = _POWERS[reduction]
    return np.array([[_mean_correlation(a, b, power, top_k) for b in columns] for a in rows])


def svcca_grid(
    x: Sequence[ArrayLike],
    y: Sequence[ArrayLike] | None = None,
    *,
    truncation: Truncation = 0.99,
    standardize: bool = False,
    top_k: TopK = None,
    eps: float = np.finfo(np.float64).eps,
) -> Array:
    """Compute `cca_grid` of the leading principal components.

    References
    ----------
    Wu et al. 2020, appendix A.3; Ren et al. 2023, section 3.3.
    """
    return cca_grid(x, y, truncation=truncation, standardize=standardize, top_k=top_k, eps=eps)


def pwcca(q_x: Array, q_y: Array, x: ArrayLike, top_k: TopK = None) -> float:
    """Compute the projection-weighted CCA of two orthonormal bases; the weights come from x.

    ``sum(a_i rho_i) / sum(a_i)`` with canonical variates ``h_i = Q_x u_i`` and weights
    ``a_i = sum_j |<h_i, x_j>|`` over the centred columns x_j of x; with ``top_k``, over the largest
    rho_i.

    References
    ----------
    Morcos et al. 2018; Wu et al. 2020, footnote 3 and appendix A.3; Ren et al. 2023, equations 7 to
    9.
    """
    u, rho, _ = np.linalg.svd(q_x.T @ q_y, full_matrices=False)
    top = top_count(top_k, len(rho))
    u, rho = u[:, :top], rho[:top]
    weights = np.abs((q_x @ u).T @ center(x)).sum(axis=1)
    total = weights.sum()
    return float(weights @ np.minimum(rho, 1.0) / total) if total > 0 else float("nan")


def pwcca_grid(
    x: Sequence[ArrayLike],
    y: Sequence[ArrayLike] | None = None,
    *,
    truncation: Truncation = None,
    standardize: bool = False,
    top_k: TopK = None,
    eps: float = np.finfo(np.float64).eps,
) -> Array:
    """Compute `pwcca` of all pairs, ``[len(x), len(y)]``; asymmetric, the weights come from x.

    With ``standardize``, bases and weights come from the standardised columns.
    """
    if standardize:
        x = [standard_columns(layer) for layer in x]
        y = None if y is None else [standard_columns(layer) for layer in y]
    rows = _bases(x, truncation, eps=eps)
    columns = rows if y is None else _bases(y, truncation, eps=eps)
    pairs = zip(rows, x, strict=True)
    return np.array([[pwcca(a, b, layer, top_k) for b in columns] for a, layer in pairs])


def linreg_grid(
    x: Sequence[ArrayLike],
    y: Sequence[ArrayLike] | None = None,
    *,
    eps: float = np.finfo(np.float64).eps,
) -> Array:
    """Compute the share of x's variance that the best linear map of y explains.

    ``||Q_y' Xc||_F^2 / ||Xc||_F^2`` of all pairs, ``[len(x), len(y)]``.

    References
    ----------
    Ren et al. 2023, table 2; Kornblith et al. 2019, section 3.
    """
    columns = _bases(x if y is None else y, None, eps=eps)
    return np.array([[_explained(center(layer), q) for q in columns] for layer in x])


def _explained(centred: Array, q: Array) -> float:
    total = np.square(centred).sum()
    if total == 0 or q.shape[1] == 0:
        return float("nan")
    return float(min(np.square(q.T @ centred).sum() / total, 1.0))


_PROCRUSTES: dict[str, Callable[[float], float]] = {
    "similarity": lambda s: s,
    "distance": lambda s: float(np.sqrt(2 - 2 * s)),
    "angular": lambda s: float(np.arccos(s)),
}


def procrustes_grid(
    x: Sequence[ArrayLike], y: Sequence[ArrayLike] | None = None, *, form: str = "similarity"
) -> Array:
    """Compute a form of the orthogonal Procrustes comparison of all pairs, ``[len(x), len(y)]``.

    With ``s = ||Xc' Yc||_*`` of layers that are scaled to unit Frobenius norm: ``similarity`` s,
    ``distance`` ``sqrt(2 - 2 s)``, ``angular`` ``arccos s``; ``nan`` where a layer has no variance.
    Of layers that are not scaled, ``size-and-shape``:
    ``sqrt(||Xc||^2 + ||Yc||^2 - 2 ||Xc' Yc||_*)``.

    References
    ----------
    Ding et al. 2021; Williams et al. 2021.
    """
    prepare = center if form == "size-and-shape" else _unit
    rows = [prepare(layer) for layer in x]
    columns = None if y is None else [prepare(layer) for layer in y]
    if form == "size-and-shape":
        return pairs(rows, columns, _size_and_shape, 0.0)
    of = _PROCRUSTES[form]
    grid = pairs(rows, columns, lambda a, b: of(_nuclear_norm(a.T @ b)), of(1.0))
    if y is None:
        grid[np.diag([bool(np.isnan(layer).any()) for layer in rows])] = np.nan
    return grid


def _size_and_shape(x: Array, y: Array) -> float:
    nuclear = np.linalg.svd(x.T @ y, compute_uv=False).sum()
    return float(np.sqrt(max(np.square(x).sum() + np.square(y).sum() - 2 * nuclear, 0.0)))


def _unit(layer: ArrayLike) -> Array:
    centred = center(layer)
    norm = np.linalg.norm(centred)
    return centred / norm if norm > 0 else np.full_like(centred, np.nan)


def _nuclear_norm(m: Array) -> float:
    if np.isnan(m).any():
        return float("nan")
    return float(min(np.linalg.svd(m, compute_uv=False).sum(), 1.0))
