"""Groups of networks: both scores against scikit-learn and by hand, their intervals, their null."""

import numpy as np
import pytest
from scipy.stats import t
from sklearn.metrics import average_precision_score

from simlab.judge import criteria
from simlab.judge.groups import separation

GROUPS = np.repeat(range(4), (3, 4, 4, 5))


@pytest.fixture(autouse=True)
def _few_draws(monkeypatch):
    monkeypatch.setattr(criteria, "DRAWS", 300)


def values(seed, own=0.0):
    """Return random similarities with ties, `own` larger within a group."""
    rng = np.random.default_rng(seed)
    found = rng.standard_normal((len(GROUPS), len(GROUPS))).round(1)
    return found + own * (GROUPS[:, None] == GROUPS)


def by_hand(s):
    """Return AUPRC and violation rate, one group after the other."""
    found = []
    for group in range(4):
        members, others = np.flatnonzero(group == GROUPS), np.flatnonzero(group != GROUPS)
        inside = [s[i, j] for i in members for j in members if i != j]
        cross = [s[i, j] for i in members for j in others]
        right = [1] * len(inside) + [0] * len(cross)
        ties_count = np.mean([one <= other for one in inside for other in cross])
        found.append((average_precision_score(right, inside + cross), ties_count))
    return np.mean(found, axis=0)


@pytest.mark.parametrize("own", [0.0, 0.5, 2.0])
def test_scores_are_those_of_scikit_learn(own):
    s = values(1, own)
    found = separation(s, GROUPS)
    assert (found.auprc.value, found.violations.value) == pytest.approx(tuple(by_hand(s)))
    assert found.chance == pytest.approx(np.mean([2, 3, 3, 4]) / 15)


def test_intervals_hold_the_score_and_narrow_with_the_difference():
    weak, strong = (separation(values(0, own), GROUPS) for own in (1.0, 4.0))
    assert weak.auprc.low < weak.auprc.value < weak.auprc.high
    assert strong.auprc.high - strong.auprc.low < weak.auprc.high - weak.auprc.low


def test_an_interval_is_of_the_scores_without_each_network():
    """Of five networks of each group, so that every group keeps its share of the pairs."""
    fives = np.repeat(range(4), 5)
    rng = np.random.default_rng(3)
    s = rng.standard_normal((20, 20)) + (fives[:, None] == fives)
    rates = []
    for left_out in range(20):
        others = np.arange(20) != left_out
        rates.append(separation(s[np.ix_(others, others)], fives[others]).violations.value)
    half = t.ppf(0.975, 19) * np.sqrt(19 / 20 * ((rates - np.mean(rates)) ** 2).sum())
    found = separation(s, fives).violations
    assert (found.low, found.high) == pytest.approx((found.value - half, found.value + half))


def test_an_interval_ends_at_the_best_score():
    found = separation((GROUPS[:, None] == GROUPS) + np.eye(len(GROUPS)), GROUPS)
    assert (found.auprc.low, found.auprc.high) == (1, 1)
    assert separation(values(1, 3.0), GROUPS).auprc.high == 1


@pytest.mark.parametrize("apart", [0.7, 1.5])
def test_intervals_cover_the_expected_score(monkeypatch, apart):
    monkeypatch.setattr(criteria, "DRAWS", 2)  # of p-values alone
    fives, found = np.repeat(range(5), 5), []
    for seed in range(60):
        place = np.random.default_rng(seed).standard_normal((25, 3))
        place[:, 0] += apart * fives
        s = -np.linalg.norm(place[:, None] - place, axis=2)
        found.append(separation(s, fives, seed))
    for name in ("auprc", "violations"):
        estimates = [getattr(one, name) for one in found]
        expected = np.mean([one.value for one in estimates])
        assert np.mean([one.low <= expected <= one.high for one in estimates]) > 0.9


def test_pvalues_of_unrelated_networks_are_uniform():
    found = [separation(values(seed), GROUPS, seed) for seed in range(60)]
    for name in ("auprc", "violations"):
        pvalues = np.array([getattr(one, name).pvalue for one in found])
        assert 0.35 < pvalues.mean() < 0.65
        assert (pvalues <= 0.1).mean() < 0.25
    assert separation(values(0, 4.0), GROUPS).auprc.pvalue == 1 / (1 + criteria.DRAWS)


def test_networks_that_share_noise_are_not_more_significant():
    """Pairs share networks: with one number for each network, permuted pairs would be too alike."""
    pvalues = []
    for seed in range(60):
        effect = np.random.default_rng(seed).standard_normal(len(GROUPS))
        pvalues.append(separation(effect[:, None] * effect, GROUPS, seed).auprc.pvalue)
    assert (np.array(pvalues) <= 0.1).mean() < 0.25


def test_a_cross_pair_without_a_value_is_found_before_all_others():
    s = (GROUPS[:, None] == GROUPS).astype(float)
    s[0, -1] = np.nan
    first = np.mean([k / (k + 1) for k in [6]])  # its six pairs are found after one wrong pair
    assert separation(s, GROUPS).auprc.value == pytest.approx((first + 3) / 4)
    assert separation(s, GROUPS).violations.value == pytest.approx(6 / (6 * 39) / 4)
