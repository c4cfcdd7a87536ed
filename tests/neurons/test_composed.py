"""Aligned cosines as CUDA devices compute them, on CPU tensors."""

import pytest
import torch

import simcore.matching
from simcore._ops import aligned_composed
from support import tolerance
from support.cases import DTYPES, HALVES, Case, exact, layers
from support.distance_table import DISTANCE_ROWS

(MEASURE,) = (row for row in DISTANCE_ROWS if row.function == "aligned_cosine_grid")
CASES = (
    Case(33),
    Case(65, 10.0, True, (7, 1, 40)),
    Case(65, 1000.0, False, (7, 1, 40)),
    Case(65, 1000.0, True, (7, 1, 40)),
)


@pytest.fixture(autouse=True)
def _device_operators(monkeypatch):
    for name, function in aligned_composed.OPERATORS.items():
        monkeypatch.setattr(simcore.matching, name, function)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_aligned_cosines_match_the_twins(dtype):
    for case in CASES:
        x, y = layers(case, dtype), layers(Case(case.n, 10.0, widths=(12,)), dtype, seed=1)
        for other in (None, y):
            got, want = MEASURE(x, other), MEASURE.twin(x, other)
            both = exact(x), exact(other)
            condition = tolerance.DRAWN_CONDITION if case.offset or case.outlier else 1.0
            tolerance.assert_other(MEASURE, got, want, *both, dtype, condition)
    halves = layers(Case(33, 1.0, widths=(5, 9)), HALVES[0])
    both = exact(halves), None
    tolerance.assert_other(MEASURE, MEASURE(halves), MEASURE.twin(halves), *both, torch.float32)


def test_memory_only_cuts_batches():
    x, y = layers(Case(50, 1.0, widths=(6, 9, 6))), layers(Case(50, widths=(6, 20)), seed=1)
    for other in (None, y):
        want = MEASURE(x, other)
        assert torch.equal(MEASURE(x, other), want)
        for limit in (80_000, 120_000):
            got = MEASURE(x, other, max_memory=limit)
            torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-13, equal_nan=True)


def test_a_layer_of_zeros_has_no_value():
    x = layers(Case(40, 1.0, widths=(5, 9)))
    with pytest.warns(UserWarning, match=r"nan for X\[1\]"):
        got = MEASURE([x[0], torch.zeros_like(x[1])])
    assert got.isnan().tolist() == [[False, True], [True, True]]
