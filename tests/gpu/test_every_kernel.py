"""The kernels, with several tiles and ragged edges, for compute-sanitizer."""

import pytest
import torch

from simcore import attention_grid, distance_correlation_grid, hsic_grid, rsm_difference_grid
from simcore._kernels.self_check import FLOAT32, MEDIUM
from simcore._ops.coupling import affine_coupling
from simcore._ops.spectral import small_svd
from support import tolerance
from support.cases import Case, layers
from support.gpu import needs_cuda, on_gpu

pytestmark = needs_cuda
ROWS = 150  # two tiles of tensor-core products and three plain ones, the last ragged
COUNTS = [3, 70]  # few layers have products of their own


def assert_near(got, want, bound):
    """Fail where a value is further off than a share of the largest, as in the self-checks."""
    assert float((got.cpu() - want).abs().max()) <= bound * float(want.abs().max())


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("count", COUNTS)
def test_hsic(count, kernel):
    x = layers(Case(ROWS, widths=(5,) * count), torch.float32)
    y = layers(Case(ROWS, widths=(33, 2)), torch.float32, seed=1)
    for other in (None, y):
        want = hsic_grid(x, other, kernel=kernel)
        got = hsic_grid(on_gpu(x), None if other is None else on_gpu(other), kernel=kernel)
        tolerance.assert_same(got.cpu(), want, torch.float32)


@pytest.mark.parametrize("count", COUNTS)
def test_the_lower_precision(count):
    x = layers(Case(ROWS, widths=(5,) * count), torch.float32)
    assert_near(hsic_grid(on_gpu(x), precision="medium"), hsic_grid(x), MEDIUM)


@pytest.mark.parametrize("grid", [distance_correlation_grid, rsm_difference_grid])
@pytest.mark.parametrize("count", COUNTS)
def test_distances(count, grid):
    x = layers(Case(ROWS, widths=(5,) * count), torch.float32)
    assert_near(grid(on_gpu(x)), grid(x), FLOAT32)


def test_hsic_without_room_for_distances():
    x = layers(Case(ROWS, widths=(5, 33)), torch.float32)
    want = hsic_grid(x, kernel="rbf")
    got = hsic_grid(on_gpu(x), kernel="rbf", max_memory=900_000)  # 1.2 MB hold them
    tolerance.assert_same(got.cpu(), want, torch.float32)


@pytest.mark.parametrize("heads", [60, 70])  # tiles of 64 heads, and of 48
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("measure", ["js", "frobenius"])
def test_attention(measure, causal, heads):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(2, 3, heads, 33, 33, generator=generator).softmax(-1)
    want = attention_grid(x, measure=measure, causal=causal)
    got = attention_grid(x.cuda(), x[:1].cuda(), measure=measure, causal=causal)
    bound = tolerance.FLOAT32_ATTENTION_ABSOLUTE
    torch.testing.assert_close(got.cpu(), want[:, :1], rtol=0, atol=bound)


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("width", [33, 64])
def test_couplings(width, inverse):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 65, width, generator=generator)
    params = torch.randn(3, 65, 2 * width, generator=generator)

    def outputs(device):
        inputs = [t.to(device).requires_grad_() for t in (x, params)]
        y, log_det = affine_coupling(*inputs, 1.3, inverse)
        return [t.cpu() for t in (y, *torch.autograd.grad((y.sum() + log_det.sum()), inputs))]

    for got, want in zip(outputs("cuda"), outputs("cpu"), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(3, 21, 21), (2, 128, 7), (2, 128, 128)], ids=str)
def test_small_svd(shape):
    m = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    _, s, _ = small_svd(m.cuda())
    want = torch.linalg.svdvals(m.double())
    torch.testing.assert_close(s.cpu().double(), want, rtol=0, atol=2e-6 * float(want.max()))
