"""What a measure of similarity should get right, and how sure a score is.

On models that differ in their seed alone, similarities are ``s[a, l, b, m]``: layer l of model a,
described by layer m of model b. Larger is more alike; `oriented` turns distances around.

* *Identification* (Kornblith et al. 2019, table 2): of all layers of b, is layer l the most similar
  to layer l of a? A tie counts in part, an undefined value as no.
* *Order* (Klabunde et al. 2024, test 6): of three layers of a model, is the middle one more similar
  to the first than the last one is, and more similar to the last than the first one is?
* *Depth* (the same test): Spearman's correlation of similar and near layers of a model.
* *Agreement* (their tests 1 and 2): Spearman's correlation over pairs of models, of the similarity
  of the last layers with the likeness of the models' answers.

The bootstrap draws models, which come from one recipe with independent seeds; pairs and layers
share models and are not drawn. The rows are fixed: intervals say nothing of other images or texts.
P-values of agreement give the answers of the models to the models anew (Mantel 1967), all others
relabel the layers of each model by a permutation of its own.

*Separation* (their tests 3 to 5) is of groups of models that were trained in different ways. The
values of two models of a group, ``in``, should exceed those of a model of the group and one of
another group, ``cross``. Two scores, each the mean over groups: *AUPRC*, the average precision of
finding the pairs ``in`` by their similarity (by chance about their share of all pairs), and the
*violation rate*, the share of (``in``, ``cross``) that are not in order; a tie is a violation, as
in their code. A pair without a value, which their code leaves out, counts against the measure here:
if it is ``in`` it is never found, if it is ``cross`` it is found first. Intervals are t intervals
of the jackknife over models (Arvesen 1969): with m models, the score e and the scores e(k) without
model k, they are e -+ t(.975; m - 1) sqrt((m - 1) / m * sum of (e(k) - mean of all e(k))^2), within
0 and 1. The bootstrap would not do: a resample has few different models, and AUPRC is higher the
fewer there are. P-values give the models to the groups anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.stats import rankdata, t

DRAWS = 2000


@dataclass(frozen=True)
class Estimate:
    """A criterion, its 95 % interval over models, and its one-sided p-value."""

    value: float
    low: float = np.nan
    high: float = np.nan
    pvalue: float = np.nan


def oriented(values: np.ndarray, models: int, distance: bool) -> np.ndarray:
    """Return a joint grid ``[models * L, models * L]`` as similarities ``s``; infinity is nan."""
    layers = len(values) // models
    s = np.asarray(values, np.float64).reshape(models, layers, models, layers)
    return np.where(np.isfinite(s), -s if distance else s, np.nan)


def within(s: np.ndarray) -> np.ndarray:
    """Return the similarities within models, ``[models, L, L]``."""
    return s[np.arange(len(s)), :, np.arange(len(s))]


def identification(s: np.ndarray, seed: int = 0) -> Estimate:
    """Return the share of layers that are identified, over all ordered pairs of models."""
    shares = most_similar(s)
    return over_pairs(lambda labels: at_labels(shares, labels).mean(2), s, seed)


def order(s: np.ndarray, seed: int = 0) -> Estimate:
    """Return the share of comparisons of three layers of a model that are in order."""
    inner, each = within(s), np.arange(len(s))[:, None]
    nearer = inner[..., :, None] > inner[..., None, :]
    right = nearer + (inner[..., :, None] == inner[..., None, :]) / 2  # [model, from, near, far]
    triples = combinations(range(s.shape[1]), 3)
    middle = np.array([(a, j, b) for i, j, k in triples for a, b in ((i, k), (k, i))])

    def per_model(labels: np.ndarray) -> np.ndarray:
        start, near, far = (labels[:, places] for places in middle.T)
        return right[each, start, near, far].mean(1)

    return _over_models(per_model, s, seed)


def depth_correlation(s: np.ndarray, seed: int = 0) -> Estimate:
    """Return the rank correlation of similar and near layers of a model, as a mean over models."""
    inner, each = within(s), np.arange(len(s))[:, None]
    first, second = np.nonzero(~np.eye(s.shape[1], dtype=bool))
    near = rankdata(-np.abs(first - second))
    v = near - near.mean()

    def per_model(labels: np.ndarray) -> np.ndarray:
        values = inner[each, labels[:, first], labels[:, second]]
        u = rankdata(values, axis=-1, nan_policy="propagate")
        u = u - u.mean(-1, keepdims=True)
        with np.errstate(invalid="ignore"):
            return np.asarray((u * v).sum(-1) / np.sqrt((u * u).sum(-1) * (v * v).sum()))

    return _over_models(per_model, s, seed)


def agreement(s: np.ndarray, differences: np.ndarray, seed: int = 0) -> Estimate:
    """Return the rank correlation of similar last layers and small differences, over pairs.

    `differences` [models, models] says how far the answers of two models are apart.
    """
    a, b = np.triu_indices(len(s), 1)
    last = s[:, -1, :, -1]
    alike, unlike = (last[a, b] + last[b, a]) / 2, differences[a, b]
    if not np.isfinite(alike).all():
        return Estimate(np.nan)
    counts, rng = _counts(len(s), seed), np.random.default_rng(seed)
    drawn = rank_correlation(alike, -unlike, counts[:, a] * counts[:, b])
    renamed = (rng.permutation(len(s)) for _ in range(DRAWS))
    null = [rank_correlation(alike, -differences[new[a], new[b]])[0] for new in renamed]
    return estimate(rank_correlation(alike, -unlike)[0], drawn, null)


def rank_correlation(x: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Return Spearman's correlation of x and y ``[n]`` for each row of counts ``[draws, n]``."""
    weights = np.ones((1, len(x))) if weights is None else np.asarray(weights, np.float64)
    total = weights.sum(1, keepdims=True)
    ranks = [_ranks(values, weights) for values in (x, y)]
    u, v = (rank - (weights * rank).sum(1, keepdims=True) / total for rank in ranks)
    lengths = np.sqrt((weights * u * u).sum(1) * (weights * v * v).sum(1))
    with np.errstate(invalid="ignore"):
        return (weights * u * v).sum(1) / lengths


