"""Nuclear norms of many small matrices at once, by matrix products alone.

The trace of M with its polar factor is the sum of its singular values, and the factor comes from a
short polynomial iteration, of which every step is a product for the whole batch.
"""

from __future__ import annotations

import functools

import numpy as np
import torch
from torch import Tensor

# Of an interval: its least lower end, as a share of the upper, and what is added for rounding.
CUSHION, SLACK, ROUNDING = 0.05, 0.02, 1e-6
LOWEST = 1e-8  # singular values, over the Frobenius norm, that the iteration brings to 1


@functools.cache
def polar_steps(lowest: float = LOWEST) -> tuple[tuple[tuple[float, float, float], ...], float]:
    """Odd polynomials whose composition is 1 on [lowest, 1], up to an error that is also returned.

    Each ``a x + b x^3 + c x^5`` is the best of its form (Remez) on a little more than the interval
    [low, high] that the former ones map [lowest, 1] to, but for low below a share of high: the best
    would come down to nearly 0 in between, from where rounding reaches the other side. It rises
    from 0 to low, so that the composition stays within [0, 1 + error] on [0, lowest].

    Applied to the singular values of M by ``X <- a X + (b A + c A A) X``, ``A = X X'``, it gives
    the polar factor P of M: ``|<P, M> - ||M||_*| <= error ||M||_* + lowest * rank`` for singular
    values in [0, 1].

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
        # What lies at an upper end is magnified tenfold by every step, and lost once it is beyond:
        # rounding must not get it there.
        slack = SLACK * error + ROUNDING
        low = min(a * low + b * low**3 + c * low**5, 1 - error) * (1 - slack)
        high = 1 + error + slack
    return tuple(steps), error


def _best_quintic(low: float, high: float) -> tuple[tuple[float, float, float], float]:
    """The odd quintic nearest to 1 on [low, high], and its error, by Remez's exchange."""
    inner = low + (high - low) * np.array([1 / 4, 3 / 4])
    signs = np.array([1.0, -1.0, 1.0, -1.0])
    for _ in range(100):
        points = np.array([low, *inner, high])
        system = np.stack([points, points**3, points**5, signs], axis=1)
        a, b, c, error = np.linalg.solve(system, np.ones(4))
        # Its extrema: a + 3 b x^2 + 5 c x^4 = 0.
        root = np.sqrt(max(9 * b * b - 20 * a * c, 0.0))
        extrema = np.sqrt(np.maximum(np.array([-3 * b - root, -3 * b + root]) / (10 * c), 0))
        moved = np.abs(extrema - inner).max()
        inner = np.clip(np.sort(extrema), low, high)
        if moved <= 1e-12 * high:
            break
    return (float(a), float(b), float(c)), abs(float(error))


def nuclear_norms_of(m: Tensor) -> Tensor:
    """Nuclear norms of matrices ``[B, k, l]``, float64.

    float64 matrices by their singular values; float32 ones by `polar_steps`, within
    ``error ||M||_* + lowest rank(M) ||M||_F`` of it and what float32 products round.
    """
    if m.dtype == torch.float64:
        return torch.linalg.svdvals(m).sum(-1)
    if m.shape[1] > m.shape[2]:
        m = m.mT
    norms = torch.linalg.vector_norm(m, dim=(1, 2), keepdim=True, dtype=torch.float64)
    m = m * norms.clamp_min(torch.finfo(m.dtype).tiny).reciprocal().to(m.dtype)
    x = m
    for a, b, c in polar_steps()[0]:
        gram = torch.bmm(x, x.mT)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x * m).sum((1, 2), dtype=torch.float64) * norms.flatten()
