"""Distances between two layers as the published codes compute them, pair by pair.

Written anew from the definitions in numpy, scipy and scikit-learn, with the same steps as the code
of Klabunde et al. 2024; layers ``[n, p]`` are numpy arrays of any dtype.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
from sklearn.metrics import pairwise_distances

Array = np.ndarray


def _distances(x: Array) -> Array:
    return np.asarray(pairwise_distances(x, metric="euclidean"))


def _double_centred(d: Array) -> Array:
    return d - d.mean(axis=0) - d.mean(axis=1)[:, None] + d.mean()


def distance_correlation(x: Array, y: Array) -> float:
    """Both distance matrices are formed, and centred, for every pair."""
    a, b = _double_centred(_distances(x)), _double_centred(_distances(y))
    variances = np.sqrt((a * a).mean() * (b * b).mean())
    return float(np.sqrt((a * b).mean() / variances))


def rsm_difference(x: Array, y: Array) -> float:
    """Frobenius norm of the difference of two distance matrices."""
    return float(np.linalg.norm(_distances(x) - _distances(y)))


def rsm_difference_spectral(x: Array, y: Array) -> float:
    """All singular values of the difference of two distance matrices."""
    return float(np.linalg.norm(_distances(x) - _distances(y), ord=2))


def gulp(x: Array, y: Array, ridge: float = 0.1) -> float:
    """Eigenvectors of both covariances for every pair."""
    n = len(x)
    parts = []
    for layer in (x, y):
        centred = layer - layer.mean(axis=0)
        scaled = np.sqrt(n) * centred / np.linalg.norm(centred)
        values, vectors = np.linalg.eigh(scaled.T @ scaled)
        values = np.maximum(values, 0) / n
        parts.append((scaled, values, vectors, 1 / (values + ridge)))
    (a, of_a, v, inverse_a), (b, of_b, w, inverse_b) = parts
    cross = a.T @ b / n
    root = np.sqrt(inverse_a)[:, None] * v.T
    mixed = np.trace(root @ cross @ (w * inverse_b) @ w.T @ cross.T @ root.T)
    own = np.square(of_a * inverse_a).sum() + np.square(of_b * inverse_b).sum()
    return float(own - 2 * mixed)


def eigenspace_overlap(x: Array, y: Array) -> float:
    """Full singular value decompositions of both layers, and of both once more for their ranks."""
    bases = []
    for layer in (x, y):
        u, _, _ = np.linalg.svd(layer)
        bases.append(u[:, : np.linalg.matrix_rank(layer)])
    shared = np.linalg.norm(bases[0].T @ bases[1]) ** 2
    return float(shared / max(x.shape[1], y.shape[1]))


def _uniformity(x: Array) -> float:
    squares = pairwise_distances(x, metric="sqeuclidean")
    return float(np.log(np.exp(-2 * squares).sum() / len(x) ** 2))


def uniformity(x: Array, y: Array) -> float:
    """Both distance matrices for every pair."""
    return abs(_uniformity(x) - _uniformity(y))


def magnitude(x: Array, y: Array) -> float:
    """Lengths of both mean rows."""
    return abs(float(np.linalg.norm(x.mean(axis=0))) - float(np.linalg.norm(y.mean(axis=0))))


def concentricity(x: Array, y: Array) -> float:
    """Mean cosines of the rows of both layers to their mean rows."""
    found = [
        float((1 - pairwise_distances(t, t.mean(axis=0, keepdims=True), metric="cosine")).mean())
        for t in (x, y)
    ]
    return abs(found[0] - found[1])


def procrustes_distance(x: Array, y: Array) -> float:
    """All singular values of a product, by scipy's orthogonal Procrustes."""
    x, y = (layer - layer.mean(axis=0) for layer in (x, y))
    x, y = (layer / np.linalg.norm(layer) for layer in (x, y))
    nuclear = scipy.linalg.orthogonal_procrustes(x, y)[1]
    return float(np.sqrt(max(2 - 2 * nuclear, 0)))


def cosine(x: Array, y: Array) -> float:
    """Mean cosine of the rows."""
    products = (x * y).sum(axis=1)
    return float((products / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)).mean())
