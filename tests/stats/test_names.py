"""A measure has one name, in which `_` may stand for `-`, wherever a name is read."""

from functools import partial

import pytest
import torch

import simcore
from simcore import stats
from simcore._measures import MEASURES, record
from simcore.stats.resampled_grid import GRIDS, best_value, check_measure, record_of
from simlab.similarity.catalogue import find_measure, settings
from simlab.sweeps.spec import GridSection


def spellings(name):
    return {name, name.replace("-", "_")}


def layers(count=2, n=30, width=4):
    generator = torch.Generator().manual_seed(0)
    shared = torch.randn(n, width, generator=generator)
    return [shared + torch.randn(n, width, generator=generator) for _ in range(count)]


@pytest.mark.parametrize("name", GRIDS)
def test_statistics_take_both_spellings(name):
    for spelling in spellings(name):
        assert check_measure(spelling) == name


@pytest.mark.parametrize(
    "name", [n for n, m in MEASURES.items() if m.normalised and m.takes[0] != record.PREDICTIONS]
)
def test_the_command_and_sweeps_take_both_spellings(name):
    for spelling in spellings(name):
        assert find_measure(spelling).name == name
        assert settings(spelling, {}) == settings(name, {})
        assert GridSection(measure=spelling).measure == (name,)


def test_values_are_those_of_the_function_by_each_name():
    x = layers()
    want = stats.permutation_test(x, measure=simcore.distance_correlation_grid, permutations=9)
    for name in ("distance-correlation", "distance_correlation"):
        got = stats.permutation_test(x, measure=name, permutations=9)
        torch.testing.assert_close(got.calibrated, want.calibrated)
        named = simcore.compare_layers({"a": x[0]}, measure=name)
        assert named.measure == "distance-correlation"
    match = partial(simcore.matching_grid, matching="best")
    want = stats.bootstrap_ci(x, measure=match, resamples=5)
    for name, options in (("match_soft", {}), ("matching", {"matching": "best"})):
        got = stats.bootstrap_ci(x, measure=name, resamples=5, **options)
        torch.testing.assert_close(got.low, want.low)


@pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)
def test_a_function_with_its_fixed_options_is_the_measure(measure):
    function = getattr(simcore, measure.function)
    assert record_of(partial(function, **measure.fixed)) is measure
    assert record_of(function, dict(measure.fixed)) is measure
    assert best_value(function, dict(measure.fixed)) == (0 if measure.distance else 1)


def test_a_name_of_a_measure_fixes_its_options():
    with pytest.raises(TypeError, match="score: wanted no options of measure 'match-hard'"):
        stats.permutation_test(layers(), measure="match-hard", score="distance")
    for name in ("cka", "cca"):
        meant = r"^permutation \(did you mean 'permutations'\?\): wanted"
        with pytest.raises(TypeError, match=meant):
            stats.permutation_test(layers(), measure=name, permutation=3)
        with pytest.raises(TypeError, match=r"^resample \(did you mean 'resamples'\?\): wanted"):
            stats.bootstrap_ci(layers(), measure=name, resample=3)
    assert best_value("matching", {"score": "distance"}) == 0
    with pytest.raises(ValueError, match=r"measure: wanted .*, got 'match-hrd' .*'match-hard'"):
        stats.permutation_test(layers(), measure="match-hrd")
