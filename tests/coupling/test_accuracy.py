"""Affine couplings: values and gradients against the twin, whatever the layout of the inputs."""

import math

import numpy as np
import pytest
import torch

from simcore import reference
from simcore._ops.coupling import affine_coupling, affine_coupling_backward
from support import tolerance
from support.cases import DTYPES, HALVES
from support.couplings import CLAMP, OFFSETS, SHAPES, entries, formula

DIRECTIONS = pytest.mark.parametrize("inverse", [False, True])


def twin(x, params, inverse, clamp=CLAMP):
    exact = (t.detach().double().numpy() for t in (x, params))
    return reference.couple(*exact, clamp=clamp, inverse=inverse)


def assert_agrees(x, params, inverse, clamp=CLAMP):
    """Both results against the twin, judged beside the plain formula in the dtype they come in."""
    got = affine_coupling(x, params, clamp, inverse)
    dtype = got[0].dtype
    rough = formula(x.to(dtype), params.to(dtype), clamp, inverse)
    for one, want, naive in zip(got, twin(x, params, inverse, clamp), rough, strict=True):
        assert one.dtype == dtype
        tolerance.assert_close(one, want, dtype, naive)


@DIRECTIONS
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_agrees_with_the_twin(shape, dtype, inverse):
    assert_agrees(*entries(shape, dtype), inverse)


@DIRECTIONS
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("outlier", [False, True])
def test_offsets_and_outlier_dimensions(outlier, offset, dtype, inverse):
    assert_agrees(*entries((33, 65), dtype, offset=offset, outlier=outlier), inverse)


@DIRECTIONS
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("clamp", [1e-3, 0.5, 5.0, 40.0])
def test_clamps(clamp, dtype, inverse):
    x, params = entries((9, 40), dtype)
    assert_agrees(x, params * clamp, inverse, clamp)


@DIRECTIONS
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_halves_are_converted_on_load(dtype, inverse):
    x, params = entries((31, 70), dtype)
    y, log_det = affine_coupling(x, params, CLAMP, inverse)
    assert y.dtype == log_det.dtype == torch.float32
    assert_agrees(x, params, inverse)
    assert_agrees(x, params.float(), inverse)
    assert_agrees(x.float(), params, inverse)


