"""Measures of two layers as the published codes compute them, one pair at a time.

Written anew, with the steps of the code of Klabunde et al. 2024, who ask scikit-learn for the
neighbours and go through the rows in Python, and of Huh et al. 2024, who sort the products of all
rows (`mutual`, `cknna`); `test_grids_bench.py` compares them with values of those codes. Of
distances, layers ``[n, p]`` are numpy arrays of any dtype.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import pairwise_distances
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

Array = np.ndarray
K = 10  # neighbours


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


def _by_products(x: Tensor, *, itself: bool = False) -> Tensor:
    products = x @ x.T
    if not itself:
        products.fill_diagonal_(-torch.inf)
    return products.argsort(dim=1, descending=True)[:, :K]


def _mask(lists: Tensor) -> Tensor:
    return torch.zeros(len(lists), len(lists)).scatter_(1, lists, 1.0)


def mutual(x: Tensor, y: Tensor) -> float:
    x, y = (t / t.norm(dim=1, keepdim=True) for t in (x, y))
    masks = _mask(_by_products(x)) * _mask(_by_products(y))
    return float((masks.sum(1) / K).mean())


def _hsic_unbiased(k: Tensor, l: Tensor) -> Tensor:
    n = len(k)
    k, l = (m.clone().fill_diagonal_(0) for m in (k, l))
    trace = (k * l.T).sum()
    sums = k.sum() * l.sum() / ((n - 1) * (n - 2))
    return (trace + sums - 2 * (k @ l).sum() / (n - 2)) / (n * (n - 3))


def cknna(x: Tensor, y: Tensor) -> float:
    k, l = x @ x.T, y @ y.T
    of_x, of_y = _mask(_by_products(x)), _mask(_by_products(y))
    masks = of_x * of_y
    both = _hsic_unbiased(masks * k, masks * l)
    norms = _hsic_unbiased(of_x * k, of_x * k) * _hsic_unbiased(of_y * l, of_y * l)
    return float(both / (norms.sqrt() + 1e-6))


def _nearest(x: Tensor) -> np.ndarray:
    found = NearestNeighbors(n_neighbors=K, metric="cosine").fit(x.numpy())
    return found.kneighbors(return_distance=False)


def jaccard(x: Tensor, y: Tensor) -> float:
    values = []
    for a, b in zip(_nearest(x), _nearest(y), strict=True):
        one, other = set(a), set(b)
        values.append(len(one & other) / len(one | other))
    return float(np.mean(values))


def rank(x: Tensor, y: Tensor) -> float:
    values = []
    for a, b in zip(_nearest(x), _nearest(y), strict=True):
        places, others = ({j: r + 1 for r, j in enumerate(found)} for found in (a, b))
        common = set(places) & set(others)
        total = sum(
            2 / ((1 + abs(places[j] - others[j])) * (places[j] + others[j])) for j in common
        )
        harmonic = sum(1 / m for m in range(1, len(common) + 1))
        values.append(total / harmonic if common else 0.0)
    return float(np.mean(values))


def second_order(x: Tensor, y: Tensor) -> float:
    of_x, of_y = (pairwise_distances(t.numpy(), metric="cosine") for t in (x, y))
    values = []
    for i, (a, b) in enumerate(zip(_nearest(x), _nearest(y), strict=True)):
        either = sorted(set(a) | set(b))
        v, w = of_x[i, either], of_y[i, either]
        values.append(v @ w / (np.linalg.norm(v) * np.linalg.norm(w)))
    return float(np.mean(values))


def _correlations(x: Array, y: Array) -> Array:
    x, y = ((z - z.mean(0)) / np.linalg.norm(z - z.mean(0), axis=0) for z in (x, y))
    return x.T @ y


def match_hard(x: Tensor, y: Tensor) -> float:
    r = _correlations(x.numpy(), y.numpy())
    rows, columns = linear_sum_assignment(r, maximize=True)
    return float(r[rows, columns].mean())


def match_soft(x: Tensor, y: Tensor) -> float:
    r = _correlations(x.numpy(), y.numpy())
    return float((r.max(0).mean() + r.max(1).mean()) / 2)


def permutation_procrustes(x: Tensor, y: Tensor) -> float:
    a, b = x.numpy(), y.numpy()
    rows, columns = linear_sum_assignment(a.T @ b, maximize=True)
    return float(np.linalg.norm(a[:, rows] - b[:, columns]))


def permutation_angular(x: Tensor, y: Tensor) -> float:
    """Return the least angle between a layer and the other with its neurons permuted."""
    a, b = (z.numpy() / np.linalg.norm(z.numpy()) for z in (x, y))
    rows, columns = linear_sum_assignment(a.T @ b, maximize=True)
    return 2 * float(np.arcsin(min(np.linalg.norm(a[:, rows] - b[:, columns]) / 2, 1)))


def transport_distance(x: Tensor, y: Tensor) -> float:
    """Return the soft-matching distance of layers of one width: each neuron weighs 1 / p."""
    return permutation_procrustes(x, y) / float(np.sqrt(x.shape[1]))


def aligned_cosine(x: Tensor, y: Tensor) -> float:
    a, b = x.numpy(), y.numpy()
    rotation, _ = scipy.linalg.orthogonal_procrustes(a, b)
    turned = a @ rotation
    lengths = np.linalg.norm(turned, axis=1) * np.linalg.norm(b, axis=1)
    return float(((turned * b).sum(1) / lengths).mean())
