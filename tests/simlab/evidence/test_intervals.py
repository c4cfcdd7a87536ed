"""The jackknife over units: against the t interval, by hand, and by how often it covers."""

import math
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from simlab.evidence.claim import number
from simlab.evidence.verdicts import Units, holm, pvalue_of_most
from support.tolerance import FLOAT64_RELATIVE


def units(values):
    return Units({str(at): value for at, value in enumerate(values)})


@pytest.mark.parametrize("count", [3, 4, 10])
def test_for_one_value_a_model_it_is_the_t_interval(count):
    values = np.random.default_rng(count).normal(0.5, size=count)
    found = units(values).interval(least=0.2)
    wanted = stats.t.interval(0.95, count - 1, values.mean(), stats.sem(values))
    np.testing.assert_allclose((found.low, found.high), wanted, rtol=FLOAT64_RELATIVE)
    assert found.estimate == pytest.approx(values.mean(), rel=FLOAT64_RELATIVE)
    assert found.pvalue == pytest.approx(stats.ttest_1samp(values, 0.2).pvalue)
    assert found.units == count


def test_pairs_of_three_models_by_hand():
    found = Units(dict(zip(combinations("abc", 2), (1.0, 2.0, 6.0), strict=True))).interval()
    # Without one model, one pair remains: 6, 2 and 1, around their mean 3.
    half = stats.t.ppf(0.975, 2) * math.sqrt(2 / 3 * (9 + 1 + 4))
    assert found.estimate == pytest.approx(3)
    assert (found.low, found.high) == pytest.approx((3 - half, 3 + half))


def test_pairs_that_share_models_count_less_than_independent_values():
    """Where each model adds an effect to its pairs, the interval covers as often as it says."""
    draw, covered, runs = np.random.default_rng(0), 0, 300
    for _ in range(runs):
        own = draw.normal(size=8)
        found = Units({(str(a), str(b)): own[a] + own[b] for a, b in combinations(range(8), 2)})
        found = found.interval()
        covered += found.low <= 0 <= found.high
    assert 0.92 <= covered / runs <= 0.98


def test_a_difference_of_means_leaves_out_a_model_from_both():
    within = {("a", "b"): 4.0, ("c", "d"): 3.0}
    found = Units(within, {("a", "c"): 1.0, ("b", "d"): 1.0}).interval()
    # Without a or b: 3 - 1; without c or d: 4 - 1.
    half = stats.t.ppf(0.975, 3) * math.sqrt(3 / 4 * 4 * 0.25)
    assert found.estimate == pytest.approx(2.5)
    assert found.high - found.low == pytest.approx(2 * half)


def test_undefined_values_are_left_out_and_two_models_give_no_interval():
    found = units([1.0, 3.0, math.nan]).interval()
    assert (found.estimate, found.units) == (2.0, 2)
    assert math.isnan(found.low)
    assert math.isnan(found.pvalue)
    assert math.isnan(units([math.nan]).interval().estimate)


def test_pairs_of_one_pair_of_units_are_averaged_first():
    """One pair of models for a and b, and 81 for a and c."""
    values = {("a0", "b0"): 1.0, ("b0", "c0"): 6.0, ("a1", "b1"): math.nan}
    values |= {(f"a{one}", f"c{other}"): 2.0 for one in range(9) for other in range(9)}
    names = {name: name[0] for pair in values for name in pair}
    found = Units(values).named(names).averaged()
    means = dict(zip(map("".join, map(sorted, found.names)), found.values[:, 0], strict=True))
    assert means == {"ab": 1.0, "bc": 6.0, "ac": 2.0}


def test_units_that_agree_are_judged_by_signs():
    for count in (3, 5, 6):
        found = units([1.0] * count).interval(least=0.3)
        assert found.agree
        assert found.pvalue == pytest.approx(stats.binomtest(count, count).pvalue)


def test_signs_are_counted_where_the_estimate_is():
    for values, beyond in (([1] * 6, 6), ([0.9, 1, 1, 1, 1, -1], 5), ([-1] * 6 + [0.9], 6)):
        wanted = stats.binomtest(beyond, len(values)).pvalue
        assert units(values).sign_pvalue(0.3) == pytest.approx(wanted)
    # Most units are beyond the least effect, but the mean is not: these signs count for nothing.
    assert units([0.4] * 6 + [-1]).sign_pvalue(0.3) == 1


def test_the_sign_of_a_unit_in_pairs_is_that_of_its_own_share():
    """Values of pairs are sums of what the models give; each model's own part is found again."""
    own = dict(zip("abcdefg", (1, 1, 1, 1, 1, 1, -5.5), strict=True))
    pairs = Units({(a, b): own[a] + own[b] for a, b in combinations(own, 2)})
    assert pairs.sign_pvalue() == pytest.approx(stats.binomtest(6, 7).pvalue)


@pytest.mark.parametrize(
    ("pvalues", "wanted"),
    [
        ([0.03], 0.03),
        ([0.03, 0.01, 0.02], 0.03),
        ([0.9, 0.01, 0.03, 0.02], 0.04),
        ([0.001] * 11 + [0.9], 0.001 * 12 / 9),
        ([0.8] * 4 + [0.001] * 8, 1.0),
    ],
)
def test_three_quarters_of_several_tests_count(pvalues, wanted):
    assert pvalue_of_most(pvalues) == pytest.approx(wanted)


def test_holms_correction_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.9]) == pytest.approx([0.04, 0.09, 0.09, 0.9])
    assert holm([0.6, 0.4]) == pytest.approx([0.8, 0.8])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0.7012, ".70"), (-0.7012, "-.70"), (0.0016, ".0016"), (-0.00013, "-.00013")),
        *((1.2345, "1.23"), (10.5, "10.50"), (0.0, "0"), (3.0, "3"), (math.nan, "–")),
    ],
)
def test_numbers_as_text(value, text):
    assert number(value) == text
