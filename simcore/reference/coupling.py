"""The affine coupling, applied to the half of every row that changes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["couple", "soft_clamp"]

Array = NDArray[np.float64]


def soft_clamp(s_raw: ArrayLike, clamp: float) -> Array:
    """Return ``c tanh(s_raw / c)``: close to ``s_raw`` near 0, never beyond -c and c."""
    return clamp * np.tanh(np.asarray(s_raw, np.float64) / clamp)


def couple(
    x: ArrayLike, params: ArrayLike, *, clamp: float, inverse: bool = False
) -> tuple[Array, Array]:
    """Apply the coupling to the half that changes; also return the log-determinant of every row.

    ``y = x exp(s) + t`` with ``log|det| = sum(s)``, or the inverse of this map with ``-sum(s)``.

    Parameters
    ----------
    x : ``[..., n, k]``
        The half that changes.
    params : ``[..., n, 2 k]``
        ``s_raw``, then ``t``.
    clamp : float
        The bound c of `soft_clamp`.
    inverse : bool
        Whether to apply the inverse map.

    References
    ----------
    Dinh et al. 2017, section 3.4; Ren et al. 2023, section 3.4.
    """
    x, params = np.asarray(x, np.float64), np.asarray(params, np.float64)
    k = x.shape[-1]
    s, t = soft_clamp(params[..., :k], clamp), params[..., k:]
    if inverse:
        return (x - t) * np.exp(-s), -s.sum(axis=-1)
    return x * np.exp(s) + t, s.sum(axis=-1)
