"""Representations whose canonical correlations are known by construction."""

import numpy as np


def orthonormal(n, k, seed=0):
    """``[n, k]``, columns orthonormal and orthogonal to the constant."""
    x = np.random.default_rng(seed).standard_normal((n, k))
    return np.linalg.qr(x - x.mean(axis=0))[0]


def pair_with_correlations(rho, n=60):
    """Return two representations with canonical correlations ``rho``, mapped linearly at random."""
    k = len(rho)
    q = orthonormal(n, 2 * k)
    rho = np.asarray(rho)
    generator = np.random.default_rng(1)
    x, y = q[:, :k], q[:, :k] * rho + q[:, k:] * np.sqrt(1 - rho**2)
    return [z @ generator.standard_normal((k, k)) + generator.standard_normal(k) for z in (x, y)]
