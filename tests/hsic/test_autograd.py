"""The operator as torch sees it: schema, fake kernel, derivatives, compilation."""

import numpy as np
import pytest
import torch

from simcore import cka_grid, hsic_grid
from simcore._ops.hsic_gradients import LinearHsic
from support import naive, tolerance
from support.cases import DTYPES, ESTIMATORS, KERNELS, Case, layers
from support.cka import X_CASE, Y_CASE, as_function, leaves
from support.operators import opcheck

hsic_terms = torch.ops.simcore.hsic_terms


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("cross", [False, True])
def test_opcheck(cross, dtype, estimator, kernel):
    # opcheck differentiates what requires a gradient; the RBF kernel has no derivative.
    make = leaves if kernel == "linear" else layers
    y = make(Y_CASE, dtype, seed=1) if cross else []
    arguments = (make(X_CASE, dtype), y, kernel, estimator, 1.0, "auto", 0)
    whole = cross and dtype == torch.float64 and estimator == "unbiased"
    opcheck(hsic_terms.default, arguments, whole)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("method", ["gram", "feature"])
@pytest.mark.parametrize("cross", [False, True])
def test_terms_are_hsic_and_both_self_hsics(cross, method, estimator):
    x, y = layers(X_CASE), layers(Y_CASE, seed=1) if cross else []
    xy, xx, yy = hsic_terms(x, y, "linear", estimator, 1.0, method, 0)
    y = y or x
    for got, want in [
        (xy, naive.hsic_grid(x, y, estimator=estimator)),
        (xx, naive.hsic_grid(x, estimator=estimator).diagonal()),
        (yy, naive.hsic_grid(y, estimator=estimator).diagonal()),
    ]:
        tolerance.assert_close(got, want, torch.float64)


