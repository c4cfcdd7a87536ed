"""All measures beside CKA against their float64 twins: dtypes, sizes, offsets, outliers."""

import pytest
import torch

from simcore._grid.accuracy import _squared_lengths
from support import tolerance
from support.cases import DTYPES, HALVES, Case, noted
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


def check(measure, x, y, dtype):
    got = measure(x, y)
    assert got.dtype == torch.float64
    assert not bool((got > 1).any())
    tolerance.assert_measure(got, measure.twin(x, y), dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("measure", MEASURES, ids=str)
def test_grids_match_the_twins(measure, dtype):
    for case in (case for one, case in JOBS if one is measure):
        x = measure.layers(case, dtype)
        y = measure.layers(Case(case.n, 10.0, widths=(12, 5)), dtype, seed=1)
        with noted(case):
            check(measure, x, None, dtype)
            check(measure, x, y, dtype)


@pytest.mark.parametrize("measure", MEASURES, ids=str)
def test_half_precisions_and_mixtures(measure):
    for dtype in HALVES:
        x = measure.layers(Case(150, widths=(20, 7, 33)), dtype)
        check(measure, x, measure.layers(Case(150, 3.0, True, (12, 5)), dtype, seed=1), dtype)
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
