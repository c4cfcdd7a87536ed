"""Does a measure tell groups of networks apart that were trained in different ways?

Tests 3 to 5 of Klabunde et al. 2024. The values of two networks of a group, ``in``, should exceed
those of a network of the group and one of another group, ``cross``. Two scores, each the mean over
groups:

* *AUPRC*: the average precision of finding the pairs ``in`` by their similarity. A measure that
  says nothing has, but for small numbers, the share of pairs that are ``in``.
* *violation rate*: the share of (``in``, ``cross``) whose similarities are not in order. A tie is a
  violation, as in the code of the paper, so that a constant measure has 1.

Their code leaves pairs without a value out. Here such pairs count against the measure: one that is
``in`` is never found, one that is ``cross`` is found before all others.

Networks are exchangeable; pairs, which share networks, are not. Intervals are t intervals of the
jackknife over networks (Arvesen 1969): with m networks, the score e and the scores e(k) without
network k,

    e -+ t(.975; m - 1) * sqrt((m - 1) / m * sum over k of (e(k) - mean of all e(k))^2)

within 0 and 1. The bootstrap over networks would not do: a resample has few different networks, and
AUPRC is higher the fewer there are. P-values give the networks to the groups anew.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import t

from simlab.judge import criteria
from simlab.judge.criteria import Estimate, pvalue_of


@dataclass(frozen=True)
class Separation:
    """How well groups are told apart."""

    auprc: Estimate
    violations: Estimate  # small rates are good, and the p-value is of a small rate
    chance: float  # share of pairs of a network of a group that are `in`, as a mean over groups


def separation(s: np.ndarray, groups: np.ndarray, seed: int = 0) -> Separation:
    """Return how well similarities tell groups apart.

    `s` [m, m] is larger for more alike networks, and the row is the network described. `groups` [m]
    has the number of each network's group, from 0; each group has three networks or more.
    """
    rng = np.random.default_rng(seed)
    whole = np.ones((1, len(groups)))
    scores = _scores(s, groups[None], whole)[:, 0]
    without = _scores(s, groups[None], 1.0 - np.eye(len(groups)))
    shuffled = rng.permuted(np.tile(groups, (criteria.DRAWS, 1)), axis=1)
    null = _scores(s, shuffled, whole)
    pvalues = pvalue_of(scores[0], null[0]), pvalue_of(-scores[1], -null[1])
    auprc, violations = (
        Estimate(float(score), *_interval(score, others), pvalue)
        for score, others, pvalue in zip(scores, without, pvalues, strict=True)
    )
    sizes = np.bincount(groups)
    return Separation(auprc, violations, float(((sizes - 1) / (len(groups) - 1)).mean()))


def _interval(score: float, without: np.ndarray) -> tuple[float, float]:
    """Return the 95 % interval of a score from the scores without each network, ``[m]``."""
    freedom = len(without) - 1
    half = float(t.ppf(0.975, freedom) * np.sqrt(freedom * np.var(without)))
    return max(score - half, 0.0), min(score + half, 1.0)


def _scores(s: np.ndarray, groups: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return AUPRC and violation rate, ``[2, draws]``, as means over groups.

    `groups` has the group of each network, and `counts` is 1 if it takes part and else 0; both are
    [draws or 1, m].
    """
    one, other = np.nonzero(~np.eye(len(s), dtype=bool))
    values = s[one, other]
    order = np.argsort(-values, kind="stable")  # nan last
    one, other, values = one[order], other[order], values[order]
    defined = int(np.isfinite(values).sum())
    # A block of equal values is found at once: it ends where the next value differs.
    ends = np.flatnonzero(np.append(np.diff(values[:defined]) != 0, True))
    weights = counts[:, one] * counts[:, other]
    number = int(groups.max()) + 1
    found = [
        _of_group(groups[:, one] == group, groups[:, other] == group, weights, defined, ends)
        for group in range(number)
    ]
    return np.asarray(np.mean(found, axis=0))


def _of_group(
    from_group: np.ndarray,
    to_group: np.ndarray,
    weights: np.ndarray,
    defined: int,
    ends: np.ndarray,
) -> np.ndarray:
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
    area = (step * precision).sum(1) / total
    violations = ((step * wrong).sum(1) + never * others) / (total * others)
    return np.stack([area, violations])


def _scaled(weights: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights of the chosen pairs, ``[draws, pairs]``, and their sum, ``[draws]``.

    The sum is the number of chosen pairs, whoever takes part: AUPRC depends on the share of pairs
    that are ``in``.
    """
    kept, count = weights * chosen, chosen.sum(1).astype(np.float64)
    return kept * (count / kept.sum(1))[:, None], np.broadcast_to(count, len(kept))
