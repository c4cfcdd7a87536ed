"""All measures beside CKA against their float64 twins: dtypes, sizes, offsets, outliers."""

import numpy as np
import pytest
import torch

from simcore import neuronsim_grid, reference, rsa_grid, svcca_grid
from support import tolerance
from support.cases import DTYPES, HALVES, Case, exact
from support.measure_table import (
    CCA,
    CCA_R2,
    JOBS,
    LINREG,
    MEASURES,
    MIXEDSIM,
    NEURONSIM,
    PROCRUSTES,
    PWCCA,
    PWCCA_TRUNCATED,
    RSA,
    RSA_SPEARMAN,
    SVCCA,
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


@pytest.mark.parametrize("measure", [PWCCA, PWCCA_TRUNCATED], ids=str)
@pytest.mark.parametrize("widths", [(30, 20), (20, 30), (30, 30)], ids=str)
def test_weights_of_either_side_in_float32(widths, measure):
    """Wider on the left, on the right, and square: three ways to the canonical directions."""
    x = measure.layers(Case(200, 3.0, widths=widths), torch.float32)
    y = measure.layers(Case(200, 3.0, widths=widths), torch.float32, seed=1)
    for other in (None, y):
        tolerance.assert_measure(measure(x, other), measure.twin(x, other), torch.float32)


def test_weights_where_small_correlations_would_be_rounding():
    """Correlations below 1e-3 of the largest take the singular value decomposition."""
    q = np.linalg.qr(np.random.default_rng(0).standard_normal((200, 8)))[0]
    q = np.linalg.qr(q - q.mean(axis=0))[0]
    rho = np.array([0.9, 0.3, 0.1, 1e-4])
    x = torch.from_numpy(q[:, :4] * [1.0, 2.0, 3.0, 4.0]).float()
    y = torch.from_numpy(q[:, :4] * rho + q[:, 4:] * np.sqrt(1 - rho**2)).float()
    for pair in ([x], [y]), ([y], [x]):
        tolerance.assert_measure(PWCCA(*pair), PWCCA.twin(*pair), torch.float32)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_count_for_every_layer(dtype):
    """Of X, then of Y: the twin is given all layers as one side."""
    x = SVCCA.layers(Case(60, 10.0, widths=(7, 20, 9)), dtype)
    y = SVCCA.layers(Case(60, widths=(12, 5)), dtype, seed=1)
    counts = [2, 11, 4, 6, 99]
    want = reference.svcca_grid(exact(x + y), truncation=counts)
    tolerance.assert_measure(svcca_grid(x, truncation=counts[:3]), want[:3, :3], dtype)
    tolerance.assert_measure(svcca_grid(x, y, truncation=counts), want[:3, 3:], dtype)
    tolerance.assert_measure(svcca_grid(x, y, truncation=tuple(counts)), want[:3, 3:], dtype)


@pytest.mark.parametrize("truncation", [1, 2, 999, 0.3, 0.5, 1.0])
def test_truncations(truncation):
    x = SVCCA.layers(Case(60, 10.0, widths=(7, 20, 9)))
    want = reference.svcca_grid(exact(x), truncation=truncation)
    tolerance.assert_measure(svcca_grid(x, truncation=truncation), want, torch.float64)


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("dtype", DTYPES + HALVES, ids=str)
def test_best_partners(dtype, cross):
    x = NEURONSIM.layers(Case(129, 10.0, widths=(7, 1, 40)), dtype)
    y = NEURONSIM.layers(Case(129, outlier=True, widths=(12, 5)), dtype, seed=1) if cross else None
    grid, best, partner = neuronsim_grid(x, y, return_partners=True)
    tolerance.assert_measure(grid, NEURONSIM.twin(x, y), dtype)
    for i, layer in enumerate(exact(x)):
        for j, other in enumerate(exact(y or x)):
            want, which = reference.best_partners(layer, other)
            tolerance.assert_measure(best[i][:, j], want, dtype)
            # Where two neurons are as good as each other, rounding decides.
            at_partner = np.abs(reference.neurons.correlations(layer, other))[
                np.arange(layer.shape[1]), partner[i][:, j]
            ]
            tolerance.assert_measure(at_partner, want, dtype)
            if dtype == torch.float64 and not (i == j and not cross):
                np.testing.assert_array_equal(partner[i][:, j], which)
    assert {values.dtype for values in best} == {torch.float64}
    assert {values.dtype for values in partner} == {torch.int64}


def test_equal_partners_give_the_first():
    x = NEURONSIM.layers(Case(40, widths=(3,)))[0]
    doubled = torch.cat([x, x, -x], dim=1)
    for dtype in DTYPES:
        _, _, partner = neuronsim_grid(
            [x.to(dtype)], [doubled.to(dtype)[:, [0, 3, 6, 1, 4, 7, 2, 5, 8]]], return_partners=True
        )
        assert partner[0].flatten().tolist() == [0, 3, 6]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_spearman_shares_the_rank_of_ties(dtype):
    """Examples that occur twice: every pair that they are in has a pair as far apart."""
    x = RSA_SPEARMAN.layers(Case(40, 10.0, widths=(6,)), dtype)[0]
    tied = torch.cat([x, x[:15], x[:8]])
    other = RSA_SPEARMAN.layers(Case(63, widths=(6,)), dtype, seed=1)
    want = RSA_SPEARMAN.twin([tied], other)
    tolerance.assert_measure(RSA_SPEARMAN([tied], other), want, dtype)


@pytest.mark.parametrize("spread", [1.0, 1e-2, 1e-4])
def test_rows_that_are_nearly_equal(spread):
    """All correlations of rows are close to 1: their dissimilarities keep their digits."""
    generator = torch.Generator().manual_seed(0)
    common = torch.randn(1, 20, generator=generator, dtype=torch.float64)
    noise = torch.randn(2, 30, 20, generator=generator, dtype=torch.float64)
    x, y = [common + spread * noise[0]], [common + spread * noise[1]]
    for measure in (RSA, RSA_SPEARMAN):
        tolerance.assert_measure(measure(x, y), measure.twin(x, y), torch.float32)
    want = RSA.twin(x, y)
    tolerance.assert_measure(rsa_grid(x, y), want, torch.float64, condition=tolerance.CONDITION)
