"""All measures beside CKA against their float64 twins: dtypes, sizes, offsets, outliers."""

import pytest
import torch

from simcore._grid.accuracy import _squared_lengths
from support import tolerance
from support.cases import DTYPES, HALVES, Case
from support.measure_table import (
    CCA,
    CCA_R2,
    JOBS,
    LINREG,
    MEASURES,
    MIXEDSIM,
    NEURONSIM,
    PROCRUSTES,
)

# n - 1 independent columns are warned about; here the values matter.
pytestmark = pytest.mark.filterwarnings("ignore:.*canonical correlations are all 1")


def other_side(measure, case, dtype):
    return measure.layers(Case(case.n, 10.0, widths=(12, 5)), dtype, seed=1)


@pytest.mark.parametrize(("measure", "case"), JOBS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_x_with_itself(dtype, measure, case):
    x = measure.layers(case, dtype)
    got = measure(x)
    assert got.dtype == torch.float64
    assert not bool((got > 1).any())
    tolerance.assert_measure(got, measure.twin(x), dtype)


@pytest.mark.parametrize(("measure", "case"), JOBS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_x_with_y(dtype, measure, case):
    x, y = measure.layers(case, dtype), other_side(measure, case, dtype)
    tolerance.assert_measure(measure(x, y), measure.twin(x, y), dtype)


@pytest.mark.parametrize("measure", MEASURES, ids=str)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_halves_are_as_good_as_float32_once_rounded(dtype, measure):
    x = measure.layers(Case(150, widths=(20, 7, 33)), dtype)
    y = measure.layers(Case(150, 3.0, True, (12, 5)), dtype, seed=1)
    for other in (None, y):
        tolerance.assert_measure(measure(x, other), measure.twin(x, other), dtype)


@pytest.mark.parametrize("measure", MEASURES, ids=str)
def test_float32_and_float64_layers_in_one_grid(measure):
    x = measure.layers(Case(150, 10.0, widths=(20, 7)))
    x[1] = x[1].float()
    y = measure.layers(Case(150, widths=(12, 5)), seed=1)
    y[0] = y[0].float()
    eps = torch.finfo(torch.float32).eps
    for other in (None, y):
        want = measure.twin(x, other, eps=eps)
        tolerance.assert_measure(measure(x, other), want, torch.float32)


@pytest.mark.parametrize("measure", [CCA, CCA_R2, LINREG, PROCRUSTES, NEURONSIM, MIXEDSIM], ids=str)
def test_widths_beyond_one_tile_in_float32(measure):
    x = measure.layers(Case(230, 3.0, True, (200, 30)), torch.float32)
    tolerance.assert_measure(measure(x), measure.twin(x), torch.float32)


@pytest.mark.parametrize("far", [0.0, 30.0, 1e3])
def test_lengths_of_centred_rows_are_right_at_any_distance_from_the_origin(far):
    """By products near the origin, by differences where products would cancel."""
    torch.manual_seed(0)
    layer = torch.randn(200, 16) + far
    wanted = (layer.double() - layer.double().mean(0)).square().sum(1)
    torch.testing.assert_close(_squared_lengths(layer), wanted, rtol=1e-3, atol=0)
