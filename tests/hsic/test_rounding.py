"""CKA and HSIC where float32 loses them: far rows, nearly equal layers, scales, ends of ranges."""

import numpy as np
import pytest
import torch

from simcore import MinibatchCKA, cka_grid, descriptor_grid, hsic_grid, reference
from simcore._grid.accuracy import watch

CONTRACT = {"rtol": 0, "atol": 1e-5}


def alike(seed=0, n=256, p=32):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, p))
    return x, x + 0.7 * rng.standard_normal((n, p))


def with_sink(height, **size):
    """Two layers whose first row is so far from the others, in one column, float32."""
    x, y = alike(**size)
    x[0, 3] = y[0, 3] = height
    return np.float32(x), np.float32(y)


def massive(factor):
    """Two layers that have nothing in common but one column, which is so much longer, float32."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 300, 32))
    x[:, 0] = y[:, 0] = factor * rng.standard_normal(300)
    return np.float32(x), np.float32(y)


@pytest.mark.parametrize("method", ["gram", "feature"])
@pytest.mark.parametrize("height", [1e3, 1e4, 1e5])
def test_unbiased_cka_with_a_far_row(height, method):
    x, y = with_sink(height)
    with watch() as again:
        got = cka_grid([x], [y], estimator="unbiased", method=method)
    np.testing.assert_allclose(got, reference.cka_grid([x], [y], estimator="unbiased"), **CONTRACT)
    assert again == ["cka_grid: X[0]", "cka_grid: Y[0]"]


def test_self_hsic_that_float32_makes_negative_is_no_lack_of_variance():
    x, y = alike()
    x[0] = y[0] = 1e5 * np.random.default_rng(5).standard_normal(32)
    x, y = np.float32(x), np.float32(y)
    got = cka_grid([x], [y], estimator="unbiased")
    np.testing.assert_allclose(got, reference.cka_grid([x], [y], estimator="unbiased"), **CONTRACT)


def test_a_warning_names_layers_whose_unbiased_hsic_float64_loses_too():
    far = with_sink(1e9)[1]
    with pytest.warns(UserWarning, match=r"rounding hides the unbiased HSIC of Y\[0\]"):
        cka_grid([np.float32(alike()[0])], [far], estimator="unbiased")


def test_batches_and_hsic_with_a_far_row():
    x, y = with_sink(1e4)
    metric = MinibatchCKA()
    with watch() as again:
        forward = metric(torch.tensor(x)[None], torch.tensor(y)[None])
        hsic = hsic_grid([x], [y], estimator="unbiased")
    want = reference.cka_grid([x], [y], estimator="unbiased")
    np.testing.assert_allclose(forward, want, **CONTRACT)
    np.testing.assert_allclose(metric.compute(), want, **CONTRACT)
    np.testing.assert_allclose(hsic, reference.hsic_grid([x], [y], estimator="unbiased"), rtol=1e-6)
    assert len(again) == 4


@pytest.mark.parametrize("neurons", ["sampled", "paired"])
def test_sampled_neurons_with_far_rows(neurons):
    mixing = np.random.default_rng(1).standard_normal((8, 32))
    x, y = (layer[:, :8] @ mixing + 0.1 * layer for layer in alike())
    x[0, 3] = y[0, 3] = 1e3
    x, y = np.float32(x), np.float32(y)
    options = {"estimator": "unbiased", "neurons": neurons}
    want = reference.cka_grid([x], [y], **options)
    assert np.isfinite(want).all()
    np.testing.assert_allclose(cka_grid([x], [y], **options), want, rtol=1e-5)


def test_gradients_with_a_far_row_are_those_of_float64():
    x, y = (torch.tensor(layer) for layer in with_sink(1e4))
    got, want = (gradient(x.to(dtype), y.to(dtype)) for dtype in (torch.float32, torch.float64))
    assert_near(got, want)


def gradient(x, y, **options):
    x = x.clone().requires_grad_()
    options = {"estimator": "unbiased"} | options
    (grad,) = torch.autograd.grad(cka_grid([x], [y], **options).sum(), x)
    return grad


def assert_near(got, want, error=1e-6):
    assert (got - want).norm() <= error * want.norm()


@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
@pytest.mark.parametrize("factor", [500, 5000])
def test_gradients_that_cancel(factor, estimator):
    x, y = (torch.tensor(layer) for layer in massive(factor))
    with watch() as again:
        got = gradient(x, y, estimator=estimator)
    assert again == ["cka_grid gradient: X[0], Y[0]"]
    assert_near(got, gradient(x.double(), y.double(), estimator=estimator))


@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e10, 1e30])
def test_gradients_at_any_scale(scale, estimator):
    x, y = (torch.tensor(scale * layer, dtype=torch.float32) for layer in alike(n=50, p=8))
    got = gradient(x, y, estimator=estimator).double()
    assert_near(got, gradient(x.double(), y.double(), estimator=estimator))


@pytest.mark.parametrize("options", [{}, {"estimator": "unbiased"}, {"kernel": "rbf"}])
def test_no_value_passes_one(options):
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        x, square = (torch.randn(size, 16, generator=generator) for size in (60, 16))
        assert cka_grid([x], [x @ torch.linalg.qr(square)[0]], **options) <= 1


def test_the_angle_of_nearly_equal_layers():
    x, y = (torch.tensor(layer) for layer in massive(500))
    copy = x.clone().requires_grad_()
    grid = cka_grid([x, copy], [x, y], form="angular")
    want = reference.cka_grid([x.numpy()], [y.numpy()], form="angular")
    np.testing.assert_allclose(grid[:, 1].detach(), want[[0, 0], 0], rtol=1e-5)
    assert grid[0, 0] == 0
    (grad,) = torch.autograd.grad(cka_grid([copy], form="angular").sum(), copy)
    assert not bool(grad.any())
    with pytest.raises(ValueError, match="form: wanted 'similarity' for neurons='sampled'"):
        cka_grid([x], estimator="unbiased", neurons="sampled", form="angular")


@pytest.mark.parametrize("bandwidth", [1.0, 4.0])
@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
def test_rbf_kernel_of_layers_with_many_far_rows(estimator, bandwidth):
    x, y = alike()
    x[::20, 3] = y[::20, 3] = 3000
    x, y = np.float32(x), np.float32(y)
    options = {"kernel": "rbf", "estimator": estimator, "bandwidth": bandwidth}
    with watch() as again:
        got = cka_grid([x], [y], **options)
    np.testing.assert_allclose(got, reference.cka_grid([x], [y], **options), **CONTRACT)
    assert again == ["cka_grid: X[0]", "cka_grid: Y[0]"]
    want = reference.hsic_grid([x], [y], **options)
    np.testing.assert_allclose(hsic_grid([x], [y], **options), want, rtol=1e-4)


def test_uniformity_of_collapsed_classes():
    rng = np.random.default_rng(0)
    points, labels = 3 * rng.standard_normal((2, 4, 24)), np.arange(240) % 4
    x, y = (np.float32(one[labels] + 1e-2 * rng.standard_normal((240, 24))) for one in points)
    got, want = (
        descriptor_grid([a], [b], descriptor="uniformity").item()
        for a, b in ((x, y), (x.astype(np.float64), y.astype(np.float64)))
    )
    assert abs(got - want) <= 1e-4 * want


def test_plain_layers_are_not_computed_again():
    x, y = (np.float32(layer) for layer in alike())
    shifted = np.float32(30 + alike(1)[0])
    with watch() as again:
        for estimator in ("biased", "unbiased"):
            cka_grid([torch.tensor(x).requires_grad_()], [torch.tensor(y)], estimator=estimator)
            for kernel in ("linear", "rbf"):
                cka_grid([x, shifted], [y], estimator=estimator, kernel=kernel)
        MinibatchCKA().update([x])
        descriptor_grid([x], [y], descriptor="uniformity")
    assert again == []
