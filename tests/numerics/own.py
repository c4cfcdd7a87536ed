"""The right values: the formulas of the measures in numpy, which share no code with simcore.

Sums that cancel are taken in long double, and distances of nearly equal layers from their
differences. A function here has the name and the options of the grid whose pair it computes.
"""

from __future__ import annotations

import inspect
from functools import wraps

import numpy as np
from scipy.optimize import linear_sum_assignment, linprog
from scipy.spatial.distance import pdist
from scipy.stats import rankdata

from numerics.layer import Layer, Long, product


def top(values, top_k):
    """Return the largest values: that many, or that share of them."""
    values = np.sort(values)[::-1]
    if top_k is None:
        return values
    count = top_k if isinstance(top_k, int) else int(np.floor(round(top_k * len(values), 6)))
    return values[: max(count, 1)]


def value(numerator, denominator):
    return float(numerator / denominator) if denominator > 0 else np.nan


def once(function):
    """Decorate a function of two layers that several measures ask for one value."""
    signature = inspect.signature(function)

    @wraps(function)
    def call(a, b, **options):
        known = signature.bind(a, b, **options)
        known.apply_defaults()
        return a.once((function, *known.args[1:]), lambda: function(*known.args))

    return call


# CKA and HSIC


def unbiased(k, m):
    """The formula of Song et al. for matrices with a diagonal of zeros, symmetric or not."""
    n, k, m = len(k), k.astype(Long), m.astype(Long)
    third = 2 / Long(n - 2) * (k.sum(0) @ m.sum(1))
    sums = k.sum() * m.sum() / Long((n - 1) * (n - 2))
    return ((k * m.T).sum() + sums - third) / Long(n * (n - 3))


@once
def _hsic(a, b, estimator="biased", kernel="linear", bandwidth=1.0):
    if kernel == "rbf":
        k, m = (layer.rbf(bandwidth) for layer in (a, b))
        if estimator == "unbiased":
            return unbiased(k, m)
        k = k - k.mean(0)
        return ((k - k.mean(1, keepdims=True)) * m).sum() / (a.n - 1) ** 2
    if estimator == "unbiased":
        return unbiased(a.gram, b.gram)
    return np.square((a.centred.T @ b.centred).astype(Long)).sum() / (a.n - 1) ** 2


@once
def _different_neurons(a, b):
    """All pairs of neurons less those of equal number, in units of all pairs."""
    n, v, w = a.n, a.about_medians, b.about_medians
    r, q = (one * (one.sum(0) - one) for one in (v, w))  # sums of the rows of each neuron's kernel
    sums = (r.sum(0) * q.sum(0)).sum() / Long((n - 1) * (n - 2))
    same = product(v * w).sum() + sums - 2 / Long(n - 2) * (r * q).sum()
    return (unbiased(a.gram, b.gram) - same / Long(n * (n - 3))) * a.p / (a.p - 1)


def hsic_grid(a, b, method="auto", **options):
    return float(_hsic(a, b, **options))


def cka_grid(a, b, neurons="all", method="auto", form="similarity", **options):
    if form == "angular":
        return float(np.arccos(np.clip(cka_grid(a, b, **options), -1.0, 1.0)))
    own = _hsic if neurons == "all" else lambda a, b, **_: _different_neurons(a, b)
    cross = own if neurons == "paired" else _hsic
    xx, yy = own(a, a, **options), own(b, b, **options)
    return value(cross(a, b, **options), np.sqrt(xx) * np.sqrt(yy)) if xx > 0 < yy else np.nan


def minibatch(a, b, batch):
    parts = [[Layer(s.x[i : i + batch]).gram for s in (a, b)] for i in range(0, a.n, batch)]
    xy, xx, yy = (
        sum(unbiased(part[i], part[j]) for part in parts) for i, j in ((0, 1), (0, 0), (1, 1))
    )
    return value(xy, np.sqrt(xx * yy))


# The CCA family, and single neurons


def _correlations(a, b, truncation=None):
    return np.linalg.svd(a.basis(truncation).T @ b.basis(truncation), compute_uv=False)


def cca_grid(a, b, reduction="mean", truncation=None, top_k=None):
    rho = top(_correlations(a, b, truncation), top_k)
    return float(np.mean(rho if reduction == "mean" else rho**2)) if len(rho) else np.nan


def svcca_grid(a, b, truncation=0.99, standardize=False, top_k=None):
    a, b = (layer.standard if standardize else layer for layer in (a, b))
    return cca_grid(a, b, truncation=truncation, top_k=top_k)


