"""Forward-mode differentiation and the transforms of torch.func, of every public function.

Each gives the right derivative or refuses; none gives zeros.
"""

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils._pytree import tree_leaves

from simcore import MinibatchCKA, cka_grid, hsic_grid, nn, rsa_grid
from simcore._ops.coupling import affine_coupling
from support import naive, tolerance
from support.cases import DTYPES, ESTIMATORS, Case
from support.cases import layers as draw
from support.cka import X_CASE, Y_CASE, as_function, leaves
from support.couplings import CLAMP, entries, formula
from support.traced import ROWS, Row, layers

CASES = [
    pytest.param(row, id=f"{name}-{i}") for name, rows in ROWS.items() for i, row in enumerate(rows)
]
EVERY = pytest.mark.parametrize("row", CASES)
GRIDS = pytest.mark.parametrize("grid", [cka_grid, hsic_grid])
# Grids with a gradient alone refuse all other derivatives in these words.
REVERSE_ALONE = "reverse mode alone"
# Sums of MinibatchCKA are changed in place, which torch.func lets no function do.
IN_PLACE = "mutate a captured Tensor"
CROSS = pytest.mark.parametrize("cross", [False, True])
ESTIMATED = pytest.mark.parametrize("estimator", ESTIMATORS)


def total(row: Row):
    """A sum of sines of everything that a row gives, a function of its inputs."""
    return lambda *inputs: sum(
        t.sin().sum() for t in tree_leaves(row.function(*inputs)) if t.is_floating_point()
    )


def slope(row: Row, inputs, tangents):
    """The derivative of `total` along tangents in reverse mode; None if there is none."""
    value = total(row)(*inputs)
    if not value.requires_grad:
        return None
    try:
        grads = torch.autograd.grad(value, inputs, allow_unused=True, materialize_grads=True)
    except RuntimeError:
        return None
    return sum((grad * tangent).sum() for grad, tangent in zip(grads, tangents, strict=True))


def forward_slope(row: Row, inputs, tangents):
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(x.detach(), t) for x, t in zip(inputs, tangents, strict=True)]
        return forward_ad.unpack_dual(total(row)(*duals)).tangent


@EVERY
def test_forward_mode_agrees_with_reverse_mode_or_refuses(row):
    inputs = row.inputs(24)
    tangents = [torch.randn_like(x) for x in inputs]
    want = slope(row, inputs, tangents)
    if want is None:
        with pytest.raises(RuntimeError, match="derivative"):
            forward_slope(row, inputs, tangents)
        return
    try:
        got = forward_slope(row, inputs, tangents)
    except RuntimeError as error:
        if REVERSE_ALONE not in str(error):
            raise
        return
    tolerance.assert_close(got, want, torch.float64)


@EVERY
def test_gradients_of_torch_func_agree_or_are_refused(row):
    inputs = row.inputs(24)
    value, places = total(row), tuple(range(len(inputs)))

    def transformed():
        return torch.func.grad(value, places)(*(x.detach() for x in inputs))

    ones = [torch.ones_like(x) for x in inputs]
    if slope(row, inputs, ones) is None:
        with pytest.raises(RuntimeError, match=f"derivative|{IN_PLACE}"):
            transformed()
        return
    want = torch.autograd.grad(value(*inputs), inputs, allow_unused=True, materialize_grads=True)
    try:
        got = transformed()
    except RuntimeError as error:
        if not any(words in str(error) for words in (IN_PLACE, REVERSE_ALONE)):
            raise
        return
    for one, other in zip(got, want, strict=True):
        tolerance.assert_close(one, other, torch.float64)


def test_a_refusal_names_the_function_and_the_layer():
    a, b, c = (t.detach() for t in layers(24))
    wanted = (
        rf"X\[1\]: wanted a detached tensor, because rsa_grid has a derivative in {REVERSE_ALONE}"
    )
    with pytest.raises(NotImplementedError, match=wanted):
        torch.func.jvp(lambda b: rsa_grid([a, b], [c]), (b,), (b,))
    with pytest.raises(NotImplementedError, match=wanted):
        torch.func.grad(lambda b: rsa_grid([a, b], [c]).sum())(b)


def test_what_is_detached_is_not_refused():
    a, _, c = (t.detach() for t in layers(24))

    def loss(a):
        assert rsa_grid([a.detach()], [c]).equal(rsa_grid([torch.clone(a.detach())], [c]))
        return cka_grid([a], [c]).sum()

    torch.func.jvp(loss, (a,), (a,))
    torch.func.grad(loss)(a)


def test_updates_refuse_what_their_sums_would_drop():
    x = torch.randn(8, 3)
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match=r"X_batch\[0\]"):
        MinibatchCKA().update([forward_ad.make_dual(x, x)])


