"""The operators for dissimilarities that CUDA devices use, on CPU tensors."""

import numpy as np
import pytest
import torch

import simcore._ops.rsa
from simcore import reference, rsa_grid
from simcore._ops.rsa import OPERATORS, standardised_rows
from support import tolerance
from support.cases import DTYPES, HALVES, Case, exact, layers

standardised_rows_of, rank_moments = OPERATORS["standardised_rows"], OPERATORS["rank_moments"]
CASES = [Case(33), Case(33, offset=1000.0), Case(40, outlier=True)]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", [*DTYPES, torch.bfloat16], ids=str)
def test_rows_and_their_rounding(dtype, case):
    for x in layers(case, dtype):
        if x.shape[1] < 2:
            continue
        kept = torch.float64 if dtype == torch.float64 else torch.float32
        for got, want in zip(
            standardised_rows_of(x, kept), standardised_rows(x, kept), strict=True
        ):
            assert got.dtype == want.dtype
            scale = float(want.nan_to_num().abs().max())
            torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-7 * scale, equal_nan=True)


def test_constant_rows_and_extreme_scales():
    x = torch.randn(9, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x[3] = 2.5
    x[4] = 0
    x[5] *= 1e300
    x[6] *= 1e-300
    rows, halves, rounding = standardised_rows_of(x, torch.float64)
    want = standardised_rows(x, torch.float64)
    torch.testing.assert_close(rows, want[0], rtol=0, atol=1e-14)
    torch.testing.assert_close(halves, want[1], equal_nan=True, rtol=1e-13, atol=0)
    torch.testing.assert_close(rounding, want[2], rtol=1e-9, atol=0)
    assert halves.isnan().tolist() == [i in (3, 4) for i in range(9)]


@pytest.fixture
def _device_operators(monkeypatch):
    monkeypatch.setattr(simcore._ops.rsa, "rank_moments", rank_moments)


@pytest.mark.usefixtures("_device_operators")
@pytest.mark.parametrize("dtype", DTYPES + HALVES, ids=str)
def test_spearman_matches_the_twin(dtype):
    cases = [Case(3), Case(33), *(Case(45, o, b) for o in (10.0, 1000.0) for b in (False, True))]
    for case in cases:
        if dtype in HALVES and case.offset > 10:
            continue  # offsets that differ leave no digits: the layers are undefined
        case = Case(case.n, case.offset, case.outlier, widths=(7, 64, 33))
        x, y = layers(case, dtype), layers(Case(case.n, widths=(12,)), dtype, seed=1)
        kept = torch.float64 if dtype == torch.float64 else torch.float32
        for other in (None, y):
            want = reference.rsa_grid(
                exact(x), exact(other), correlation="spearman", eps=torch.finfo(dtype).eps
            )
            tolerance.assert_measure(rsa_grid(x, other, correlation="spearman"), want, kept)


def test_ranks_of_tied_dissimilarities_are_shared():
    """Dissimilarities of binary rows are equal but for rounding, and so are many of the ranks."""
    generator = np.random.default_rng(0)
    x = [torch.from_numpy(generator.integers(0, 2, (60, 8)) * 1.0) for _ in range(3)]
    for layer in x:  # no constant row
        layer[:, 0], layer[:, 1] = 0, 1
    for y in ([], x[:1]):
        got, want = rank_moments(x, y, 0), torch.ops.simcore.rank_moments(x, y, 0)
        for one, other in zip(got, want, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=0)


@pytest.mark.usefixtures("_device_operators")
def test_constant_rows_memory_and_entries():
    x, y = layers(Case(40, 1.0, widths=(9, 70))), layers(Case(40, widths=(5,)), seed=1)
    want = rank_moments(x, y, 0)
    with pytest.raises(ValueError, match="max_memory: wanted at least") as caught:
        rank_moments(x, y, 1)
    least = int(str(caught.value).split("at least ")[1].split()[0])
    for one, other in zip(rank_moments(x, y, least), want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-13, atol=0)
    grid = rsa_grid(x, y, correlation="spearman")
    x[0][3] = 0.5
    with pytest.warns(UserWarning, match=r"nan for X\[0\]: no variance"):
        got = rsa_grid(x, y, correlation="spearman")
    assert got[0].isnan().all()
    assert torch.equal(got[1], grid[1])
    x[0][3, 2] = torch.nan
    with pytest.raises(ValueError, match=r"X\[0\]: wanted finite values, got 1 NaN"):
        rsa_grid(x, y, correlation="spearman")
