"""Everything beside CKA on a CUDA device: the CPU tests' jobs, tolerances and twins."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from simcore import (
    attention_grid,
    cosine_grid,
    distributed_attention,
    neighbours,
    neuron_partners,
    neuronsim_grid,
    output_divergence_grid,
    plan_cka,
    stats,
    svcca_grid,
)
from simcore._ops.coupling import affine_coupling
from simcore._ops.eigh import eigh
from simcore._ops.spectral_batched import singular_systems
from support import measure_table, tolerance
from support.cases import DTYPES, Case, exact, layers
from support.distance_table import DISTANCE_ROWS
from support.gpu import needs_cuda, on_gpu
from support.neighbour_table import NEIGHBOUR_ROWS

pytestmark = [needs_cuda, pytest.mark.filterwarnings("ignore:.*canonical correlations are all 1")]
JOBS = measure_table.JOBS
NEAR, FAR = Case(45, widths=(7, 24, 300)), Case(45, 1000.0, True, (7, 24, 300))


@pytest.mark.parametrize(("measure", "case"), JOBS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_grids_match_the_twins(dtype, measure, case):
    x = measure.layers(case, dtype)
    got = measure(on_gpu(x))
    assert got.is_cuda
    tolerance.assert_measure(got.cpu(), measure.twin(x), dtype)
    y = measure.layers(Case(case.n, 10.0, widths=(12, 5)), dtype, seed=1)
    tolerance.assert_measure(measure(on_gpu(x), on_gpu(y)).cpu(), measure.twin(x, y), dtype)


@pytest.mark.parametrize("case", [NEAR, FAR], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("measure", NEIGHBOUR_ROWS, ids=str)
def test_neighbours_match_the_twins(measure, dtype, case):
    x, y = layers(case, dtype), layers(Case(case.n, 10.0, widths=(12,)), dtype, seed=1)
    for other in (None, y):
        got = measure(on_gpu(x), None if other is None else on_gpu(other)).cpu()
        want = measure.twin(x, other)
        tolerance.assert_measure(got, want, dtype, condition=measure.condition)


def test_leading_components_of_wide_layers():
    """Of a fast spectrum, few of 2,100 components are computed."""
    turned = [torch.linalg.qr(x)[0] for x in torch.randn(2, 2100, 2100, dtype=torch.float64)]
    decay = 0.97 ** torch.arange(2100)
    x = [(turn * decay).float() for turn in turned]
    got = svcca_grid(on_gpu(x), truncation=0.9).cpu()
    torch.testing.assert_close(got, svcca_grid(x, truncation=0.9), rtol=0, atol=1e-5)


@pytest.mark.parametrize("function", [cosine_grid, output_divergence_grid])
def test_pairs_of_rows_beyond_a_tile(function):
    x = [layer.softmax(1) for layer in torch.randn(3, 5000, 300)]
    torch.testing.assert_close(function(on_gpu(x)).cpu(), function(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "inner"])
def test_lists_are_the_cpus(metric):
    x = layers(Case(300, 3.0, True, (40, 7)), torch.float32)
    x.append(x[0][:30].repeat(10, 1))  # copies
    for got, want in zip(neighbours(on_gpu(x), 7, metric), neighbours(x, 7, metric), strict=True):
        assert torch.equal(got.index.cpu(), want.index)
        torch.testing.assert_close(got.values.cpu(), want.values, rtol=1e-9, atol=1e-15)
        again = neighbours(on_gpu([want.layer]), 7, metric)[0]
        assert torch.equal(again.index, got.index)
        assert torch.equal(again.values, got.values)


@pytest.mark.parametrize("case", [NEAR, FAR], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("measure", DISTANCE_ROWS, ids=str)
@pytest.mark.filterwarnings("ignore:.*rows of zeros")
def test_distances_match_the_twins(measure, dtype, case):
    case = replace(case, widths=(12, 12)) if measure.equal_widths else case
    x, y = layers(case, dtype), layers(Case(case.n, 1.0, widths=(12,)), dtype, seed=1)
    condition = tolerance.DRAWN_CONDITION if case is FAR else 1.0
    for other in (None, y):
        got = measure(on_gpu(x), None if other is None else on_gpu(other)).cpu()
        both = exact(x), exact(other)
        tolerance.assert_other(measure, got, measure.twin(x, other), *both, dtype, condition)


def test_partners_are_the_cpus():
    x = torch.randn(3, 300, 150, generator=torch.Generator().manual_seed(0))
    want = neuron_partners(x)
    got = neuron_partners(x.cuda())
    for best, other in zip(got.best, want.best, strict=True):
        torch.testing.assert_close(best.cpu(), other, rtol=0, atol=2e-6)
    for partner, other in zip(got.partner, want.partner, strict=True):
        assert torch.equal(partner.cpu(), other)


@pytest.mark.parametrize("shape", [(3, 1, 1), (50, 128, 128), (7, 20, 90), (5, 90, 20)], ids=str)
def test_singular_systems(shape):
    m = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    u, s, vt = (t.cpu() for t in singular_systems(m.cuda()))
    want = torch.linalg.svdvals(m.double())
    torch.testing.assert_close(s.double(), want, rtol=0, atol=2e-6 * float(want.max()))
    torch.testing.assert_close((u * s[:, None]) @ vt, m, rtol=0, atol=3e-6 * float(want.max()))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(300, 128), (5, 200), (2, 3, 40), (1, 90), (3, 20)], ids=str)
def test_eigenproblems(shape, dtype):
    generator = torch.Generator().manual_seed(0)
    m = torch.randn(*shape, shape[-1], generator=generator, dtype=dtype)
    m = m + m.mT
    values, vectors = (t.cpu().double() for t in eigh(m.cuda()))
    want = torch.linalg.eigvalsh(m.double())
    bound = float(want.abs().max()) * (1e-13 if dtype == torch.float64 else 1e-4)
    torch.testing.assert_close(values, want, rtol=0, atol=bound)
    again = (vectors * values[..., None, :]) @ vectors.mT
    torch.testing.assert_close(again, m.double(), rtol=0, atol=bound)
    with pytest.raises(torch.linalg.LinAlgError):
        eigh(m.cuda().fill_(torch.nan))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("measure", ["js", "pearson", "frobenius"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_attention(dtype, measure, causal):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(3, 6, 9, 33, 33, generator=generator).softmax(-1).to(dtype)
    want = attention_grid(x, measure=measure, causal=causal)
    got = attention_grid(x.cuda(), measure=measure, causal=causal)
    bound = 1e-12 if dtype == torch.float64 else tolerance.FLOAT32_ATTENTION_ABSOLUTE
    torch.testing.assert_close(got.cpu(), want, rtol=0, atol=bound)


@pytest.mark.parametrize("causal", [False, True])
def test_distributed_attention(causal):
    x = torch.rand(6, 9, 33, 33, generator=torch.Generator().manual_seed(0)).softmax(-1)
    got = distributed_attention(x.cuda(), causal=causal)
    assert got.is_cuda
    torch.testing.assert_close(got.cpu(), distributed_attention(x, causal=causal))


def test_attention_of_two_devices_is_refused():
    x = torch.rand(2, 6, 9, 33, 33, generator=torch.Generator().manual_seed(0)).softmax(-1)
    with pytest.raises(ValueError, match=r"B\[0\]: wanted device cuda:0 as in A\[0\], got cpu"):
        attention_grid(x.cuda(), x)


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(7, 5), (3, 65, 384), (2, 9, 33)])
def test_couplings_and_their_gradients(shape, dtype, inverse):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator).to(dtype)
    params = torch.randn(*shape[:-1], 2 * shape[-1], generator=generator).to(dtype)

    def outputs(device):
        inputs = [t.to(device).requires_grad_() for t in (x, params)]
        y, log_det = affine_coupling(*inputs, 1.3, inverse)
        loss = (y * y).sum() + log_det.sum()
        return [t.cpu() for t in (y, log_det, *torch.autograd.grad(loss, inputs))]

    bound = 1e-12 if dtype == torch.float64 else 1e-5 if dtype == torch.float32 else 2e-2
    for got, want in zip(outputs("cuda"), outputs("cpu"), strict=True):
        torch.testing.assert_close(got, want, rtol=bound, atol=bound)


def test_bad_input_is_refused_as_on_the_cpu():
    x = torch.randn(2, 20, 4).cuda()
    x[1, 3, 2] = float("nan")
    for measure, _ in {job[0].name: job for job in JOBS}.values():
        with pytest.raises(ValueError, match=r"X\[1\]: wanted finite values, got 1 NaN"):
            measure(x)
    weights = torch.rand(2, 3, 2, 5, 5).softmax(-1).cuda()
    weights[1, 0, 0, 0, 0] = -1
    with pytest.raises(ValueError, match=r"A\[1\]: wanted no negative weights"):
        attention_grid(weights)


def test_a_plan_is_for_the_cpu_alone():
    with pytest.raises(ValueError, match=r"X\[0\]: wanted device cpu for a plan, got cuda"):
        plan_cka(torch.randn(2, 20, 4).cuda())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"kernel": "rbf", "estimator": "unbiased"},
        {"method": "moments"},
        {"method": "moments", "kernel": "rbf"},
        {"measure": "svcca"},
    ],
    ids=str,
)
def test_permutation_tests(options):
    x = torch.randn(3, 60, 5, generator=torch.Generator().manual_seed(0))
    want = stats.permutation_test(x, permutations=9, **options)
    got = stats.permutation_test(x.cuda(), permutations=9, **options)
    for name in ("observed", "pvalue", "null_mean", "null_std"):
        there = getattr(got, name)
        assert there.is_cuda
        tolerance.assert_same(there.cpu(), getattr(want, name), torch.float32)


@pytest.mark.parametrize("options", [{}, {"kernel": "rbf", "method": "half"}], ids=str)
def test_bootstrap_intervals(options):
    x = torch.randn(3, 60, 5, generator=torch.Generator().manual_seed(0))
    want, got = (stats.bootstrap_ci(t, resamples=9, **options) for t in (x, x.cuda()))
    for name in ("low", "high", "observed"):
        tolerance.assert_same(getattr(got, name).cpu(), getattr(want, name), torch.float32)


def test_repetition_is_bit_equal():
    x = torch.randn(3, 200, 60, generator=torch.Generator().manual_seed(0)).cuda()
    want = neuronsim_grid(x)
    assert np.isfinite(want.cpu().numpy()).all()
    assert torch.equal(neuronsim_grid(x), want)


def test_a_device_without_enough_memory_is_an_error_of_its_own():
    x = torch.zeros(1, 1, device="cuda").expand(2**24, 2**20)  # 64 TiB, were they written
    params = torch.zeros(1, 1, device="cuda").expand(2**24, 2**21)
    with pytest.raises(torch.OutOfMemoryError):
        affine_coupling(x, params, 1.0, False)
