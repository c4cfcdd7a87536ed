"""CKA and HSIC grids on a CUDA device: the CPU tests' parameters, tolerances and twins."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from simcore import Gram, cka_grid, hsic_grid, reference
from simcore._ops.hsic import hsic_terms
from simcore._ops.hsic_composed import composed_terms
from support import naive, tolerance
from support.cases import DTYPES, ESTIMATORS, HALVES, KERNELS, Case, exact, layers
from support.cka import ESTIMATED, WELL_CONDITIONED_N, check_cka, expected
from support.gpu import needs_cuda, on_gpu

pytestmark = needs_cuda
CASE = Case(257, offset=10.0, widths=(40, 7, 129, 64))  # no size divides a tile


@pytest.mark.parametrize(("estimator", "case"), ESTIMATED, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
def test_cka(kernel, dtype, estimator, case):
    got = cka_grid(on_gpu(layers(case, dtype)), kernel=kernel, estimator=estimator)
    assert got.is_cuda
    absolute = case.n >= WELL_CONDITIONED_N[estimator]
    check_cka(got, *expected(case, dtype, kernel, estimator), dtype, absolute=absolute)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [4, 33, 400])
def test_hsic_cross_grid(n, dtype, estimator, kernel):
    x = layers(Case(n, offset=10.0), dtype)
    y = layers(Case(n, widths=(12, 3)), dtype, seed=1)
    options = {"kernel": kernel, "estimator": estimator}
    for other in (y, None):
        want = reference.hsic_grid(exact(x), exact(other), **options)
        got = hsic_grid(on_gpu(x), None if other is None else on_gpu(other), **options)
        tolerance.assert_close(got, want, dtype, naive.hsic_grid(x, other, **options))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(
    "case", [Case(33), Case(129, offset=10.0), Case(33, outlier=True)], ids=str
)
def test_halves_are_converted_on_load(case, dtype, kernel):
    x = layers(case, dtype)
    want = reference.cka_grid(exact(x), kernel=kernel)
    tolerance.assert_float32_cka(cka_grid(on_gpu(x), kernel=kernel), want)


@pytest.mark.parametrize("bandwidth", [0.2, 0.5, 3.0, 7.9, 8.0, 1000.0])
def test_bandwidths_in_float32(bandwidth):
    x = [layer.float() for layer in layers(Case(129))]
    options = {"kernel": "rbf", "bandwidth": bandwidth}
    want = reference.cka_grid(exact(x), **options)
    tolerance.assert_float32_cka(cka_grid(on_gpu(x), **options), want)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("offset", [0.0, 10.0, 1000.0])
def test_realistic_width_in_float32(offset, kernel):
    x = layers(Case(300, offset=offset, outlier=True, widths=(768, 768, 384)), torch.float32)
    for estimator in ESTIMATORS:
        options = {"kernel": kernel, "estimator": estimator}
        want = reference.cka_grid(exact(x), **options)
        tolerance.assert_float32_cka(cka_grid(on_gpu(x), **options), want)


def test_precisions_are_what_they_say():
    x = layers(Case(300, widths=(768, 384)), torch.float32)
    want = reference.cka_grid(exact(x))
    errors = {
        precision: tolerance.max_error(cka_grid(on_gpu(x), precision=precision), want)
        for precision in ("highest", "high", "medium")
    }
    assert errors["highest"] <= tolerance.FLOAT32_CKA_ABSOLUTE
    assert errors["high"] == errors["highest"]
    assert errors["medium"] <= torch.finfo(torch.float16).eps  # TensorFloat32's bits


def test_rbf_median_of_many_rows():
    x = layers(Case(4200, offset=3.0, widths=(5, 3)))
    got = hsic_grid(on_gpu(x), kernel="rbf")
    tolerance.assert_same(got, hsic_grid(x, kernel="rbf"), torch.float64)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_repetition_is_bit_equal(dtype, kernel):
    x, y = on_gpu(layers(CASE, dtype)), on_gpu(layers(CASE, dtype, seed=1))
    for other in (None, y):
        first = hsic_grid(x, other, kernel=kernel)
        for _ in range(5):
            assert torch.equal(hsic_grid(x, other, kernel=kernel), first)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_memory_limit_does_not_matter(dtype, kernel):
    # The least memory of the composed form, which float64 layers take, holds tiles of one row.
    n = 150 if dtype == torch.float64 else 700
    x = on_gpu(layers(Case(n, offset=10.0, widths=(40, 7, 129, 64)), dtype))
    want = cka_grid(x, kernel=kernel)
    with pytest.raises(ValueError, match="max_memory: wanted at least") as caught:
        cka_grid(x, kernel=kernel, max_memory=1)
    least = int(str(caught.value).split("at least ")[1].split()[0])
    for limit in (least, 2 * least, 5 * least):
        tolerance.assert_same(cka_grid(x, kernel=kernel, max_memory=limit), want, dtype)


def test_max_memory_is_obeyed():
    x = torch.randn(20, 1000, 128, device="cuda")  # all Grams would be 80 MB
    limit = 16 * 2**20
    cka_grid(x, max_memory=limit)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    cka_grid(x, max_memory=limit)
    assert torch.cuda.max_memory_allocated() - before <= limit + 2**20  # results, rounding


def test_any_strides_are_read_in_place():
    x = on_gpu(layers(CASE, torch.float32))
    want = hsic_grid(x)
    columns = [layer.T.contiguous().T for layer in x]
    wide = [torch.cat([layer, layer], 1)[:, : layer.shape[1]] for layer in x]
    for views in (columns, wide):
        assert torch.equal(hsic_grid(views), want)


def test_bad_entries_are_counted_and_named():
    x = on_gpu(layers(CASE, torch.float32))
    x[2][5, :3] = math.nan
    with pytest.raises(ValueError, match=r"X\[2\]: wanted finite values, got 3 NaN"):
        cka_grid(x)


def test_a_constant_layer_poisons_no_other():
    x = on_gpu(layers(CASE, torch.float32))
    x[1].fill_(2.5)
    with pytest.warns(UserWarning, match=r"X\[1\]"):
        grid = cka_grid(x)
    others = [0, 2, 3]
    assert grid[1].isnan().all()
    tolerance.assert_same(grid[others][:, others], cka_grid([x[i] for i in others]), torch.float32)


def test_refusals():
    x = on_gpu(layers(CASE, torch.float32))
    with pytest.raises(ValueError, match="device"):
        cka_grid([x[0], x[1].cpu()])
    with pytest.raises(ValueError, match="method"):
        hsic_terms(x, [], "rbf", "biased", 1.0, "feature", 0)


@pytest.mark.parametrize("form", ["feature", "gram"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_products_of_torch(offset, dtype, estimator, form):
    x = layers(Case(700, offset, True, widths=(40, 7, 129)), dtype)
    xy, xx, yy = (t.cpu() for t in composed_terms(on_gpu(x), [], estimator, form, 0))
    want = reference.cka_grid(exact(x), estimator=estimator)
    tolerance.assert_measure(
        xy / (xx[:, None] * yy).sqrt(), want, dtype, condition=tolerance.DRAWN_CONDITION
    )
    again = composed_terms(on_gpu(x), [], estimator, form, 0)[0]
    assert torch.equal(again.cpu(), xy)


@pytest.mark.parametrize("count", [4, 70])  # more than were warmed up with: another kernel
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_graph_captures_the_whole_grid(kernel, count):
    case = replace(CASE, widths=(CASE.widths * count)[:count])
    x = on_gpu(layers(case, torch.float32))
    arguments = (kernel, "unbiased", 1.0, "auto", 0)
    hsic_terms(x[:4], [], *arguments)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = hsic_terms(x, [], *arguments)
    for seed in (1, 2):
        for layer, other in zip(x, layers(case, torch.float32, seed=seed), strict=True):
            layer.copy_(other)
        graph.replay()
        for got, want in zip(captured, hsic_terms(x, [], *arguments), strict=True):
            assert torch.equal(got, want)


def test_a_workspace_that_asks_for_the_free_memory():
    """Above 256 MB, which is not taken unasked."""
    x = layers(Case(4096, widths=(64,) * 64), torch.float32)
    got = cka_grid(on_gpu(x), method="gram").cpu()
    torch.testing.assert_close(got, cka_grid(x), rtol=0, atol=1e-6)


@pytest.mark.parametrize("neurons", ["sampled", "paired"])
def test_populations_of_neurons(neurons):
    x = layers(replace(CASE, widths=(40, 40, 40)), torch.float32)
    options = {"neurons": neurons, "estimator": "unbiased"}
    got = cka_grid(on_gpu(x), **options).cpu()
    torch.testing.assert_close(got, cka_grid(x, **options), rtol=0, atol=1e-5)


def test_gram_matrices_are_layers():
    x = layers(CASE, torch.float64)
    grams = [Gram(layer @ layer.T) for layer in on_gpu(x)]
    torch.testing.assert_close(cka_grid(grams).cpu(), cka_grid(x), rtol=0, atol=1e-9)


def test_the_current_stream_is_used():
    x = on_gpu(layers(CASE, torch.float32))
    want = hsic_grid(x)
    stream = torch.cuda.Stream()
    late = [torch.empty_like(layer) for layer in x]
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        for layer, other in zip(late, x, strict=True):
            layer.copy_(other)
        got = hsic_grid(late)
    stream.synchronize()
    assert torch.equal(got, want)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_gradients_are_those_of_the_cpu(estimator):
    x = [layer.requires_grad_() for layer in layers(Case(33))]
    device = [layer.detach().cuda().requires_grad_() for layer in x]
    want = torch.autograd.grad(cka_grid(x, estimator=estimator).sum(), x)
    got = torch.autograd.grad(cka_grid(device, estimator=estimator).sum(), device)
    for one, other in zip(got, want, strict=True):
        tolerance.assert_close(one, tolerance.as_float64(other), torch.float64)


@pytest.mark.parametrize("kernel", KERNELS)
def test_opcheck(kernel):
    x = on_gpu(layers(Case(7, widths=(3, 1)), torch.float64))
    torch.library.opcheck(hsic_terms.default, (x, [], kernel, "unbiased", 1.0, "auto", 0))


def test_many_layers_match_the_cpu():
    """More pairs of layers than one block of the contraction holds."""
    x = layers(Case(40, widths=(2,) * 150), torch.float32)
    got = cka_grid(on_gpu(x))
    np.testing.assert_array_equal(tolerance.as_float64(got), tolerance.as_float64(got).T)
    tolerance.assert_float32_cka(got, tolerance.as_float64(cka_grid(x)))