@DIRECTIONS
@pytest.mark.parametrize("batch", [1, 3])
def test_batches(batch, inverse):
    x, params = entries((batch, 7, 20), torch.float32)
    assert_agrees(x, params, inverse)
    got = affine_coupling(x, params, CLAMP, inverse)
    for i in range(batch):
        one = affine_coupling(x[i], params[i], CLAMP, inverse)
        assert torch.equal(one[0], got[0][i])
        assert torch.equal(one[1], got[1][i])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nothing_happens_at_zero(dtype):
    x, _ = entries((5, 40), dtype)
    y, log_det = affine_coupling(x, torch.zeros(5, 80, dtype=dtype), CLAMP, False)
    assert torch.equal(y, x)
    assert torch.equal(log_det, torch.zeros(5, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tiny_scales_keep_their_digits(dtype):
    """The log-determinant of a layer near the identity is a sum of numbers near 1e-6."""
    x, params = entries((9, 300), dtype)
    params[:, :300] = 1e-6 * (1 + params[:, :300].abs())
    _, log_det = affine_coupling(x, params, CLAMP, False)
    tolerance.assert_same(log_det, twin(x, params, False)[1], dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_clamp_bounds_the_scale(dtype):
    x = torch.ones(1, 4, dtype=dtype)
    s_raw = torch.tensor([[1e30, -1e30, math.inf, -math.inf]], dtype=dtype)
    params = torch.cat([s_raw, torch.zeros_like(s_raw)], dim=-1)
    y, log_det = affine_coupling(x, params, CLAMP, False)
    want = np.exp(CLAMP * np.array([[1, -1, 1, -1]]))
    tolerance.assert_close(y, want, dtype, naive=torch.exp(CLAMP * torch.sign(s_raw)))
    assert float(log_det) == 0


def test_nan_stays_in_its_entry():
    for place in range(3):
        x, params = entries((2, 40), torch.float32)
        if place == 0:
            x[1, 33] = math.nan
        else:
            params[1, 33 + 40 * (place - 1)] = math.nan
        y, log_det = affine_coupling(x, params, CLAMP, False)
        assert y.isnan().nonzero().tolist() == [[1, 33]]
        assert log_det.isnan().tolist() == [False, place == 1]


def gradients(function, x, params, weights, inverse):
    """Of a weighted sum over both results."""
    x, params = (t.detach().requires_grad_() for t in (x, params))
    y, log_det = function(x, params, CLAMP, inverse)
    loss = (y * weights[0].to(y.dtype)).sum() + (log_det * weights[1].to(y.dtype)).sum()
    return torch.autograd.grad(loss, (x, params))


def cotangents(x):
    generator = torch.Generator().manual_seed(5)
    y, log_det = x.shape, x.shape[:-1]
    return [torch.randn(s, generator=generator, dtype=torch.float64) for s in (y, log_det)]


def assert_gradients(x, params, inverse):
    weights = cotangents(x)
    got = gradients(affine_coupling, x, params, weights, inverse)
    want = gradients(formula, x.double(), params.double(), weights, inverse)
    rough = gradients(formula, x, params, weights, inverse)
    for one, exact, naive in zip(got, want, rough, strict=True):
        assert one.dtype == x.dtype
        tolerance.assert_close(one, exact, x.dtype, naive)


@DIRECTIONS
@pytest.mark.parametrize("dtype", DTYPES + HALVES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradients_agree_with_automatic_differentiation(shape, dtype, inverse):
    assert_gradients(*entries(shape, dtype), inverse)


@DIRECTIONS
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("offset", OFFSETS[1:])
@pytest.mark.parametrize("outlier", [False, True])
def test_gradients_with_offsets_and_outliers(outlier, offset, dtype, inverse):
    assert_gradients(*entries((2, 9, 33), dtype, offset=offset, outlier=outlier), inverse)


def layouts(tensor):
    """The same numbers at other strides."""
    padded = torch.full((*tensor.shape[:-1], tensor.shape[-1] + 3), math.nan, dtype=tensor.dtype)
    padded[..., 3:] = tensor
    every_other = torch.full((*tensor.shape[:-1], 2 * tensor.shape[-1]), math.nan).to(tensor.dtype)
    every_other[..., ::2] = tensor
    return {
        "rows apart": padded[..., 3:],
        "columns apart": every_other[..., ::2],
        "transposed": tensor.mT.contiguous().mT,
        "batches last": tensor.movedim(0, -1).contiguous().movedim(-1, 0),
    }


@DIRECTIONS
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", list(layouts(torch.zeros(1, 1, 1))))
def test_strides_change_no_bit(layout, dtype, inverse):
    x, params = entries((2, 5, 300), dtype)
    weights = cotangents(x)
    want = (
        *affine_coupling(x, params, CLAMP, inverse),
        *affine_coupling_backward(*(w.to(dtype) for w in weights), x, params, CLAMP, inverse),
    )
    other_x, other_params, other_grad = (
        layouts(t)[layout] for t in (x, params, weights[0].to(dtype))
    )
    got = (
        *affine_coupling(other_x, other_params, CLAMP, inverse),
        *affine_coupling_backward(
            other_grad, weights[1].to(dtype), other_x, other_params, CLAMP, inverse
        ),
    )
    for one, other in zip(got, want, strict=True):
        assert torch.equal(one, other)


def test_expanded_inputs():
    x, params = entries((7, 20))
    wide_x, wide_params = x.expand(3, 7, 20), params.expand(3, 7, 40)
    want, got = (
        affine_coupling(x, params, CLAMP, False),
        affine_coupling(wide_x, wide_params, CLAMP, False),
    )
    for one, other in zip(got, want, strict=True):
        assert torch.equal(one, other.expand_as(one))


@DIRECTIONS
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_threads_and_repetition_change_no_bit(dtype, inverse):
    x, params = entries((3, 150, 200), dtype)
    weights = [w.to(dtype) for w in cotangents(x)]
    results = []
    for threads in (1, 2, 3, 2):
        torch.set_num_threads(threads)
        results.append(
            (
                *affine_coupling(x, params, CLAMP, inverse),
                *affine_coupling_backward(*weights, x, params, CLAMP, inverse),
            )
        )
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_an_entry_does_not_depend_on_its_column():
    """Registers, what is left of a row, and blocks of columns take the same instructions."""
    x, params = entries((1, 300), torch.float32)
    y, _ = affine_coupling(x, params, CLAMP, False)
    for k in range(300):
        one = torch.cat([params[:, k : k + 1], params[:, 300 + k : 301 + k]], dim=-1)
        assert torch.equal(affine_coupling(x[:, k : k + 1], one, CLAMP, False)[0][0, 0], y[0, k])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_inverse_undoes_forward(dtype):
    x, params = entries((20, 90), dtype)
    y, log_det = affine_coupling(x, params, CLAMP, False)
    back, log_det_back = affine_coupling(y, params, CLAMP, True)
    tolerance.assert_same(back, x, dtype)
    assert torch.equal(log_det_back, -log_det)


def test_inputs_stay_as_they_are():
    x, params = entries((5, 40))
    before = x.clone(), params.clone()
    grads = cotangents(x)
    affine_coupling(x, params, CLAMP, False)
    affine_coupling_backward(*grads, x, params, CLAMP, False)
    assert torch.equal(x, before[0])
    assert torch.equal(params, before[1])