def _ranks(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the mean ranks of values ``[n]`` that stand ``weights`` times, ``[draws, n]``."""
    _, group = np.unique(values, return_inverse=True)
    sizes = np.zeros((len(weights), group.max() + 1))
    np.add.at(sizes.T, group, weights.T)
    return (np.cumsum(sizes, axis=1) - sizes / 2)[:, group]


def most_similar(s: np.ndarray) -> np.ndarray:
    """Return ``[a, b, l, m]``: 1, or a part of it, where m of b is the most similar to l of a.

    A layer m without any value is never the most similar. Where m has values for other layers and
    none for l, no layer is: a measure without values for hard pairs would identify every layer.
    """
    rows = s.transpose(0, 2, 1, 3)
    undefined = np.isnan(rows)
    unknown = (undefined & ~undefined.all(-2, keepdims=True)).any(-1, keepdims=True)
    rows = np.where(undefined, -np.inf, rows)
    first = (rows == rows.max(-1, keepdims=True)) & ~undefined & ~unknown
    return first / np.maximum(first.sum(-1, keepdims=True), 1)


def at_labels(values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return ``values[a, b, labels[a, l], labels[b, l]]`` as ``[a, b, l]``."""
    each = np.arange(len(labels))
    return values[each[:, None, None], each[:, None], labels[:, None], labels[None]]


def over_pairs(per_pair: Callable[[np.ndarray], np.ndarray], s: np.ndarray, seed: int) -> Estimate:
    """Summarise ``per_pair(labels)``, ``[models, models]``, over pairs of different models."""
    others, (same, relabelled) = ~np.eye(len(s), dtype=bool), _labels(s, seed)
    values, counts = np.where(others, per_pair(same), 0.0), _counts(len(s), seed)
    # A model that is drawn twice is not compared with itself.
    sums, pairs = (np.einsum("di,ij,dj->d", counts, x, counts) for x in (values, 1.0 * others))
    null = [per_pair(labels)[others].mean() for labels in relabelled]
    return estimate(values[others].mean(), sums / pairs, null)


def _over_models(per_model: Callable[[np.ndarray], np.ndarray], s: np.ndarray, seed: int):
    """Summarise ``per_model(labels)``, ``[models]``, over models."""
    same, relabelled = _labels(s, seed)
    values, null = per_model(same), [per_model(labels).mean() for labels in relabelled]
    return estimate(values.mean(), _counts(len(s), seed) @ values / len(s), null)


def _labels(s: np.ndarray, seed: int):
    """Return the numbers of the layers of every model, ``[models, L]``, and their random orders."""
    rng, same = np.random.default_rng(seed), np.tile(np.arange(s.shape[1]), (len(s), 1))
    return same, (rng.permuted(same, axis=1) for _ in range(DRAWS))


def _counts(models: int, seed: int) -> np.ndarray:
    """Return how often each resample draws each model, ``[DRAWS, models]``; no single model."""
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(models, np.full(models, 1 / models), size=2 * DRAWS)
    return counts[(counts > 0).sum(1) > 1][:DRAWS].astype(np.float64)


def estimate(value: float, drawn: np.ndarray, null: Sequence[float]) -> Estimate:
    """Return a value with the interval of its resamples, of which nan are left out."""
    if not np.isfinite(value):
        return Estimate(np.nan)
    low, high = np.nanquantile(drawn, (0.025, 0.975))
    return Estimate(float(value), float(low), float(high), pvalue_of(value, null))


def pvalue_of(value: float, null: Sequence[float] | np.ndarray) -> float:
    """Return the one-sided p-value of a value under the null hypothesis; nan is not reached."""
    # Sums in another order differ in their last digits.
    reached = np.asarray(null) >= value - 1e-12 * max(1.0, abs(value))
    return float((1 + reached.sum()) / (1 + len(null)))


def separation(s: np.ndarray, groups: np.ndarray, seed: int = 0) -> tuple[Estimate, Estimate]:
    """Return AUPRC and violation rate; the p-value of the second is of a small rate.

    `s` [m, m] has the model that is described as its row. `groups` [m] has the number of each
    model's group, from 0; each group has three models or more.
    """
    whole, freedom = np.ones((1, len(groups))), len(groups) - 1
    score, rate = _scores(s, groups[None], whole)[:, 0]
    without = _scores(s, groups[None], 1.0 - np.eye(len(groups)))  # [2, m]
    halves = t.ppf(0.975, freedom) * np.sqrt(freedom * np.var(without, axis=1))
    shuffled = np.random.default_rng(seed).permuted(np.tile(groups, (DRAWS, 1)), axis=1)
    scores, rates = _scores(s, shuffled, whole)
    pvalues = pvalue_of(score, scores), pvalue_of(-rate, -rates)
    auprc, violations = (
        Estimate(float(value), float(max(value - half, 0)), float(min(value + half, 1)), pvalue)
        for value, half, pvalue in zip((score, rate), halves, pvalues, strict=True)
    )
    return auprc, violations


def _scores(s: np.ndarray, groups: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return AUPRC and violation rate, ``[2, draws]``; `counts` is 1 for models that take part."""
    row, column = np.nonzero(~np.eye(len(s), dtype=bool))
    order = np.argsort(-s[row, column], kind="stable")  # nan last
    row, column = row[order], column[order]
    values, weights = s[row, column], counts[:, row] * counts[:, column]
    defined = int(np.isfinite(values).sum())
    # A run of equal values is found at once: it ends where the next value differs.
    ends = np.flatnonzero(np.append(np.diff(values[:defined]) != 0, True))
    from_to = [(groups[:, row] == g, groups[:, column] == g) for g in range(groups.max() + 1)]
    return np.mean([_of_group(*each, weights, defined, ends) for each in from_to], axis=0)


def _of_group(from_group, to_group, weights, defined: int, ends) -> np.ndarray:
    """Return both scores of one group; pairs are sorted, and the first `defined` have a value."""
    inside, total = _scaled(weights, from_group & to_group)
    cross, others = _scaled(weights, from_group & ~to_group)
    never, always = inside[:, defined:].sum(1), cross[:, defined:].sum(1)
    if not defined:
        return np.stack([np.zeros(len(total)), np.ones(len(total))])
    right = np.cumsum(inside[:, :defined], axis=1)[:, ends]
    wrong = always[:, None] + np.cumsum(cross[:, :defined], axis=1)[:, ends]
    step = np.diff(right, axis=1, prepend=0)
    with np.errstate(invalid="ignore"):  # nothing found yet: 0 / 0, of a step that is 0
        precision = np.where(right > 0, right / (right + wrong), 0.0)
    violations = ((step * wrong).sum(1) + never * others) / (total * others)
    return np.stack([(step * precision).sum(1) / total, violations])


def _scaled(weights: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights of chosen pairs, scaled so that they sum to their number, and that."""
    kept, count = weights * chosen, chosen.sum(1).astype(np.float64)
    return kept * (count / kept.sum(1))[:, None], np.broadcast_to(count, len(kept))
