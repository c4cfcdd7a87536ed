"""Nuclear norms of many small matrices at once, by matrix products alone.

The inner product of M and its polar factor is the sum of the singular values of M. A short
polynomial iteration gives the factor; each of its steps is a few products for the whole batch.
"""

from __future__ import annotations

import functools

import numpy as np
import torch
from torch import Tensor

# The least lower end of an interval as a share of its upper end; two margins for rounding.
CUSHION, SLACK, ROUNDING = 0.05, 0.02, 1e-6
LOWEST = 1e-8  # the least singular value, over the Frobenius norm, that the iteration brings to 1


@functools.cache
def polar_steps(lowest: float = LOWEST) -> tuple[tuple[tuple[float, float, float], ...], float]:
    """Return odd polynomials whose composition is near 1 on [lowest, 1], and its largest error.

    The polynomials before a step map [lowest, 1] to an interval [low, high]. The step is the
    ``a x + b x^3 + c x^5`` with the least error (Remez) on a slightly larger interval, whose lower
    end is at least `CUSHION` * high: a lower one would make the polynomial dip to nearly 0 within
    the interval, where rounding could change the sign. Each polynomial rises from 0 to low, so that
    the composition stays within [0, 1 + error] on [0, lowest].

    The step ``X <- a X + (b A + c A A) X``, ``A = X X'``, applies a polynomial to the singular
    values of X. From X = M all steps lead to the polar factor P of M, and
    ``|<P, M> - ||M||_*| <= error ||M||_* + lowest * rank`` for singular values in [0, 1].

    References
    ----------
    Nakatsukasa & Freund 2016 (compositions of minimax functions for the polar factor); Higham 2008,
    chapter 8.
    """
    steps = []
    low, high, error = lowest, 1 + SLACK, 1.0
    while error > np.finfo(np.float32).eps:
        (a, b, c), error = _best_quintic(max(low, CUSHION * high), high)
        steps.append((a, b, c))
        # Beyond the upper end an error grows tenfold with every step, until the iteration diverges:
        # the slack keeps rounding errors within the interval.
        slack = SLACK * error + ROUNDING
        low = min(a * low + b * low**3 + c * low**5, 1 - error) * (1 - slack)
        high = 1 + error + slack
    return tuple(steps), error


def _best_quintic(low: float, high: float) -> tuple[tuple[float, float, float], float]:
    """Return the odd quintic nearest to 1 on [low, high] and its error, by Remez's exchange."""
    inner = low + (high - low) * np.array([1 / 4, 3 / 4])
    signs = np.array([1.0, -1.0, 1.0, -1.0])
    for _ in range(100):
        points = np.array([low, *inner, high])
        system = np.stack([points, points**3, points**5, signs], axis=1)  # [4, 4]
        a, b, c, error = np.linalg.solve(system, np.ones(4))
        # The extrema solve a + 3 b x^2 + 5 c x^4 = 0.
        root = np.sqrt(max(9 * b * b - 20 * a * c, 0.0))
        extrema = np.sqrt(np.maximum(np.array([-3 * b - root, -3 * b + root]) / (10 * c), 0))
        moved = np.abs(extrema - inner).max()
        inner = np.clip(np.sort(extrema), low, high)
        if moved <= 1e-12 * high:
            break
    return (float(a), float(b), float(c)), abs(float(error))


def nuclear_norms_of(m: Tensor) -> Tensor:
    """Return the nuclear norms of matrices ``[B, k, l]``, float64."""
    # On the CPU LAPACK is the faster form, and for float64 matrices the more accurate one.
    if m.dtype == torch.float64 or m.device.type == "cpu":
        return torch.linalg.svdvals(m).sum(-1, dtype=torch.float64)  # [B]
    return iterated_norms(m)


def iterated_norms(m: Tensor) -> Tensor:
    """Return the nuclear norms of float32 matrices by `polar_steps`."""
    # Beside the rounding of float32 products, their error is at most ``error ||M||_* + lowest
    # rank(M) ||M||_F``.
    if m.shape[1] > m.shape[2]:
        m = m.mT
    norms = torch.linalg.vector_norm(m, dim=(1, 2), keepdim=True, dtype=torch.float64)  # [B, 1, 1]
    m = m * norms.clamp_min(torch.finfo(m.dtype).tiny).reciprocal().to(m.dtype)
    x = m
    for a, b, c in polar_steps()[0]:
        gram = torch.bmm(x, x.mT)  # [B, k, k]
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x * m).sum((1, 2), dtype=torch.float64) * norms.flatten()  # [B]
