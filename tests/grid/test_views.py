"""Two views of one tensor are two layers: only a layer and itself are 0 apart by definition."""

import pytest

import simcore
from simcore._measures import MEASURES, record
from support.cases import Case, layers

DISTANCES = [one for one in MEASURES.values() if one.distance and one.takes != (record.ATTENTION,)]
(BOTH,) = layers(Case(120, widths=(6,)))


@pytest.mark.parametrize("measure", DISTANCES, ids=lambda one: one.name)
def test_views_of_one_tensor_have_a_distance(measure):
    grid = getattr(simcore, measure.function)([BOTH[:60]], [BOTH[60:], BOTH[:60]], **measure.fixed)
    assert grid[0, 0] > 1e-5  # IMD is small
    assert abs(grid[0, 1]) < 1e-6


def test_views_of_one_tensor_are_two_samples():
    sampled = {"estimator": "unbiased", "neurons": "sampled"}
    grid = simcore.cka_grid([BOTH[:60]], [BOTH[60:], BOTH[:60]], **sampled)
    assert grid[0, 0] < 0.9
    assert grid[0, 1] == 1
