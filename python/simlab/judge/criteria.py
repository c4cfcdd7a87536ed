"""What a measure of similarity should get right, on models that differ in their seed alone.

Arrays of similarities are ``s[a, l, b, m]``: layer l of model a, described by layer m of model b.
Larger is more alike; `oriented` turns distances around.

* *Identification* (Kornblith et al. 2019, table 2): of all layers of b, is layer l the most similar
  to layer l of a? A tie counts in part, an undefined value as no.
* *Order* (Klabunde et al. 2024, test 6): of three layers of a model, is the middle one more similar
  to the first than the last one is, and more similar to the last than the first one is?
* *Depth* (the same test): Spearman's correlation over the layers of a model, of their similarity
  with how near they are.
* *Agreement* (their tests 1 and 2): Spearman's correlation over pairs of models, of the similarity
  of the last layers with the likeness of what the models answer.

What is exchangeable. Models of a set come from one recipe with independent seeds, so models are
what the bootstrap draws; pairs share models, and layers share a model, and neither are drawn. The
rows are fixed: intervals say nothing of other images or texts. P-values of identification and of
order relabel the layers of each model by a permutation of its own: under the null hypothesis, the
depth of a layer says nothing of its similarities. Those of agreement give the answers of the models
to the models anew (Mantel 1967): under the null hypothesis, similarities and answers are unrelated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from scipy.stats import rankdata

DRAWS = 2000
LEVELS = (0.025, 0.975)


@dataclass(frozen=True)
class Estimate:
    """A criterion, its 95 % interval over models, and its one-sided p-value."""

    value: float
    low: float
    high: float
    pvalue: float


def oriented(values: np.ndarray, models: int, distance: bool) -> np.ndarray:
    """Return a joint grid ``[models * L, models * L]`` as similarities ``s``.

    Infinity is no value: it becomes nan.
    """
    layers = len(values) // models
    s = np.asarray(values, np.float64).reshape(models, layers, models, layers)
    return np.where(np.isfinite(s), -s if distance else s, np.nan)


def identification(s: np.ndarray, seed: int = 0) -> Estimate:
    """Return the share of layers that are identified, over all ordered pairs of models."""
    shares = most_similar(s)

    def per_pair(labels: np.ndarray) -> np.ndarray:
        return _at_labels(shares, labels).mean(2)

    return _of_pairs(per_pair, s, seed)


def identification_difference(s: np.ndarray, t: np.ndarray, seed: int = 0) -> Estimate:
    """Return how much larger the share that s identifies is than that of t, of the same models.

    The interval draws models for both at once. There is no p-value: orders of layers that are
    drawn at random would test whether either says anything, and not whether they differ.
    """
    shares = most_similar(s) - most_similar(t)
    found = _of_pairs(lambda labels: _at_labels(shares, labels).mean(2), s, seed)
    return replace(found, pvalue=float("nan"))


def likeness(s: np.ndarray, seed: int = 0) -> Estimate:
    """Return the mean similarity of equal layers of different models."""
    values = s.transpose(0, 2, 1, 3)

    def per_pair(labels: np.ndarray) -> np.ndarray:
        return np.nanmean(_at_labels(values, labels), axis=2)

    return _of_pairs(per_pair, s, seed)


def order(s: np.ndarray, seed: int = 0) -> Estimate:
    """Return the share of comparisons of three layers of a model that are in order."""
    models, layers = s.shape[:2]
    within = s[np.arange(models), :, np.arange(models)]
    nearer = within[..., :, None] > within[..., None, :]
    right = nearer + (within[..., :, None] == within[..., None, :]) / 2  # [model, from, near, far]
    middle = np.array(
        [
            (end, j, other)
            for i, j, k in combinations(range(layers), 3)
            for end, other in ((i, k), (k, i))
        ]
    )
    each = np.arange(models)[:, None]

    def per_model(labels: np.ndarray) -> np.ndarray:
        start, near, far = (labels[:, places] for places in middle.T)
        return right[each, start, near, far].mean(1)

    found = per_model(np.tile(np.arange(layers), (models, 1)))
    drawn = _counts(models, seed) @ found / models
    null = [per_model(labels).mean() for labels in relabelled(models, layers, seed)]
    return estimate(found.mean(), drawn, null)


def depth_correlation(s: np.ndarray, seed: int = 0) -> Estimate:
    """Return the rank correlation of similar and near layers of a model, as a mean over models.

    A layer without a value, or values that are all equal, leave the correlation undefined.
    """
    models, layers = s.shape[:2]
    within = s[np.arange(models), :, np.arange(models)]
    one, other = np.nonzero(~np.eye(layers, dtype=bool))
    near = -np.abs(one - other)

    def per_model(labels: np.ndarray) -> np.ndarray:
        each = np.arange(models)[:, None]
        values = within[each, labels[:, one], labels[:, other]]
        return spearman_of_rows(values, near)

    found = per_model(np.tile(np.arange(layers), (models, 1)))
    drawn = _counts(models, seed) @ found / models
    null = [per_model(labels).mean() for labels in relabelled(models, layers, seed)]
    return estimate(found.mean(), drawn, null)


def spearman_of_rows(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return Spearman's correlation of each row of x ``[rows, n]`` with y ``[n]``."""
    u, v = (rankdata(values, axis=-1, nan_policy="propagate") for values in (x, y))
    u, v = u - u.mean(-1, keepdims=True), v - v.mean()
    with np.errstate(invalid="ignore"):
        return np.asarray((u * v).sum(-1) / np.sqrt((u * u).sum(-1) * (v * v).sum()))


