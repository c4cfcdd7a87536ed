"""Invertible networks: the identity, inverses, log-determinants, batches, reversible training."""

from itertools import pairwise

import pytest
import torch
from torch.nn.functional import mse_loss

from simcore.nn import ACTIVATIONS, AffineCoupling, BatchedMLP, CouplingINN
from support import tolerance
from support.cases import DTYPES

MIXINGS = pytest.mark.parametrize("mixing", ["none", "permutation"])
DIMS = (2, 3, 8, 33)


def network(dim=8, n_blocks=4, hidden=16, batch=1, *, dtype=torch.float64, seed=0, **options):
    """A random map, not the identity, unless the options say so."""
    torch.manual_seed(seed)
    return CouplingINN(dim, n_blocks, hidden, batch, **{"output_gain": 1.0, **options}).to(dtype)


def rows(*shape, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def trained(inn, x, y, steps=30):
    """Losses; each map of a batch takes the steps that it would take alone."""
    optimizer = torch.optim.Adam(inn.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = mse_loss(inn(x), y)
        (inn.batch * loss).backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@MIXINGS
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", DIMS)
def test_starts_at_the_identity(dim, dtype, mixing):
    inn = CouplingINN(dim, 5, 16, mixing=mixing).to(dtype)
    x = rows(20, dim, dtype=dtype)
    assert torch.equal(inn(x), x)
    assert torch.equal(inn.inverse(x), x)
    assert torch.equal(inn.log_abs_det(x), torch.zeros(20, dtype=dtype))


@MIXINGS
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("after_training", [False, True])
def test_inverse_of_forward_is_the_input(after_training, dim, dtype, mixing):
    inn, x = network(dim, 6, mixing=mixing, dtype=dtype), rows(40, dim, dtype=dtype)
    if after_training:
        with torch.no_grad():
            y = network(dim, 6, dtype=dtype, seed=1)(x)
        losses = trained(inn, x, y)
        assert losses[-1] < losses[0]
    with torch.no_grad():
        tolerance.assert_inverse(inn.inverse(inn(x)), x, dtype)
        tolerance.assert_inverse(inn(inn.inverse(x)), x, dtype)
        assert (inn(x) - x).abs().max() > tolerance.CHANGE


@MIXINGS
@pytest.mark.parametrize("dim", DIMS)
def test_log_determinant_is_that_of_automatic_differentiation(dim, mixing):
    inn, x = network(dim, 5, mixing=mixing), rows(6, dim)
    with torch.no_grad():
        y, log_abs_det = inn.forward_and_log_abs_det(x)
        assert torch.equal(y, inn(x))
        assert torch.equal(log_abs_det, inn.log_abs_det(x))
    for row, got in zip(x, log_abs_det, strict=True):
        jacobian = torch.autograd.functional.jacobian(lambda r: inn(r[None])[0], row)
        tolerance.assert_close(got, torch.linalg.slogdet(jacobian).logabsdet, torch.float64)


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("dim", DIMS)
def test_one_coupling_changes_one_half(dim, flip):
    torch.manual_seed(0)
    coupling = AffineCoupling(dim, 16, flip=flip, output_gain=1.0).double()
    x = rows(9, dim)
    with torch.no_grad():
        y = coupling(x)
        changed = (y != x).all(dim=0)
        assert changed.tolist() == [(i < dim - dim // 2) == flip for i in range(dim)]
        tolerance.assert_inverse(coupling.inverse(y), x, torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda r: coupling(r[None])[0], x[0])
    want = torch.linalg.slogdet(jacobian).logabsdet
    tolerance.assert_close(coupling.log_abs_det(x)[0], want, torch.float64)


def test_the_clamp_bounds_the_log_determinant():
    inn = network(7, 2, clamp=0.25)
    for layer in inn.layers:
        layer.conditioner.head.bias.data.fill_(100.0)
    log_abs_det = inn.log_abs_det(rows(50, 7)).detach()
    tolerance.assert_same(log_abs_det, torch.full((50,), 7 * 0.25), torch.float64)


def test_permutations_differ_and_come_with_the_state():
    inn = network(16, 4, mixing="permutation")
    orders = [layer.order for layer in inn.layers if hasattr(layer, "order")]
    assert len(orders) == 5
    assert not any(torch.equal(a, b) for a, b in pairwise(orders))
    other = network(16, 4, mixing="permutation", seed=9)
    x = rows(5, 16)
    fresh = CouplingINN(16, 4, 16, mixing="permutation", seed=1).double()
    fresh.load_state_dict(inn.state_dict())
    with torch.no_grad():
        assert torch.equal(fresh(x), inn(x))
        assert torch.equal(fresh.inverse(x), inn.inverse(x))
        assert not torch.equal(other(x), inn(x))


@MIXINGS
@pytest.mark.parametrize("reversible", [False, True])
def test_a_batch_is_independent_maps(reversible, mixing):
    inn = network(7, 4, batch=3, mixing=mixing, reversible=reversible)
    x, y = rows(3, 30, 7), rows(3, 30, 7, seed=1)
    maps = inn.unbatch()
    assert [m.batch for m in maps] == [1, 1, 1]
    losses = trained(inn, x, y, steps=5)
    apart = [trained(m, x[i], y[i], steps=5) for i, m in enumerate(maps)]
    for step, loss in enumerate(losses):
        mean = sum(losses_of_one[step] for losses_of_one in apart) / 3
        assert loss == pytest.approx(mean, rel=tolerance.TRAINED_TOGETHER)
    with torch.no_grad():
        together, log_abs_det = inn.forward_and_log_abs_det(x)
        for i, one in enumerate(maps):
            tolerance.assert_trained_together(together[i], one(x[i]))
            tolerance.assert_trained_together(log_abs_det[i], one.log_abs_det(x[i]))
            tolerance.assert_inverse(one.inverse(one(x[i])), x[i], torch.float64)


def test_one_map_takes_rows_with_and_without_a_batch():
    inn, x = network(), rows(9, 8)
    assert torch.equal(inn(x[None]), inn(x)[None])
    assert torch.equal(inn.log_abs_det(x[None]), inn.log_abs_det(x)[None])


def test_other_layouts_of_the_input():
    inn, x = network(), rows(9, 8)
    wide = rows(18, 24)
    wide[::2, ::3] = x
    for same in (x.T.contiguous().T, wide[::2, ::3]):
        assert same.stride() != x.stride()
        tolerance.assert_same(inn(same).detach(), inn(x).detach(), torch.float64)


def gradients(inn, x, weights, inverse):
    x = x.clone().requires_grad_()
    run = inn.inverse_and_log_abs_det if inverse else inn.forward_and_log_abs_det
    y, log_abs_det = run(x)
    loss = (y * weights[0]).sum() + (log_abs_det * weights[1]).sum()
    return torch.autograd.grad(loss, [x, *inn.parameters()])


@MIXINGS
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("batch", [1, 2])
def test_reversible_gradients_equal_the_plain_ones(batch, inverse, dtype, mixing):
    inn = network(7, 5, batch=batch, dtype=dtype, mixing=mixing, output_gain=0.5)
    x = rows(batch, 30, 7, dtype=dtype)
    weights = rows(batch, 30, 7, dtype=dtype, seed=1), rows(batch, 30, dtype=dtype, seed=2)
    want = gradients(inn, x, weights, inverse)
    inn.reversible = True
    for got, plain in zip(gradients(inn, x, weights, inverse), want, strict=True):
        tolerance.assert_recomputed(got, plain, dtype)


def test_reversible_gradients_with_frozen_parameters():
    inn = network(6, 3)
    inn.layers[1].conditioner.trunk[0].weight.requires_grad_(False)
    x, y = rows(20, 6), rows(20, 6, seed=1)
    found = []
    for reversible in (False, True):
        inn.reversible = reversible
        inn.zero_grad()
        mse_loss(inn(x), y).backward()
        found.append([p.grad for p in inn.parameters()])
    for plain, got in zip(*found, strict=True):
        assert (plain is None) == (got is None)
        if plain is not None:
            tolerance.assert_recomputed(got, plain, torch.float64)


def test_reversible_gradients_under_autocast():
    inn = network(8, 4, dtype=torch.float32, output_gain=0.5)
    x, y = rows(40, 8, dtype=torch.float32), rows(40, 8, dtype=torch.float32, seed=1)
    found = []
    for reversible in (False, True):
        inn.reversible = reversible
        inn.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            out = inn(x)
        assert out.dtype == torch.float32
        mse_loss(out, y).backward()
        found.append(torch.cat([p.grad.flatten() for p in inn.parameters()]))
    difference = (found[1] - found[0]).norm() / found[0].norm()
    assert difference <= tolerance.RECOMPUTED_BFLOAT16
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        tolerance.assert_inverse(inn.inverse(inn(x)), x, torch.float32)


def test_reversible_has_no_second_derivative_and_says_so():
    inn = network(reversible=True)
    x = rows(5, 8).requires_grad_()
    (grad,) = torch.autograd.grad(inn(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


@MIXINGS
def test_gradcheck_and_gradgradcheck(mixing):
    inn = network(3, 2, 4, depth=1, mixing=mixing, activation="tanh")
    x = rows(3, 3).requires_grad_()
    assert torch.autograd.gradcheck(inn.forward_and_log_abs_det, x)
    assert torch.autograd.gradgradcheck(inn.forward_and_log_abs_det, x)


def test_bfloat16_parameters_keep_rows_in_float32():
    inn, x = network(8, 4, dtype=torch.bfloat16), rows(20, 8, dtype=torch.bfloat16)
    with torch.no_grad():
        y = inn(x)
    assert y.dtype == torch.float32
    inn.zero_grad()
    inn(x).sum().backward()
    assert all(p.grad.isfinite().all() and p.grad.dtype == torch.bfloat16 for p in inn.parameters())


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("depth", [1, 3])
def test_width_depth_and_activation_arrive(depth, activation):
    torch.manual_seed(0)
    mlp = BatchedMLP(3, 5, 2, depth=depth, activation=activation).double()
    assert [tuple(p.shape) for p in mlp.trunk.parameters() if p.ndim == 3] == [
        (1, 3, 5),
        *[(1, 5, 5)] * (depth - 1),
    ]
    x = rows(1, 4, 3)
    want = x
    for layer in mlp.trunk:
        want = ACTIVATIONS[activation](want @ layer.weight + layer.bias[:, None])
    want = want @ mlp.head.weight + mlp.head.bias[:, None]
    tolerance.assert_same(mlp(x).detach(), want.detach(), torch.float64)
    inn = CouplingINN(6, 2, 5, depth=depth, activation=activation)
    conditioner = inn.layers[0].conditioner
    assert (len(conditioner.trunk), conditioner.activation) == (depth, activation)


def test_same_seed_same_result():
    first, second = (trained(network(), rows(30, 8), rows(30, 8, seed=1)) for _ in range(2))
    assert first == second