def pwcca_grid(a, b, truncation=None, standardize=False, top_k=None):
    a, b = (layer.standard if standardize else layer for layer in (a, b))
    q = a.basis(truncation)
    u, rho, _ = np.linalg.svd(q.T @ b.basis(truncation), full_matrices=False)
    weights = np.abs((q @ u).T @ a.centred).sum(1)[: len(top(rho, top_k))]
    return value(weights @ rho[: len(weights)], weights.sum())


def linreg_grid(a, b):
    if not b.kept.any():
        return np.nan
    return value(np.square(b.basis().T @ a.centred).sum(), np.square(a.centred).sum())


def mixedsim_grid(a, b, top_k=None):
    if not b.kept.any():
        return np.nan
    return float(top(np.linalg.norm(b.basis().T @ a.varying, axis=0), top_k).mean())


def neuronsim_grid(a, b, top_k=None):
    return float(top(np.abs(a.varying.T @ b.varying).max(1), top_k).mean())


def _wide(x, width):
    return np.pad(x, ((0, 0), (0, width - x.shape[1])))


def _polar(x, y, cut=-1.0):
    u, s, vt = np.linalg.svd(x.T @ y)
    return u[:, s > cut * s[0]] @ vt[s > cut * s[0]]


def procrustes_grid(a, b, form="similarity"):
    width = max(a.p, b.p)
    x, y = (_wide(layer.centred, width) for layer in (a, b))
    if form != "size-and-shape":
        norms = np.linalg.norm(x / np.abs(x).max()), np.linalg.norm(y / np.abs(y).max())
        x, y = x / np.abs(x).max() / norms[0], y / np.abs(y).max() / norms[1]
    distance = np.linalg.norm(x @ _polar(x, y) - y)
    of = {"similarity": 1 - distance**2 / 2, "angular": 2 * np.arcsin(min(distance / 2, 1))}
    return float(of.get(form, distance))


# Distances of rows


def rsa_grid(a, b, correlation="pearson"):
    sides = []
    for layer in (a, b):
        rows = layer.x - layer.x.mean(1, keepdims=True)
        if (np.ptp(layer.x, axis=1) == 0).any():
            return np.nan
        rows = rows / np.abs(rows).max(1, keepdims=True)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        d = pdist(rows, "sqeuclidean")
        sides.append(rankdata(np.round(np.sqrt(d), 13)) if correlation == "spearman" else d)
    x, y = (side - side.astype(Long).mean() for side in sides)
    return value((x * y).sum(), np.sqrt((x * x).sum() * (y * y).sum()))


def distance_correlation_grid(a, b):
    k, m = (layer.distances / (layer.distances.max() or 1.0) for layer in (a, b))
    k, m = (d - d.mean(0) - d.mean(1, keepdims=True) + d.mean() for d in (k, m))
    return float(np.sqrt(value((k * m).sum(), np.sqrt((k * k).sum() * (m * m).sum()))))


def rsm_difference_grid(a, b, norm="frobenius"):
    return float(np.linalg.norm(a.distances - b.distances, "fro" if norm == "frobenius" else 2))


def _smoother(layer, ridge):
    u, s, _ = layer.svd
    shares = np.square(s / s[0]) / np.square(s / s[0]).sum()
    return u, shares / (shares + ridge) if ridge else layer.kept * 1.0


def gulp_grid(a, b, ridge=0.0):
    (u, d), (v, e) = (_smoother(layer, ridge) for layer in (a, b))
    u, v = np.split(np.linalg.qr(np.c_[u, v])[1], [len(d)], axis=1)  # in their common space
    return float(np.square((u * d) @ u.T - (v * e) @ v.T).sum())


def eigenspace_overlap_grid(a, b):
    return float(np.square(a.space.T @ b.space).sum() / max(a.p, b.p))


# Neighbours


def _ranks(layer, k, metric):
    """Return the ranks of the k nearest other rows of each row, ``[n, n]``, and 0 elsewhere."""
    ranks = np.zeros((layer.n, layer.n))
    np.put_along_axis(ranks, layer.neighbours(k, metric), np.arange(1.0, k + 1)[None], axis=1)
    return ranks


def knn_grid(a, b, measure="mutual", k=10, metric="cosine"):
    r, q = (_ranks(layer, k, metric) for layer in (a, b))
    common, either = (r > 0) & (q > 0), (r > 0) | (q > 0)
    count = common.sum(1)
    if measure == "second-order":
        u, v = (layer.cosine_distances * either for layer in (a, b))
        norms = np.linalg.norm(u, axis=1) * np.linalg.norm(v, axis=1)
        alike = 1.0 * ~(u.any(1) | v.any(1))
        return float(np.divide((u * v).sum(1), norms, out=alike, where=norms > 0).mean())
    if measure == "rank":
        each = common * 2 / ((1 + np.abs(r - q)) * np.maximum(r + q, 1))
        most = np.cumsum(1 / np.arange(1, k + 1))[np.maximum(count, 1) - 1]
        return float((each.sum(1) / most).mean())
    return float((count / (k if measure == "mutual" else either.sum(1))).mean())


