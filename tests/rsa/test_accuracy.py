"""Ties and nearly equal rows, beyond what `tests/grid` asks of every measure."""

import pytest
import torch

from simcore import Rdm, rsa_grid
from simcore._grid import accuracy
from support import tolerance
from support.cases import DTYPES, Case
from support.measure_table import RSA, RSA_SPEARMAN


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_spearman_ranks_rows_that_are_nearly_equal_within_classes(dtype):
    generator = torch.Generator().manual_seed(0)
    points, noise = torch.randn(2, 2, 80, 12, generator=generator, dtype=torch.float64)
    layers = [
        (p[:2].repeat(40, 1) + 1e-6 * z).to(dtype) for p, z in zip(points, noise, strict=True)
    ]
    want = RSA_SPEARMAN.twin(layers[:1], layers[1:])
    with accuracy.watch() as again:
        tolerance.assert_measure(RSA_SPEARMAN(layers[:1], layers[1:]), want, dtype)
    assert again == ["rsa_grid: X[0]", "rsa_grid: Y[0]"]
    beside = rsa_grid(
        [layers[0], Rdm(torch.cdist(noise[0], noise[0]))], layers[1:], correlation="spearman"
    )
    tolerance.assert_measure(beside[:1], want, dtype)


def test_spearman_of_copies_of_rows_is_not_computed_again():
    x = torch.randn(2, 40, 6, generator=torch.Generator().manual_seed(0))
    with accuracy.watch() as again:
        rsa_grid(torch.cat([x, x[:, :15], x[:, :8]], 1), correlation="spearman")
    assert not again


def test_what_is_computed_again_warns_of_no_layer():
    """Rows of few entries are nearly orthogonal, and a layer without a value is told of once."""
    rows = torch.eye(400)[torch.randperm(400)[:40]] + 1e-3 * torch.randn(40, 400)
    layers = [rows, torch.randn(40, 5), torch.ones(40, 3)]
    with pytest.warns(UserWarning, match=r"nan for X\[2\]") as caught, accuracy.watch() as again:
        grid = rsa_grid(layers)
    assert len(caught) == 1
    assert any("X[0], X[1]" in one for one in again)
    assert grid[:2, :2].isfinite().all()
