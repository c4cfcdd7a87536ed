"""Changes of layers move the measures that depend on them, and no others."""

import numpy as np
import pytest

from simlab.judge.candidates import of_simcore
from simlab.judge.dependence import INDEPENDENT, NEURONS, OFFSET, OUTLIER, ROWS, changes
from support.lab.planted import candidate

OURS = {one.label: one for one in of_simcore()}
UNBIASED = "cka (kernel linear, estimator unbiased)"


@pytest.fixture(scope="module")
def networks():
    rng = np.random.default_rng(0)
    common = rng.standard_normal((200, 16))
    noisy = [[common + scale * rng.standard_normal((200, 16)) for scale in (1, 2)] for _ in "abcd"]
    return [[layer.astype(np.float32) for layer in layers] for layers in noisy]


def found(measure, networks):
    one = candidate(measure) if callable(measure) else OURS[measure]
    return {(test, name): value for test, name, value, _ in changes(one, networks, 0.5)}


def test_a_change_is_in_standard_deviations(networks):
    moved = found(lambda x, y: float(len(x)), networks)
    assert moved[ROWS, "change"] == pytest.approx((200 - 50) / 0.5)
    assert moved[NEURONS, "change"] == 0
    moved = found(lambda x, y: float(x.shape[1]), networks)
    assert moved[NEURONS, "change"] == pytest.approx(8 / 0.5)
    assert moved[ROWS, "change"] == moved[OFFSET, "change"] == 0


def test_an_offset_moves_what_does_not_centre(networks):
    assert found(UNBIASED, networks)[OFFSET, "change"] < 1e-3
    assert found("cosine", networks)[OFFSET, "change"] > 0.5


def test_an_outlier_moves_what_weighs_neurons_by_their_size(networks):
    assert found(UNBIASED, networks)[OUTLIER, "change"] > 0.2
    assert found("neuronsim", networks)[OUTLIER, "change"] < 0.1


def test_independent_rows_have_a_value_that_may_depend_on_their_number(networks):
    unbiased, cca = found(UNBIASED, networks), found("cca (reduction mean)", networks)
    assert abs(unbiased[INDEPENDENT, "value"]) < 0.05
    assert unbiased[INDEPENDENT, "change"] < 0.2 < cca[INDEPENDENT, "change"]


def test_a_constant_measure_without_spread_does_not_depend(networks):
    one = candidate(lambda x, y: 1.0)
    assert {value for _, name, value, _ in changes(one, networks, 0.0) if name == "change"} == {0.0}
