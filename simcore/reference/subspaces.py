"""Layers compared as regressors and as subspaces: GULP and the eigenspace overlap."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simcore.reference.cca import floor, rounding, svd
from simcore.reference.distances import pairs
from simcore.reference.hsic import center

__all__ = ["eigenspace_overlap_grid", "gulp_grid"]

Array = NDArray[np.float64]
EPS = np.finfo(np.float64).eps


def _scaled(x: ArrayLike) -> Array:
    """Return the centred columns with Frobenius norm ``sqrt(n)``; nan without variance."""
    centred = center(x)
    norm = np.linalg.norm(centred)
    return centred * np.sqrt(len(centred)) / norm if norm > 0 else np.full_like(centred, np.nan)


def _gulp(a: tuple[Array, Array], b: tuple[Array, Array]) -> float:
    (x, inverse_x), (y, inverse_y) = a, b
    n = len(x)
    own_x, own_y, cross = inverse_x @ x.T @ x / n, inverse_y @ y.T @ y / n, x.T @ y / n
    mixed = np.trace(inverse_x @ cross @ inverse_y @ cross.T)
    return float(np.trace(own_x @ own_x) + np.trace(own_y @ own_y) - 2 * mixed)


def _with_inverse(x: ArrayLike, ridge: float, eps: float) -> tuple[Array, Array]:
    """Return the scaled layer and ``(S + ridge)^-1``, the pseudo-inverse of S if ridge is 0."""
    scaled = _scaled(x)
    n, p = scaled.shape
    if np.isnan(scaled).any():
        return scaled, np.full((p, p), np.nan)
    if ridge > 0:
        return scaled, np.linalg.inv(scaled.T @ scaled / n + ridge * np.eye(p))
    _, s, vt = svd(x, eps)
    shares = (s / s[0]) ** 2 / np.sum((s / s[0]) ** 2)  # of the variance; S has the trace 1
    return scaled, (vt.T / shares) @ vt


def gulp_grid(
    x: Sequence[ArrayLike],
    y: Sequence[ArrayLike] | None = None,
    *,
    ridge: float = 0.0,
    eps: float = EPS,
) -> Array:
    """Compute the (squared) GULP distance of all pairs, ``[len(x), len(y)]``.

    Layers are centred and scaled to Frobenius norm ``sqrt(n)``, ``S_xy = X' Y / n``::

        tr(P_x S_x P_x S_x) + tr(P_y S_y P_y S_y) - 2 tr(P_x S_xy P_y S_yx),  P = (S + ridge)^-1

    with pseudo-inverses for ``ridge=0``; ``nan`` where a layer has no variance.

    References
    ----------
    Boix-Adsera et al. 2022, *GULP: a prediction-based metric between representations*, section 2.
    """
    rows = [_with_inverse(layer, ridge, eps) for layer in x]
    columns = None if y is None else [_with_inverse(layer, ridge, eps) for layer in y]
    grid = pairs(rows, columns, _gulp, 0.0)
    if y is None:
        grid[np.diag([bool(np.isnan(scaled).any()) for scaled, _ in rows])] = np.nan
    return grid


def column_space(x: ArrayLike, eps: float = EPS) -> Array:
    """Return an orthonormal basis ``[n, k]`` of the columns of x, which are not centred.

    The numerical rank k is the rank of the centred columns, plus 1 if the mean row has a part r
    outside their row space along which the columns, not centred, have a singular value ``sqrt(n)
    |r|`` that counts by the rule of `svd`.
    """
    x = np.asarray(x, dtype=np.float64)
    n, p = x.shape
    u, s, vt = svd(x, eps)
    mean = x[0] + (x - x[0]).mean(axis=0)
    within = vt.T @ (vt @ mean)
    beyond = mean - within
    size = np.linalg.norm(beyond)
    roots = np.sqrt((x**2).mean(axis=0))  # of the mean squares of the columns
    least = rounding(x, eps) * np.linalg.norm(beyond * roots) / size if size > 0 else 0.0
    share = floor(n, p, rounding(x, eps))
    outside = len(s) < p and size > max(least, share * np.linalg.norm(roots))
    restored = (u * s) @ vt + (mean if outside else within)
    return np.linalg.svd(restored, full_matrices=False)[0][:, : len(s) + int(outside)]


def eigenspace_overlap_grid(
    x: Sequence[ArrayLike], y: Sequence[ArrayLike] | None = None, *, eps: float = EPS
) -> Array:
    """Compute ``||U' V||_F^2 / max(p, q)`` of all pairs, ``[len(x), len(y)]``.

    U and V are orthonormal bases of the columns of the layers ``[n, p]`` and ``[n, q]``, which are
    not centred; ``nan`` where a layer holds zeros alone.

    References
    ----------
    May et al. 2019, *On the downstream performance of compressed word embeddings*, definition 1.
    """
    spaces = [(column_space(layer, eps), np.shape(layer)[1]) for layer in x]
    others = spaces if y is None else [(column_space(t, eps), np.shape(t)[1]) for t in y]

    def overlap(a: tuple[Array, int], b: tuple[Array, int]) -> float:
        (u, p), (v, q) = a, b
        if not (u.shape[1] and v.shape[1]):
            return float("nan")
        return float(np.square(u.T @ v).sum() / max(p, q))

    return pairs(spaces, others, overlap, np.nan)
