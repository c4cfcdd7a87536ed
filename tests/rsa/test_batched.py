"""The operations of torch that standardise rows on a CUDA device, beside the CPU's kernel."""

import pytest
import torch

from simcore._ops.rsa import standardised_rows, standardised_rows_of
from support.cases import DTYPES, Case, layers

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
