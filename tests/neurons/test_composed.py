"""Matched neurons and aligned cosines as CUDA devices compute them, on CPU tensors."""

import numpy as np
import pytest
import torch

import simcore.matching
from simcore import matching_grid, reference
from simcore._ops import aligned_composed, neurons_composed
from support import tolerance
from support.bad_inputs import assert_refused
from support.cases import DTYPES, HALVES, Case, exact, layers
from support.distance_table import DISTANCE_ROWS

OPERATORS = {**neurons_composed.OPERATORS, **aligned_composed.OPERATORS}
FUNCTIONS = ("matching_grid", "aligned_cosine_grid")
ROWS = [row for row in DISTANCE_ROWS if row.function in FUNCTIONS]
EVERY = pytest.mark.parametrize("measure", ROWS, ids=str)
CASES = (
    Case(33),
    Case(65, 10.0, True, (7, 1, 40)),
    Case(65, 1000.0, False, (7, 1, 40)),
    Case(65, 1000.0, True, (7, 1, 40)),
)


@pytest.fixture(autouse=True)
def _device_operators(monkeypatch):
    for name, function in OPERATORS.items():
        monkeypatch.setattr(simcore.matching, name, function)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@EVERY
def test_measures_match_the_twins(measure, dtype):
    for case in CASES:
        x, y = layers(case, dtype), layers(Case(case.n, 10.0, widths=(12,)), dtype, seed=1)
        for other in (None, y):
            got, want = measure(x, other), measure.twin(x, other)
            both = exact(x), exact(other)
            condition = tolerance.DRAWN_CONDITION if case.offset or case.outlier else 1.0
            tolerance.assert_other(measure, got, want, *both, dtype, condition)
    halves = layers(Case(33, 1.0, widths=(5, 9)), HALVES[0])
    both = exact(halves), None
    tolerance.assert_other(measure, measure(halves), measure.twin(halves), *both, torch.float32)


@EVERY
def test_memory_only_cuts_batches(measure):
    x, y = layers(Case(50, 1.0, widths=(6, 9, 6))), layers(Case(50, widths=(6, 20)), seed=1)
    for other in (None, y):
        want = measure(x, other)
        assert torch.equal(measure(x, other), want)
        for limit in (80_000, 120_000):
            got = measure(x, other, max_memory=limit)
            torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-13, equal_nan=True)
    if measure.function == "matching_grid":
        with pytest.raises(ValueError, match="max_memory: wanted at least"):
            measure(x, max_memory=1000)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_permutation_is_found_and_scales_do_not_matter(dtype):
    generator = np.random.default_rng(3)
    for offset, scale in ((0.0, 1.0), (1000.0, 1.0), (0.0, 1e-30), (0.0, 1e30)):
        x = torch.from_numpy((generator.standard_normal((60, 40)) + offset) * scale).to(dtype)
        moved = x[:, torch.from_numpy(generator.permutation(40))]
        assert matching_grid([x], [moved], score="distance") == 0
        assert matching_grid([x], [moved], score="angular") < 1e-14
        assert abs(float(matching_grid([x], [moved])) - 1) < 1e-6
        wide = torch.cat([moved, torch.zeros(60, 2, dtype=dtype)], 1)
        assert matching_grid([x], [wide], score="distance") == 0
        assert matching_grid([wide], [x], score="distance") == 0


@pytest.mark.filterwarnings("ignore:.*left out")
@EVERY
def test_constant_neurons_and_layers_without_a_value(measure):
    x, y = layers(Case(40, 1.0, widths=(5, 9))), layers(Case(40, widths=(6,)), seed=1)
    constant = torch.full((40, 2), -0.1, dtype=torch.float64)
    for layer in (torch.cat([constant, x[0]], 1), torch.cat([x[1], constant], 1)):
        got, want = measure([layer], y), measure.twin([layer], y)
        tolerance.assert_other(measure, got, want, exact([layer]), exact(y), torch.float64)
        got = measure(y, [layer])
        tolerance.assert_other(
            measure, got, measure.twin(y, [layer]), exact(y), exact([layer]), torch.float64
        )
    if measure.undefined != "none":
        nothing = torch.zeros_like(x[1])
        with pytest.warns(UserWarning, match=r"nan for X\[1\]"):
            got = measure([x[0], nothing])
        assert got.isnan().tolist() == [[False, True], [True, True]]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_best_assignments(dtype):
    """With rows and columns that take no part, against the twin's least cost."""
    generator = np.random.default_rng(0)
    gains = torch.from_numpy(generator.standard_normal((6, 9, 7))).to(dtype)
    rows = torch.from_numpy(generator.random((6, 9)) < 0.7)
    columns = torch.from_numpy(generator.random((6, 7)) < 0.7)
    rows[0] = True
    columns[1] = False
    partner = torch.ops.simcore.best_assignments(gains, rows, columns)
    for matrix, left, right, found in zip(gains, rows, columns, partner, strict=True):
        some = found >= 0
        assert int(some.sum()) == min(int(left.sum()), int(right.sum()))
        assert not bool((some & ~left).any())
        assert bool(right[found[some]].all())
        assert len(set(found[some].tolist())) == int(some.sum())
        costs = -matrix[left][:, right].double().numpy()
        want = reference.matching.least_cost(costs) if costs.size else 0.0
        total = matrix.double()[some, found[some]].sum()
        np.testing.assert_allclose(float(-total), want, rtol=1e-6, atol=1e-12)
    torch.library.opcheck(torch.ops.simcore.best_assignments.default, (gains, rows, columns))


def test_direct_calls_of_best_assignments_are_checked():
    gains, rows, columns = torch.zeros(2, 3, 4), torch.ones(2, 3).bool(), torch.ones(2, 4).bool()
    for arguments, error, words in (
        ((gains[0], rows, columns), ValueError, "gains B p q 3 4"),
        ((gains.half(), rows, columns), TypeError, "gains float32 float64 Half"),
        ((gains, rows.int(), columns), TypeError, "rows bool Int"),
        ((gains, columns, columns), ValueError, "rows 2 3 4"),
        ((gains, rows, rows), ValueError, "columns 2 4 3"),
    ):
        assert_refused(torch.ops.simcore.best_assignments, arguments, {}, error, words)
