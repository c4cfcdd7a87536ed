"""Matched neurons and rotated layers as the published code has them, one pair at a time.

Written anew after Klabunde et al. 2024, whose code takes assignments and rotations from scipy, and
compared with values of that code (tests/oracle) by `test_matching_bench.py`.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import orthogonal_procrustes
from scipy.optimize import linear_sum_assignment
from torch import Tensor

Array = np.ndarray


def _correlations(x: Array, y: Array) -> Array:
    x, y = ((z - z.mean(0)) / np.linalg.norm(z - z.mean(0), axis=0) for z in (x, y))
    return x.T @ y


def hard(x: Tensor, y: Tensor) -> float:
    r = _correlations(x.numpy(), y.numpy())
    rows, columns = linear_sum_assignment(r, maximize=True)
    return float(r[rows, columns].mean())


def soft(x: Tensor, y: Tensor) -> float:
    r = _correlations(x.numpy(), y.numpy())
    return float((r.max(0).mean() + r.max(1).mean()) / 2)


def permutation(x: Tensor, y: Tensor) -> float:
    a, b = x.numpy(), y.numpy()
    rows, columns = linear_sum_assignment(a.T @ b, maximize=True)
    return float(np.linalg.norm(a[:, rows] - b[:, columns]))


def permutation_angle(x: Tensor, y: Tensor) -> float:
    """Return the least angle between a layer and the other with its neurons permuted."""
    a, b = (z.numpy() / np.linalg.norm(z.numpy()) for z in (x, y))
    rows, columns = linear_sum_assignment(a.T @ b, maximize=True)
    return 2 * float(np.arcsin(min(np.linalg.norm(a[:, rows] - b[:, columns]) / 2, 1)))


def soft_distance(x: Tensor, y: Tensor) -> float:
    """Return the soft-matching distance of layers of one width: each neuron weighs 1 / p."""
    return permutation(x, y) / float(np.sqrt(x.shape[1]))


def aligned_cosine(x: Tensor, y: Tensor) -> float:
    a, b = x.numpy(), y.numpy()
    rotation, _ = orthogonal_procrustes(a, b)
    turned = a @ rotation
    lengths = np.linalg.norm(turned, axis=1) * np.linalg.norm(b, axis=1)
    return float(((turned * b).sum(1) / lengths).mean())