@GRIDS
@ESTIMATED
@CROSS
def test_gradcheck_forward(cross, estimator, grid):
    x = leaves(X_CASE)
    inputs = x + (leaves(Y_CASE, seed=1) if cross else [])
    function = as_function(grid, len(x) if cross else None, estimator=estimator)
    assert torch.autograd.gradcheck(
        function, inputs, check_forward_ad=True, check_backward_ad=False, fast_mode=True
    )
    assert torch.autograd.gradgradcheck(
        function,
        inputs,
        fast_mode=True,
        check_fwd_over_rev=True,
        check_rev_over_rev=False,
        check_undefined_grad=False,
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("offset", [0.0, 10.0, 1000.0])
@ESTIMATED
@CROSS
def test_tangents_agree_with_automatic_differentiation(cross, estimator, offset, dtype):
    x = draw(Case(40, offset=offset, widths=(9, 1, 20)), dtype)
    y = draw(Case(40, widths=(4, 50)), dtype, seed=1) if cross else []
    split = len(x) if cross else None

    def tangents(module, dtype):
        layers = [t.to(dtype) for t in x + y]
        along = [torch.randn(t.shape, generator=torch.Generator().manual_seed(2)) for t in layers]
        function = as_function(module.cka_grid, split, estimator=estimator)
        return torch.func.jvp(function, (*layers,), (*(t.to(dtype) for t in along),))[1]

    import simcore

    got, rough = tangents(simcore, dtype), tangents(naive, dtype)
    tolerance.assert_close(got, tangents(naive, torch.float64), dtype, rough)


@ESTIMATED
def test_some_layers_have_tangents(estimator):
    x, y = draw(X_CASE), draw(Y_CASE, seed=1)
    along = torch.ones_like(x[1]).cumsum(0)

    def function(grid):
        return lambda b: grid([x[0], b, x[2]], y, estimator=estimator)

    got, want = (
        torch.func.jvp(function(grid), (x[1],), (along,))[1] for grid in (cka_grid, naive.cka_grid)
    )
    tolerance.assert_close(got, want, torch.float64)
    assert got[[0, 2]].abs().max() == 0


@pytest.mark.parametrize("kind", ["jacfwd", "jacrev", "hessian"])
@ESTIMATED
def test_transforms_of_torch_func(estimator, kind):
    a, b, c = (t.detach() for t in layers(8))

    def function(grid):
        return lambda a: grid([a, a.sin() + b.sum()], [c], estimator=estimator).square().sum()

    transform = getattr(torch.func, kind)
    got, want = (transform(function(grid))(a) for grid in (cka_grid, naive.cka_grid))
    tolerance.assert_close(got, want, torch.float64)


def test_the_rbf_kernel_refuses():
    a, b, _ = (t.detach() for t in layers(24))
    with pytest.raises(RuntimeError, match=f"kernel: wanted 'linear' .*{REVERSE_ALONE}"):
        torch.func.jvp(lambda a: cka_grid([a], [b], kernel="rbf"), (a,), (a,))


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("kind", ["jacfwd", "jacrev", "hessian"])
def test_couplings_under_torch_func(kind, inverse):
    x, params = entries((2, 3))

    def function(coupling):
        def loss(x, params):
            y, log_det = coupling(x, params, CLAMP, inverse)
            return y.square().sum() + log_det.sin().sum()

        return getattr(torch.func, kind)(loss, (0, 1))(x, params)

    pairs = zip(tree_leaves(function(affine_coupling)), tree_leaves(function(formula)), strict=True)
    for got, want in pairs:
        tolerance.assert_close(got, want, torch.float64)


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("with_tangent", ["x", "params", "cotangent"])
def test_tangents_pass_through_the_backward_of_a_coupling(with_tangent, inverse):
    """A tangent of the cotangent alone has to come through, too."""

    def tangents(coupling):
        named = dict(zip(("x", "params"), entries((4, 3)), strict=True))
        named["cotangent"] = torch.tensor(2.0, dtype=torch.float64)
        leaf = {name: value.requires_grad_() for name, value in named.items()}
        with forward_ad.dual_level():
            value = leaf[with_tangent]
            dual = {**leaf, with_tangent: forward_ad.make_dual(value, value.detach().cos())}
            y, log_det = coupling(dual["x"], dual["params"], CLAMP, inverse)
            loss = dual["cotangent"] * (y.square().sum() + log_det.sum())
            grads = torch.autograd.grad(loss, [leaf["x"], leaf["params"]])
            return [forward_ad.unpack_dual(grad).tangent for grad in grads]

    for got, want in zip(tangents(affine_coupling), tangents(formula), strict=True):
        tolerance.assert_close(got, want, torch.float64)


@pytest.mark.parametrize("mixing", ["none", "permutation"])
def test_reversible_networks_have_all_derivatives(mixing):
    torch.manual_seed(0)
    inn = nn.CouplingINN(5, 3, 8, output_gain=1.0, reversible=True, mixing=mixing).double()
    x = torch.randn(4, 5, dtype=torch.float64)
    want = torch.autograd.functional.jacobian(inn, x)
    for jacobian in (torch.func.jacfwd(inn)(x), torch.func.jacrev(inn)(x)):
        tolerance.assert_close(jacobian, want, torch.float64)