def cknna_grid(a, b, k=10, estimator="unbiased"):
    masks, kernels = [], []
    for layer in (a, b):
        kernels.append(layer.inner)
        masks.append(np.zeros((layer.n, layer.n)))
        lists = layer.neighbours(k, "inner", estimator == "biased")
        np.put_along_axis(masks[-1], lists, 1.0, axis=1)

    def hsic(mask, other, k, m):
        k, m = mask * k, other * m
        if estimator == "unbiased":
            return unbiased(k, m)
        k = k - k.mean(0)
        return ((k - k.mean(1, keepdims=True)) * m.T).sum()

    both = masks[0] * masks[1]
    xx, yy = (hsic(m, m, g, g) for m, g in zip(masks, kernels, strict=True))
    return value(hsic(both, both, *kernels), np.sqrt(xx * yy)) if xx > 0 < yy else np.nan


# Matching


def _transport(costs):
    p, q = costs.shape
    if p == q:
        return costs[linear_sum_assignment(costs)].mean()
    scale = np.abs(costs).max()
    rows, columns = np.kron(np.eye(p), np.ones(q)), np.kron(np.ones(p), np.eye(q))
    sums = np.r_[np.full(p, 1 / p), np.full(q, 1 / q)]
    found = linprog((costs / scale).ravel(), A_eq=np.r_[rows, columns], b_eq=sums)
    return found.fun * scale


def matching_grid(a, b, matching="one-to-one", score="correlation"):
    if score == "correlation":
        r = a.varying.T @ b.varying
        if matching == "best":
            return float((r.max(0).mean() + r.max(1).mean()) / 2)
        return float(
            r[linear_sum_assignment(-r)].mean() if matching != "transport" else -_transport(-r)
        )
    if matching == "transport":
        costs = np.square(a.x[:, :, None] - b.x[:, None]).sum(0)
        return float(np.sqrt(_transport(costs)))
    x, y = (_wide(layer.x, max(a.p, b.p)) for layer in (a, b))
    if score == "angular":
        x, y = (one / np.abs(one).max() for one in (x, y))
        x, y = (one / np.linalg.norm(one) for one in (x, y))
    difference = np.linalg.norm(x - y[:, linear_sum_assignment(-(x.T @ y))[1]])
    return float(2 * np.arcsin(min(difference / 2, 1)) if score == "angular" else difference)


def aligned_cosine_grid(a, b):
    width = max(a.p, b.p)
    x, y = (_wide(layer.x / np.abs(layer.x).max(), width) for layer in (a, b))
    lengths = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    products = (x @ _polar(x, y, width * 2.0**-52) * y).sum(1)
    return float(np.mean(products[lengths > 0] / lengths[lengths > 0]))


# Rows and outputs


def cosine_grid(a, b, form="cosine"):
    some = a.x.any(1) & b.x.any(1)
    u, v = a.unit_rows[some], b.unit_rows[some]
    if form == "cosine":
        return float((u * v).sum(1).mean())
    angles = np.arctan2(np.linalg.norm(u - v, axis=1), np.linalg.norm(u + v, axis=1))
    return float(2 * angles.mean() / np.pi)


def _descriptor(layer, name):
    if name == "uniformity":
        return np.log(np.exp(-2 * np.square(layer.distances.astype(Long))).mean())
    mean = np.float64(layer.mean / np.abs(layer.x).max())
    if name == "magnitude":
        return np.linalg.norm(mean) * np.abs(layer.x).max()
    return (layer.unit_rows[layer.x.any(1)] @ mean).mean() / np.linalg.norm(mean)


def descriptor_grid(a, b, descriptor):
    return float(abs(_descriptor(a, descriptor) - _descriptor(b, descriptor)))


def disagreement_grid(a, b):
    return float(np.mean(a.x.argmax(1) != b.x.argmax(1)))


def output_divergence_grid(a, b):
    p, q = (np.exp(s.x - s.x.max(1, keepdims=True)) for s in (a, b))
    p, q = (one / one.sum(1, keepdims=True) for one in (p, q))
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = [np.where(one > 0, one * np.log2(2 * one / (p + q)), 0) for one in (p, q)]
    return float((parts[0] + parts[1]).sum(1).mean() / 2)
