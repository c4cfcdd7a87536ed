"""Measures of neighbours as the published codes compute them, one pair of layers at a time.

Written anew, and compared with values of those codes (tests/oracle) by `test_neighbours_bench.py`.
Huh et al. 2024 sort the products of all rows; Klabunde et al. 2024 ask scikit-learn for the
neighbours and go through the rows in Python.
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.metrics import pairwise_distances
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

K = 10


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
