"""Planted measures have the scores that they must have: perfect, random, undefined, constant."""

import numpy as np
import pytest

from simlab.errors import UserError
from simlab.judge import criteria
from simlab.judge.scores import (
    AUPRC,
    COST,
    IDENTIFICATION,
    LAYERS,
    RANKED,
    SHARE,
    SPEARMAN,
    VIOLATIONS,
    score,
)
from support.lab.planted import (
    DEPTH,
    PLAN,
    Random,
    candidate,
    constant,
    perfect,
    planted,
    undefined,
)

GROUPED = tuple(PLAN.groups)
ANSWERS = ("accuracy", "disagreement", "divergence")
DEPENDENCE = ("rows", "neurons", "outlier", "offset")


@pytest.fixture(scope="module")
def material():
    return planted()


@pytest.fixture(autouse=True)
def _few_draws(monkeypatch):
    monkeypatch.setattr(criteria, "DRAWS", 200)


def scored(function, material, distance=False):
    """Return the scores of a function by test and name of the score."""
    return {(s.test, s.score): s for s in score(candidate(function, distance), material)}


def test_a_perfect_measure_has_every_best_score(material):
    found = scored(perfect, material)
    for test in ANSWERS:
        assert found[test, SPEARMAN].value == pytest.approx(1)
        assert found[test, SPEARMAN].pvalue < 0.05
    for test in GROUPED:
        assert found[test, AUPRC].value == pytest.approx(1)
        assert found[test, VIOLATIONS].value == pytest.approx(0)
    assert found[LAYERS, VIOLATIONS].value == 0
    assert found[LAYERS, SPEARMAN].value == pytest.approx(1)
    assert found[IDENTIFICATION, SHARE].value == 1
    assert found[IDENTIFICATION, SHARE].pvalue == 1 / (1 + criteria.DRAWS)
    assert not any(one.undefined for one in found.values())
    assert found[COST, "seconds a pair"].value > 0


def test_a_distance_has_the_scores_of_the_similarity_turned_around(material):
    turned = scored(lambda x, y: -perfect(x, y), material, distance=True)
    for key, one in scored(perfect, material).items():
        if key[1] not in ("value", "seconds a pair"):
            assert turned[key].value == pytest.approx(one.value), key


def test_a_constant_has_chance_or_no_score(material):
    found = scored(constant, material)
    for test in ANSWERS:
        assert np.isnan(found[test, SPEARMAN].value)
    for test in GROUPED:
        one = found[test, AUPRC]
        assert one.value == pytest.approx(one.chance) == pytest.approx(2 / 5)
        assert (one.low, one.high) == pytest.approx((2 / 5, 2 / 5))
        assert one.pvalue == 1
        assert found[test, VIOLATIONS].value == pytest.approx(1)
    assert found[LAYERS, VIOLATIONS].value == pytest.approx(0.5)
    assert found[IDENTIFICATION, SHARE].value == pytest.approx(1 / DEPTH)
    for test in DEPENDENCE:
        assert found[test, "change"].value == 0
    assert found["independent rows", "value"].value == 0.5


def test_a_measure_without_values_has_every_worst_score(material):
    found = scored(undefined, material)
    for test in GROUPED:
        assert (found[test, AUPRC].value, found[test, VIOLATIONS].value) == (0, 1)
    assert found[LAYERS, VIOLATIONS].value == 1
    assert found[IDENTIFICATION, SHARE].value == 0
    for test in RANKED:
        one = found[test, RANKED[test]]
        assert one.undefined == one.pairs > 0
        assert np.isnan(one.value) if test in ANSWERS else one.pvalue == 1


def test_one_value_that_is_missing_counts_against_the_measure(material):
    """A pair of a group without a value is never found."""

    def missing(x, y):
        one, other = PLAN.groups["random labels"][1][:2]
        pair = {float(material.networks[n].layers[-1][1, 0]) for n in (one, other)}
        return float("nan") if {float(x[1, 0]), float(y[1, 0])} == pair else perfect(x, y)

    found = scored(missing, material)
    # Two of the six ordered pairs of one of the two groups.
    assert found["random labels", AUPRC].value == pytest.approx((1 + 4 / 6) / 2)
    assert found["random labels", VIOLATIONS].value == pytest.approx(2 / 6 / 2)
    assert found["random labels", AUPRC].undefined == 2


def test_infinity_is_no_value(material):
    """A pair of a group that is infinitely alike is not found, and hides no other pair."""

    def instead(number):
        one, other = PLAN.groups["random labels"][1][:2]
        ends = {float(material.networks[n].layers[-1][1, 0]) for n in (one, other)}

        def measure(x, y):
            return number if {float(x[1, 0]), float(y[1, 0])} == ends else perfect(x, y)

        return scored(measure, material)

    missing = instead(float("nan"))
    for number in (float("inf"), -float("inf")):
        found = instead(number)
        for key in (("random labels", AUPRC), ("random labels", VIOLATIONS)):
            assert found[key] == missing[key]


def test_a_measure_of_the_same_layers_alone_identifies_none(material):
    """Layers at other places have no value: that the right layer is the nearest is unknown."""

    def same_place(x, y):
        return perfect(x, y) if x[0, 0] == y[0, 0] else float("nan")

    found = scored(same_place, material)
    assert found[IDENTIFICATION, SHARE].value == 0
    assert found[IDENTIFICATION, SHARE].undefined > 0
    assert found[LAYERS, VIOLATIONS].value == 1


def test_values_of_changed_layers_that_are_missing_are_counted(material):
    few = len(material.plain[0].layers[0]) // 4

    def of_many_rows(x, y):
        return perfect(x, y) if len(x) > few else float("nan")

    found = scored(of_many_rows, material)
    for key in (("rows", "change"), ("independent rows", "change")):
        assert np.isnan(found[key].value)
        assert found[key].undefined == found[key].pairs == 2 * DEPTH**2
    assert found["offset", "change"].undefined == found["independent rows", "value"].undefined == 0


def test_a_random_measure_is_at_chance(material):
    every = [scored(Random(seed), material) for seed in range(8)]
    for test in GROUPED:
        assert np.mean([one[test, AUPRC].value for one in every]) == pytest.approx(0.5, abs=0.15)
        assert np.mean([one[test, VIOLATIONS].value for one in every]) == pytest.approx(
            0.5, abs=0.1
        )
    # Chance, and four standard deviations of the mean of eight measures, of which 24 were seen.
    expected = {(LAYERS, VIOLATIONS): (0.5, 0.12), (IDENTIFICATION, SHARE): (1 / DEPTH, 0.07)}
    expected |= {(LAYERS, SPEARMAN): (0, 0.2)} | {(test, SPEARMAN): (0, 0.45) for test in ANSWERS}
    for key, (chance, apart) in expected.items():
        assert np.mean([one[key].value for one in every]) == pytest.approx(chance, abs=apart), key
    pvalues = [one[key].pvalue for one in every for key in expected]
    assert 0.35 < np.mean(pvalues) < 0.65


def test_a_similarity_that_is_called_a_distance_is_refused(material):
    def similar(x, y):
        return float(x.shape == y.shape and (x == y).all()) + 0.1 * perfect(x, y) / 1e7

    with pytest.raises(UserError, match=r"wanted a distance.*found"):
        scored(similar, material, distance=True)
    with pytest.raises(UserError, match="wanted a similarity, or distance=True"):
        scored(lambda x, y: -similar(x, y), material)