def agreement(s: np.ndarray, differences: np.ndarray, seed: int = 0) -> Estimate:
    """Return the rank correlation of similar last layers and small differences, over pairs.

    `differences` [models, models] says how far the answers of two models are apart.
    """
    models = len(s)
    a, b = np.triu_indices(models, 1)
    last = s[:, -1, :, -1]
    alike, unlike = (last[a, b] + last[b, a]) / 2, differences[a, b]
    if not np.isfinite(alike).all():
        return Estimate(*[float("nan")] * 4)
    counts = _counts(models, seed)
    drawn = rank_correlation(alike, -unlike, counts[:, a] * counts[:, b])
    rng = np.random.default_rng(seed)
    renamed = (rng.permutation(models) for _ in range(DRAWS))
    null = [rank_correlation(alike, -differences[new[a], new[b]])[0] for new in renamed]
    return estimate(rank_correlation(alike, -unlike)[0], drawn, null)


def rank_correlation(x: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Return Spearman's correlation of x and y ``[n]`` for each row of counts ``[draws, n]``."""
    weights = np.ones((1, len(x))) if weights is None else np.asarray(weights, np.float64)
    total = weights.sum(1, keepdims=True)
    ranks = [_ranks(values, weights) for values in (x, y)]
    u, v = (rank - (weights * rank).sum(1, keepdims=True) / total for rank in ranks)
    with np.errstate(invalid="ignore"):
        return (weights * u * v).sum(1) / np.sqrt(
            (weights * u * u).sum(1) * (weights * v * v).sum(1)
        )


def most_similar(s: np.ndarray) -> np.ndarray:
    """Return ``[a, b, l, m]``: 1 where layer m of b is the most similar to layer l of a.

    Layers that share the first place share the 1. A layer m without any value is never the most
    similar. Where m has values for other layers and none for l, no layer is the most similar to l:
    a measure without values for the pairs that are hard would identify every layer.
    """
    rows = s.transpose(0, 2, 1, 3)
    undefined = np.isnan(rows)
    unknown = (undefined & ~undefined.all(-2, keepdims=True)).any(-1, keepdims=True)
    rows = np.where(undefined, -np.inf, rows)
    first = (rows == rows.max(-1, keepdims=True)) & ~undefined & ~unknown
    return first / np.maximum(first.sum(-1, keepdims=True), 1)


def relabelled(models: int, layers: int, seed: int) -> Iterator[np.ndarray]:
    """Yield a random order of the layers of every model, ``[models, layers]``."""
    rng = np.random.default_rng(seed)
    numbers = np.tile(np.arange(layers), (models, 1))
    for _ in range(DRAWS):
        yield rng.permuted(numbers, axis=1)


def _at_labels(values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return ``values[a, b, labels[a, l], labels[b, l]]`` as ``[a, b, l]``."""
    each = np.arange(len(labels))
    return values[each[:, None, None], each[:, None], labels[:, None], labels[None]]


def _of_pairs(per_pair: Callable[[np.ndarray], np.ndarray], s: np.ndarray, seed: int) -> Estimate:
    """Summarise ``per_pair(labels)``, ``[models, models]``, over pairs of different models."""
    models, layers = s.shape[:2]
    others = ~np.eye(models, dtype=bool)
    found = np.where(others, per_pair(np.tile(np.arange(layers), (models, 1))), 0.0)
    counts = _counts(models, seed)
    # A model that is drawn twice is not compared with itself.
    drawn = np.einsum("di,ij,dj->d", counts, found, counts) / np.einsum(
        "di,ij,dj->d", counts, others.astype(float), counts
    )
    null = [per_pair(labels)[others].mean() for labels in relabelled(models, layers, seed)]
    return estimate(found[others].mean(), drawn, null)


def _counts(models: int, seed: int) -> np.ndarray:
    """Return how often each resample draws each model, ``[DRAWS, models]``; no single model."""
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(models, np.full(models, 1 / models), size=2 * DRAWS)
    return counts[(counts > 0).sum(1) > 1][:DRAWS].astype(np.float64)


def estimate(value: float, drawn: np.ndarray, null: Sequence[float] | np.ndarray) -> Estimate:
    """Return a value with the interval of its resamples and its p-value under the null hypothesis.

    The values that were `drawn` and the values of the `null` may contain nan, which is left out of
    the interval, and never reaches the value.
    """
    if not np.isfinite(value):
        return Estimate(*[float("nan")] * 4)
    low, high = np.nanquantile(drawn, LEVELS)
    return Estimate(float(value), float(low), float(high), pvalue_of(value, null))


def pvalue_of(value: float, null: Sequence[float] | np.ndarray) -> float:
    """Return the one-sided p-value of a value under the null hypothesis; nan is not reached."""
    # Sums in another order differ in their last digits.
    reached = np.asarray(null) >= value - 1e-12 * max(1.0, abs(value))
    return float((1 + reached.sum()) / (1 + len(null)))


def _ranks(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the mean ranks of values ``[n]`` that stand ``weights`` times, ``[draws, n]``."""
    _, group = np.unique(values, return_inverse=True)
    sizes = np.zeros((len(weights), group.max() + 1))
    np.add.at(sizes.T, group, weights.T)
    return (np.cumsum(sizes, axis=1) - sizes / 2)[:, group]