@pytest.mark.parametrize("grid", [cka_grid, hsic_grid])
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("method", ["gram", "feature"])
@pytest.mark.parametrize("cross", [False, True])
def test_gradcheck_and_gradgradcheck(cross, method, estimator, grid):
    x = leaves(X_CASE)
    inputs = x + (leaves(Y_CASE, seed=1) if cross else [])
    split = len(x) if cross else None
    function = as_function(grid, split, estimator=estimator, method=method)
    assert torch.autograd.gradcheck(function, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_gradient_of_every_term(estimator):
    """cka_grid uses xy, xx and yy together; here each output has a cotangent of its own.

    Every entry of the Jacobian is checked.
    """

    def terms(*xy):
        return hsic_terms(list(xy[:3]), list(xy[3:]), "linear", estimator, 1.0, "auto", 0)

    inputs = leaves(X_CASE) + leaves(Y_CASE, seed=1)
    assert torch.autograd.gradcheck(terms, inputs)
    assert torch.autograd.gradgradcheck(terms, inputs)


def gradients(grid, x, y, weights, **options):
    """Gradients of a weighted sum over the grid, a cotangent without symmetry."""
    inputs = x + (y or [])
    return torch.autograd.grad((grid(x, y, **options) * weights).sum(), inputs)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("offset", [0.0, 10.0, 1000.0])
def test_gradients_agree_with_automatic_differentiation(offset, cross, dtype, estimator):
    case = Case(40, offset=offset, widths=(9, 1, 20))
    x = leaves(case, dtype)
    y = leaves(Case(40, widths=(4, 50)), dtype, seed=1) if cross else None
    shape = (len(x), len(y or x))
    weights = torch.from_numpy(np.random.default_rng(0).standard_normal(shape))
    got = gradients(cka_grid, x, y, weights, estimator=estimator)
    exact_x, exact_y = (
        None if side is None else [t.detach().double().requires_grad_() for t in side]
        for side in (x, y)
    )
    want = gradients(naive.cka_grid, exact_x, exact_y, weights, estimator=estimator)
    roughly = gradients(naive.cka_grid, x, y, weights, estimator=estimator)
    for one, reference, rough in zip(got, want, roughly, strict=True):
        assert one.dtype == dtype
        tolerance.assert_close(one, reference, dtype, rough)


def test_only_inputs_that_ask_get_gradients():
    x, y = layers(X_CASE), leaves(Y_CASE, seed=1)
    cka_grid(x, y).sum().backward()
    assert all(layer.grad is None for layer in x)
    assert all(layer.grad.abs().sum() > 0 for layer in y)
    assert not cka_grid(x).requires_grad


def test_gradients_that_nobody_asked_for_are_not_computed(monkeypatch):
    computed = []
    gradient = LinearHsic.gradient

    def counted(self, a, *arguments):
        computed.append(a)
        return gradient(self, a, *arguments)

    monkeypatch.setattr(LinearHsic, "gradient", counted)
    x, y = layers(X_CASE), layers(Y_CASE, seed=1)
    y[1].requires_grad_()
    cka_grid(x, y).sum().backward()
    assert computed == [len(x) + 1]


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("step", [1, 7, 40])
@pytest.mark.parametrize("columns", [1, 4, 20])
def test_gradients_do_not_depend_on_blocks(columns, step, dtype, estimator):
    x = layers(Case(40, offset=10.0, widths=(9, 1, 20)), dtype)
    rows = [slice(start, min(start + step, 40)) for start in range(0, 40, step)]
    weights = torch.from_numpy(np.random.default_rng(0).standard_normal(3))
    whole, by_blocks = (
        LinearHsic(x, estimator == "unbiased", blocks) for blocks in (None, (rows, columns))
    )
    for a, members in ((0, (0, 1, 2)), (1, (0, 1, 2)), (2, (2, 0))):
        got, want = (hsic.gradient(a, weights, members) for hsic in (by_blocks, whole))
        assert got.dtype == dtype
        tolerance.assert_same(got, want, dtype)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("cross", [False, True])
def test_gradients_do_not_depend_on_max_memory(cross, estimator):
    x = leaves(Case(2000, widths=(40, 30, 50)))
    y = leaves(Case(2000, widths=(60, 20)), seed=1) if cross else []
    options = {"method": "feature", "estimator": estimator}
    got, want = (
        torch.autograd.grad(cka_grid(x, y or None, max_memory=limit, **options).sum(), x + y)
        for limit in (2**20, None)
    )
    for one, other in zip(got, want, strict=True):
        tolerance.assert_same(one, other, torch.float64)


def test_gradients_of_many_cotangents_at_once():
    x = leaves(X_CASE)
    grid = cka_grid(x)
    cotangents = torch.eye(grid.numel(), dtype=torch.float64).reshape(-1, *grid.shape)
    got = torch.autograd.grad(grid, x, cotangents, is_grads_batched=True, retain_graph=True)
    for i, cotangent in enumerate(cotangents):
        want = torch.autograd.grad(grid, x, cotangent, retain_graph=True)
        for one, other in zip(got, want, strict=True):
            tolerance.assert_same(one[i] + 1, other + 1, torch.float64)


def test_a_tensor_that_is_two_layers_gets_both_gradients():
    shared = leaves(Case(7, widths=(3,)))[0]
    other = layers(Case(7, widths=(4,)), seed=1)[0]
    (got,) = torch.autograd.grad(hsic_grid([shared, other, shared])[0].sum(), shared)
    (want,) = torch.autograd.grad(naive.hsic_grid([shared, other, shared])[0].sum(), shared)
    tolerance.assert_close(got, want, torch.float64)


def test_self_similarity_has_no_gradient():
    x = leaves(X_CASE)
    cka_grid(x).diagonal().sum().backward()
    for layer in x:
        tolerance.assert_same(layer.grad + 1, torch.ones_like(layer), torch.float64)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_trains_a_map_towards_a_target(dtype, estimator):
    torch.manual_seed(0)
    x = layers(Case(64, widths=(12,)), dtype)[0]
    target = layers(Case(64, widths=(5,)), dtype, seed=1)
    linear = torch.nn.Linear(12, 6, dtype=dtype)
    optimizer = torch.optim.Adam(linear.parameters(), lr=0.05)
    seen = []
    for _ in range(25):
        optimizer.zero_grad()
        similarity = cka_grid([linear(x)], target, estimator=estimator).sum()
        (-similarity).backward()
        optimizer.step()
        seen.append(similarity.item())
    assert seen[-1] > seen[0] + 0.05
    assert np.isfinite(seen).all()


def cka_of_terms(x, y, estimator):
    xy, xx, yy = hsic_terms(x, y, "linear", estimator, 1.0, "auto", 0)
    return xy / torch.sqrt(xx[:, None] * yy[None, :])


@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
def test_compiles_whole(estimator):
    """The second number of rows compiles once more, with symbols for sizes."""
    torch.compiler.reset()
    compiled = torch.compile(cka_of_terms, fullgraph=True, backend="aot_eager")
    for n in (7, 9):
        x = leaves(Case(n, widths=(3, 1, 2)), torch.float32)
        y = leaves(Case(n, widths=(2, 4)), torch.float32, seed=1)
        got, want = compiled(x, y, estimator), cka_of_terms(x, y, estimator)
        tolerance.assert_same(got, want, torch.float32)
        got_grads, want_grads = (torch.autograd.grad(grid.sum(), x + y) for grid in (got, want))
        for one, other in zip(got_grads, want_grads, strict=True):
            tolerance.assert_same(one, other, torch.float32)


@pytest.mark.parametrize("kernel", KERNELS)
def test_fake_tensors_give_shapes_without_computing(kernel):
    with torch._subclasses.FakeTensorMode():
        x, y = [torch.empty(7, 3)] * 3, [torch.empty(7, 2)] * 2
        xy, xx, yy = hsic_terms(x, y, kernel, "biased", 1.0, "auto", 0)
    assert (xy.shape, xx.shape, yy.shape) == ((3, 2), (3,), (2,))
    assert {xy.dtype, xx.dtype, yy.dtype} == {torch.float64}


def test_a_constant_layer_leaves_the_others_gradients_alone():
    layers = [torch.randn(20, 4), torch.ones(20, 3), torch.randn(20, 5)]
    layers = [layer.requires_grad_() for layer in layers]
    with pytest.warns(UserWarning, match=r"X\[1\]"):
        grid = cka_grid(layers)
    grid.nansum().backward()
    alone = [layers[i].detach().clone().requires_grad_() for i in (0, 2)]
    cka_grid(alone).sum().backward()
    for with_constant, without in zip((layers[0], layers[2]), alone, strict=True):
        torch.testing.assert_close(with_constant.grad, without.grad)
    assert layers[1].grad.isfinite().all()


def test_autocast_does_not_reach_the_backward_pass():
    x = torch.randn(50, 6, requires_grad=True)
    y = torch.randn(50, 7)
    (plain,) = torch.autograd.grad(cka_grid([x], [y]).sum(), x)
    with torch.autocast("cpu", torch.bfloat16):
        (autocast,) = torch.autograd.grad(cka_grid([x], [y]).sum(), x)
    assert torch.equal(plain, autocast)
