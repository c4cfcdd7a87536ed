"""The operators of affine couplings as torch sees them: registration, derivatives, compilation."""

import functools

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from simcore._ops.coupling import affine_coupling, affine_coupling_backward
from support import tolerance
from support.cases import HALVES
from support.couplings import CLAMP, entries, formula
from support.operators import opcheck

DIRECTIONS = pytest.mark.parametrize("inverse", [False, True])
SHAPES = pytest.mark.parametrize("shape", [(4, 3), (2, 3, 5)], ids=str)


def leaves(shape, dtype=torch.float64):
    return [tensor.requires_grad_() for tensor in entries(shape, dtype)]


def cotangents(shape, dtype=torch.float64):
    generator = torch.Generator().manual_seed(3)
    return [
        torch.randn(s, generator=generator, dtype=dtype, requires_grad=True)
        for s in (shape, shape[:-1])
    ]


@DIRECTIONS
@pytest.mark.parametrize(
    ("dtype", "shape"), [(torch.float32, (2, 3, 5)), (torch.float64, (4, 3))], ids=str
)
def test_opcheck(dtype, shape, inverse):
    x, params = leaves(shape, dtype)
    whole = inverse and dtype == torch.float64
    opcheck(affine_coupling.default, (x, params, CLAMP, inverse), whole)
    arguments = (*cotangents(shape, dtype), x, params, CLAMP, inverse)
    opcheck(affine_coupling_backward.default, arguments, whole)


@DIRECTIONS
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_opcheck_halves(dtype, inverse):
    # float32 results of half-precision inputs: gradients are cast by whoever asks for them, which
    # opcheck does not.
    opcheck(affine_coupling.default, (*entries((4, 3), dtype), CLAMP, inverse), whole=False)


@DIRECTIONS
@SHAPES
def test_gradcheck_and_gradgradcheck(shape, inverse):
    def function(x, params):
        return affine_coupling(x, params, CLAMP, inverse)

    assert torch.autograd.gradcheck(function, leaves(shape))
    assert torch.autograd.gradgradcheck(function, leaves(shape))


@DIRECTIONS
@SHAPES
def test_gradcheck_of_the_backward_operator(shape, inverse):
    """Every argument on its own, also where gradgradcheck of the whole would have them cancel."""

    def function(grad, grad_log_det, kept, params):
        return affine_coupling_backward(grad, grad_log_det, kept, params, CLAMP, inverse)

    inputs = [*cotangents(shape), *leaves(shape)]
    assert torch.autograd.gradcheck(function, inputs)


@DIRECTIONS
def test_gradient_of_one_result_alone(inverse):
    for index in (0, 1):
        x, params = leaves((5, 7))
        got, want = (
            torch.autograd.grad(
                f(x, params, CLAMP, inverse)[index].sum(), [x, params], allow_unused=True
            )
            for f in (affine_coupling, formula)
        )
        for one, other in zip(got, want, strict=True):
            other = torch.zeros_like(one) if other is None else other
            tolerance.assert_close(one, other, torch.float64)


@DIRECTIONS
def test_gradient_of_one_input_alone(inverse):
    for index in (0, 1):
        inputs, plain = entries((5, 7)), entries((5, 7))
        inputs[index].requires_grad_()
        plain[index].requires_grad_()
        affine_coupling(*inputs, CLAMP, inverse)[0].sum().backward()
        formula(*plain, CLAMP, inverse)[0].sum().backward()
        tolerance.assert_close(inputs[index].grad, plain[index].grad, torch.float64)
        assert inputs[1 - index].grad is None


def test_mixed_dtypes_get_gradients_of_their_own():
    x, params = entries((5, 7), torch.float32)
    x.requires_grad_()
    params = params.bfloat16().requires_grad_()
    y, log_det = affine_coupling(x, params, CLAMP, False)
    (y.sum() + log_det.sum()).backward()
    assert (y.dtype, x.grad.dtype, params.grad.dtype) == (
        torch.float32,
        torch.float32,
        torch.bfloat16,
    )


@DIRECTIONS
def test_fake_tensors_give_shapes_without_computing(inverse):
    with torch._subclasses.FakeTensorMode():
        x, params = torch.empty(2, 5, 3, dtype=torch.bfloat16), torch.empty(2, 5, 6).double()
        y, log_det = affine_coupling(x, params, CLAMP, inverse)
        assert (y.shape, log_det.shape) == ((2, 5, 3), (2, 5))
        assert y.dtype == log_det.dtype == torch.float64


@DIRECTIONS
def test_compiles_whole(inverse):
    def loss(x, params):
        y, log_det = affine_coupling(x, params.tanh(), CLAMP, inverse)
        return y.square().sum() - log_det.sum()

    torch.compiler.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    inputs = leaves((2, 9, 33), torch.float32)
    want, got = (torch.autograd.grad(f(*inputs), inputs) for f in (loss, compiled))
    for one, other in zip(got, want, strict=True):
        tolerance.assert_same(one, other, torch.float32)


@DIRECTIONS
@SHAPES
def test_checkpointed_activations_are_computed_again(shape, inverse):
    """Unpacking what was saved runs, and records, the forward pass a second time."""

    def gradients(run):
        inputs = leaves(shape)
        y, log_det = run(lambda *t: affine_coupling(*t, CLAMP, inverse), *inputs)
        return torch.autograd.grad(y.sum() + log_det.sum(), inputs)

    again = gradients(functools.partial(checkpoint, use_reentrant=False))
    for one, other in zip(again, gradients(lambda f, *t: f(*t)), strict=True):
        assert torch.equal(one, other)
