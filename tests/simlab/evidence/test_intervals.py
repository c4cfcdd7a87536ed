"""The jackknife over models: against the t interval, by hand, with errors over examples."""

import math
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from simlab.evidence.intervals import (
    ALPHA,
    Interval,
    Value,
    can_decide,
    difference_of_groups,
    holm,
    interval,
    pvalue_of_most,
    sign_pvalue,
    value_of,
)
from simlab.evidence.wording import number
from support.tolerance import FLOAT64_RELATIVE


@pytest.mark.parametrize("count", [3, 4, 10])
def test_for_one_value_a_model_it_is_the_t_interval(count):
    values = np.random.default_rng(count).normal(size=count)
    found = interval([value_of(str(model), value) for model, value in enumerate(values)])
    wanted = stats.t.interval(0.95, count - 1, values.mean(), stats.sem(values))
    np.testing.assert_allclose((found.low, found.high), wanted, rtol=FLOAT64_RELATIVE)
    assert found.estimate == pytest.approx(values.mean(), rel=FLOAT64_RELATIVE)
    assert found.count == count


def test_pairs_of_three_models_by_hand():
    values = dict(zip(combinations("abc", 2), (1.0, 2.0, 6.0), strict=True))
    found = interval([Value(frozenset(pair), value) for pair, value in values.items()])
    # Without one model, one pair remains: 6, 2 and 1, around their mean 3.
    half = stats.t.ppf(0.975, 2) * math.sqrt(2 / 3 * (9 + 1 + 4))
    assert found.estimate == pytest.approx(3)
    assert (found.low, found.high) == pytest.approx((3 - half, 3 + half))


def test_pairs_that_share_models_count_less_than_independent_values():
    """Where each model adds an effect to its pairs, the interval covers as often as it says."""
    draw, covered, runs, models = np.random.default_rng(0), 0, 400, 8
    for _ in range(runs):
        effect = draw.normal(size=models)
        units = [
            Value(frozenset([str(a), str(b)]), effect[a] + effect[b])
            for a, b in combinations(range(models), 2)
        ]
        found = interval(units)
        covered += found.low <= 0 <= found.high
    assert 0.92 <= covered / runs <= 0.98


def test_a_difference_of_groups_leaves_out_a_model_from_both():
    units = [Value(frozenset("ab"), 4.0, "within"), Value(frozenset("cd"), 3.0, "within")]
    units += [Value(frozenset(pair), 1.0, "across") for pair in ("ac", "bd")]
    found = interval(units, difference_of_groups("within", "across"))
    # Without a or b: 3 - 1; without c or d: 4 - 1.
    half = stats.t.ppf(0.975, 3) * math.sqrt(3 / 4 * 4 * 0.25)
    assert found.estimate == pytest.approx(2.5)
    assert found.high - found.low == pytest.approx(2 * half)


def test_the_error_over_examples_widens_the_interval():
    units = [value_of(str(model), model) for model in range(3)]
    narrow, wide = interval(units), interval(units, spread=2.0)
    quantile = stats.t.ppf(0.975, 2)
    halves = [(found.high - found.low) / 2 / quantile for found in (narrow, wide)]
    assert halves[1] ** 2 == pytest.approx(halves[0] ** 2 + 4)


def test_undefined_values_are_left_out_and_two_models_give_no_interval():
    units = [value_of("a", 1.0), value_of("b", 3.0), value_of("c", math.nan)]
    found = interval(units)
    assert (found.estimate, found.count) == (2.0, 2)
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    assert math.isnan(interval([]).estimate)


def test_the_pvalue_is_that_of_the_t_test():
    values = np.random.default_rng(1).normal(0.5, size=7)
    found = interval([value_of(str(model), value) for model, value in enumerate(values)], least=0.2)
    assert found.pvalue == pytest.approx(stats.ttest_1samp(values, 0.2).pvalue)


def test_units_that_agree_are_judged_by_signs():
    for count in (3, 5, 6):
        found = interval([value_of(str(model), 1.0) for model in range(count)], least=0.3)
        assert math.isnan(found.low)
        assert found.pvalue == pytest.approx(stats.binomtest(count, count).pvalue)
        assert can_decide(found) == (found.pvalue <= ALPHA) == (count == 6)
    assert not can_decide(Interval(1.0, math.nan, math.nan, 2))


def test_signs_are_counted_where_the_estimate_is():
    def units(values):
        return [value_of(str(number), value) for number, value in enumerate(values)]

    for values, beyond in (([1] * 6, 6), ([0.9, 1, 1, 1, 1, -1], 5), ([-1] * 6 + [0.9], 6)):
        wanted = stats.binomtest(beyond, len(values)).pvalue
        assert sign_pvalue(units(values), least=0.3) == pytest.approx(wanted)
    # Most units are beyond the least effect, but the mean is not: these signs count for nothing.
    assert sign_pvalue(units([0.4] * 6 + [-1]), least=0.3) == 1
    assert sign_pvalue([value_of("a", math.nan)]) == 1


def test_the_sign_of_a_unit_in_pairs_is_that_of_its_own_share():
    """Values of pairs are sums of what the models give; each model's own part is found again."""
    own = dict(zip("abcdefg", (1, 1, 1, 1, 1, 1, -5.5), strict=True))
    pairs = [Value(frozenset(pair), own[pair[0]] + own[pair[1]]) for pair in combinations(own, 2)]
    wanted = stats.binomtest(6, 7).pvalue
    assert sign_pvalue(pairs) == pytest.approx(wanted)


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


def test_the_pvalue_of_most_is_valid_where_tests_depend_on_each_other():
    draw = np.random.default_rng(0)
    for shared in (0.0, 0.5, 0.9):
        common = draw.normal(size=(4000, 1)) * math.sqrt(shared)
        scores = common + draw.normal(size=(4000, 12)) * math.sqrt(1 - shared)
        found = [pvalue_of_most(row) for row in stats.norm.sf(scores)]
        assert np.mean(np.array(found) <= ALPHA) <= ALPHA


def test_holms_correction_by_hand():
    found = holm([0.01, math.nan, 0.04, 0.03, 0.9])
    assert found[0] == pytest.approx(0.04)
    assert found[2:] == pytest.approx([0.09, 0.09, 0.9])
    assert math.isnan(found[1])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.7012, ".70"),
        (-0.7012, "-.70"),
        (0.0016, ".0016"),
        (-0.00013, "-.00013"),
        (1.2345, "1.23"),
        (10.5, "10.50"),
        (0.0, "0"),
        (3.0, "3"),
        (0.999, "1.00"),
        (math.nan, "–"),
    ],
)
def test_numbers_as_text(value, text):
    assert number(value) == text
