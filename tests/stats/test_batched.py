"""The operations of torch that CUDA devices use for permutations, beside the kernels of the CPU."""

import numpy as np
import pytest
import torch

from simcore._ops import hsic, hsic_batched
from support import tolerance
from support.cases import DTYPES, Case, layers
from support.draws import drawn

COMPOSED = hsic_batched.OPERATORS
N = 45


@pytest.fixture(params=[1, 2**26], ids=["row by row", "at once"])
def _slab_bytes(request, monkeypatch):
    monkeypatch.setattr(hsic_batched, "SLAB_BYTES", request.param)


def grams(count, dtype, seed):
    g = torch.randn(N, N, count, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return g + g.transpose(0, 1)


@pytest.mark.usefixtures("_slab_bytes")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_permuted_gram_products(dtype, weighted):
    x, y = grams(3, dtype, 0), grams(5, dtype, 1)
    rows = drawn(2, N, 4)
    given = [x, y, torch.from_numpy(rows)]
    if weighted:
        given.append(torch.from_numpy(np.random.default_rng(3).integers(0, 4, size=rows.shape)))
    want = hsic.permuted_gram_products(*given)
    tolerance.assert_same(COMPOSED["permuted_gram_products"](*given), want, dtype)


@pytest.mark.usefixtures("_slab_bytes")
@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", [Case(N), Case(N, offset=1000.0), Case(N, outlier=True)], ids=str)
def test_gram_power_sums(case, dtype, estimator):
    x, y = layers(case, dtype), layers(Case(N, widths=(3,)), dtype, seed=1)
    for other in (y, []):
        got = COMPOSED["gram_power_sums"](x, other, estimator, 0)
        want = hsic.gram_power_sums(x, other, estimator, 0)
        for one, two in zip(got[:3], want[:3], strict=True):
            assert torch.equal(one, two)  # both are hsic_terms
        # Powers of two that features are divided by may differ.
        for place, power in ((3, 4), (4, 6)):
            units = [torch.exp2(power * terms[5]) for terms in (got, want)]
            one, two = (
                terms[place] * unit.view(-1, *(1 for _ in terms[place].shape[1:]))
                for terms, unit in zip((got, want), units, strict=True)
            )
            for layer, of_kernel in zip(one, two, strict=True):
                tolerance.assert_same(layer, of_kernel, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [2, 3, 44, 45])
def test_medians_of_distances(n, dtype):
    x, y = (layers(Case(n, offset=3.0, widths=(4, 2)), dtype, seed=seed) for seed in (0, 1))
    x[1][: n - n // 4] = 1.0  # more than half of the pairs coincide
    got = COMPOSED["median_squared_distances"](x, y)
    want = hsic.median_squared_distances(x, y)
    assert got[1] == want[1] == 0
    for one, two in zip(got, want, strict=True):
        tolerance.assert_same(one, two, dtype)


def test_medians_of_many_rows_are_those_of_some():
    x = layers(Case(4099, widths=(2,)), torch.float32)
    got = COMPOSED["median_squared_distances"](x, [])
    tolerance.assert_same(got, hsic.median_squared_distances(x, []), torch.float32)


@pytest.mark.usefixtures("_slab_bytes")
@pytest.mark.parametrize("with_cosines", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_mean_rows(dtype, with_cosines):
    x = layers(Case(N, offset=3.0, widths=(4, 20, 3)), dtype)
    x = [x[0], x[1][:7], torch.cat([x[2], -x[2]]), x[0].clone()]
    x[3][::2] = 0
    got, want = (run(x, with_cosines, 0) for run in (COMPOSED["mean_rows"], hsic.mean_rows))
    for one, two in zip(got, want, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12, equal_nan=True)
    assert got[1].isnan().tolist() == [False, False, True, False][: 4 * with_cosines]


@pytest.mark.usefixtures("_slab_bytes")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("scale", [1e-3, 0.3, 1e3])
def test_uniformity(scale, dtype):
    x = [scale * layer for layer in layers(Case(N, offset=3.0, widths=(4, 20)), dtype)]
    # Mean potentials have the rounding of the dtype; logarithms of means near 1 have it absolutely.
    got, want = COMPOSED["uniformity"](x, 0).exp(), hsic.uniformity(x, 0).exp()
    tolerance.assert_same(got, want, dtype)
