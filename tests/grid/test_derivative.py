"""Gradients of the grids that people train with, and the warning of those that have none."""

import warnings

import pytest
import torch

import simcore
from simcore import cka_grid, distance_correlation_grid, procrustes_grid, rsa_grid, svcca_grid
from simcore._grid.derivative import root
from simcore._ops.hsic import hsic_terms
from support import tolerance
from support.cases import Case, layers

GRIDS = {
    "rbf": ("cka_grid", {"kernel": "rbf"}),
    "rbf-unbiased": ("cka_grid", {"kernel": "rbf", "estimator": "unbiased", "bandwidth": 0.7}),
    "hsic-rbf": ("hsic_grid", {"kernel": "rbf"}),
    "distance-correlation": ("distance_correlation_grid", {}),
    "rsa": ("rsa_grid", {}),
    "procrustes": ("procrustes_grid", {}),
    "procrustes-distance": ("procrustes_grid", {"form": "distance"}),
    "procrustes-angular": ("procrustes_grid", {"form": "angular"}),
    "size-and-shape": ("procrustes_grid", {"form": "size-and-shape"}),
    "cosine": ("cosine_grid", {}),
    "angular": ("cosine_grid", {"form": "angular"}),
}
EVERY = pytest.mark.parametrize("name", GRIDS)


def grid_of(name):
    function, options = GRIDS[name]
    return lambda x, y=None, **more: getattr(simcore, function)(x, y, **options, **more)


def inputs(name, n=7, widths=(3, 4, 3), dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    if GRIDS[name][0] == "cosine_grid":
        widths = widths[:1] * 3
    return [torch.randn(n, p, generator=generator, dtype=torch.float64).to(dtype) for p in widths]


def with_offset(layer):
    return 1.5 * layer + 10 * torch.arange(1.0, layer.shape[1] + 1)


def with_equal_rows(layer):
    return layer[[0, 1, 2, 1, 4, 5, 2]]


def assert_gradients(function, leaves, eps=1e-6, every_entry=False):
    leaves = tuple(leaf.clone().requires_grad_() for leaf in leaves)
    # Equal rows are a kink, where values are known to the root of the rounding.
    limits = {"atol": 1e-6, "rtol": 1e-4} if eps < 1e-5 else {"atol": 1e-5, "rtol": 1e-3}
    fast = not every_entry
    assert torch.autograd.gradcheck(function, leaves, eps=eps, fast_mode=fast, **limits)


CHANGES = {"plain": lambda layer: layer, "offset": with_offset, "equal rows": with_equal_rows}


@EVERY
@pytest.mark.parametrize("change", CHANGES)
def test_gradients_of_both_sides(name, change):
    grid, x = grid_of(name), [CHANGES[change](layer) for layer in inputs(name)]
    eps = 1e-4 if change == "equal rows" else 1e-6
    whole = change == "plain"
    assert_gradients(lambda a, b, c: grid({"a": a, "b": b}, [c]), x, eps, every_entry=whole)
    assert_gradients(lambda a, b: grid([a, b]), x[:2], eps)


@EVERY
def test_gradients_of_layers_wider_than_their_rows(name):
    x = inputs(name, 5, (7, 4, 6))
    assert_gradients(lambda a, b, c: grid_of(name)([a], [b, c]), x)


@EVERY
def test_even_and_odd_numbers_of_rows_and_stacked_layers(name):
    stacked = torch.stack(inputs(name, 6, (3, 3, 3)))
    assert_gradients(lambda x: grid_of(name)(x), [stacked])


@EVERY
def test_float32_gradients_are_those_of_float64(name):
    def gradients(dtype):
        leaves = [leaf.requires_grad_() for leaf in inputs(name, 30, (5, 8, 6), dtype)]
        value = grid_of(name)(leaves[:2], leaves[2:])
        assert torch.equal(
            value, grid_of(name)([t.detach() for t in leaves[:2]], leaves[2:]).detach()
        )
        found = torch.autograd.grad(value.square().sum(), leaves)
        assert {gradient.dtype for gradient in found} == {dtype}
        return found

    exact = [leaf.float().double() for leaf in inputs(name, 30, (5, 8, 6))]
    leaves = [leaf.requires_grad_() for leaf in exact]
    wanted = torch.autograd.grad(grid_of(name)(leaves[:2], leaves[2:]).square().sum(), leaves)
    for got, want in zip(gradients(torch.float32), wanted, strict=True):
        torch.testing.assert_close(
            got.double(), want, rtol=1e-4, atol=1e-4 * float(want.abs().max())
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["rbf", "rbf-unbiased"])
@pytest.mark.parametrize("rows", [12, 30])
def test_rows_at_equal_distances_share_the_derivative_of_the_median(name, rows, dtype):
    """Features of few values, such as pixels: scaling a layer by a number moves no value."""
    for seed, (width, levels) in enumerate([(3, 2), (12, 4), (40, 2)] * 5):
        generator = torch.Generator().manual_seed(seed)
        pixels = torch.randint(0, levels, (2, rows, width), generator=generator).double() / 255
        leaves = [layer.to(dtype).requires_grad_() for layer in pixels + 0.3]
        (found,) = torch.autograd.grad(grid_of(name)(leaves[:1], leaves[1:]).sum(), leaves[:1])
        exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
        (wanted,) = torch.autograd.grad(grid_of(name)(exact[:1], exact[1:]).sum(), exact[:1])
        size = float(wanted.abs().max())
        torch.testing.assert_close(found.double(), wanted, rtol=0, atol=1e-4 * size)
        centred = exact[0].detach() - exact[0].detach().mean(0)
        along = (found.double() * centred).sum().abs()
        assert along <= 1e-5 * found.double().norm() * centred.norm()


@pytest.mark.parametrize("form", ["similarity", "distance", "angular", "size-and-shape"])
def test_gradients_of_procrustes_near_equality_are_those_of_float64(form):
    generator = torch.Generator().manual_seed(0)
    x, noise = torch.randn(2, 100, 16, generator=generator, dtype=torch.float64)
    for size in (1e-2, 1e-4, 1e-5):
        near = [x.float(), (x + size * noise).float()]
        leaves = [leaf.clone().requires_grad_() for leaf in near]
        exact = [leaf.double().requires_grad_() for leaf in near]
        found = torch.autograd.grad(procrustes_grid(*([t] for t in leaves), form=form), leaves)
        wanted = torch.autograd.grad(by_torch(*exact, form), exact)
        for got, want in zip(found, wanted, strict=True):
            error = (got.double() - want).norm() / want.norm()
            assert error < (1e-6 if size > 1e-5 else 1e-4), (size, float(error))


def by_torch(x, y, form):
    """The formulas of the docstring, differentiated by torch."""
    x, y = x - x.mean(0), y - y.mean(0)
    a, b = x.norm(), y.norm()
    nuclear = torch.linalg.svdvals(x.T @ y).sum()
    if form == "size-and-shape":
        return (a**2 + b**2 - 2 * nuclear).sqrt()
    s = nuclear / a / b
    return {"similarity": s, "distance": (2 - 2 * s).sqrt(), "angular": s.arccos()}[form]


@EVERY
def test_an_undefined_layer_spoils_no_gradient(name):
    """Rows that are all equal, or zeros: the layer has no value, and a gradient of 0."""
    x = inputs(name)
    x[0] = torch.zeros_like(x[0])
    leaves = [leaf.requires_grad_() for leaf in x]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = grid_of(name)(leaves)
    found = torch.autograd.grad(value.nansum(), leaves)
    alone = torch.autograd.grad(grid_of(name)(leaves[1:]).sum(), leaves[1:])
    assert torch.equal(found[0].abs().nan_to_num(torch.inf) < torch.inf, torch.ones_like(x[0]) > 0)
    if GRIDS[name][1].get("form") != "size-and-shape":  # which has a distance to a single point
        assert not found[0].any()
        for got, want in zip(found[1:], alone, strict=True):
            torch.testing.assert_close(got, want)


# HSIC is not normalised: it has a gradient there.
@pytest.mark.parametrize("name", [name for name in GRIDS if name != "hsic-rbf"])
def test_a_layer_beside_itself_has_no_gradient_there(name):
    (x,) = inputs(name)[:1]
    leaf = x.requires_grad_()
    for grid in (grid_of(name)([leaf]), grid_of(name)([leaf], [leaf])):
        (found,) = torch.autograd.grad(grid.sum(), [leaf])
        tolerance.assert_same(found + 1, torch.ones_like(found), torch.float64)


@pytest.mark.parametrize("name", ["rbf", "rbf-unbiased", "distance-correlation", "cosine"])
def test_gradients_do_not_depend_on_max_memory(name):
    def gradients(max_memory):
        leaves = [leaf.requires_grad_() for leaf in inputs(name, 40, (6, 9, 5))]
        value = grid_of(name)(leaves[:2], leaves[2:], max_memory=max_memory)
        return torch.autograd.grad(value.sum(), leaves)

    for got, want in zip(gradients(99_000), gradients(None), strict=True):
        tolerance.assert_same(got, want, torch.float64)


def test_the_median_of_many_rows_is_that_of_a_sample():
    """Beyond 4096 rows, the width of the RBF kernel depends on every second row.

    A step must not change which pair of the two million is in the middle.
    """
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4097, 1, generator=generator, dtype=torch.float64).exp()
    move = torch.randn(4097, 1, generator=generator, dtype=torch.float64)

    def self_hsic(x):
        return hsic_terms([x], [], "rbf", "biased", 1.0, "auto", 0)[1].sum()

    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(self_hsic(leaf), [leaf])
    slope = (self_hsic(x + 1e-8 * move) - self_hsic(x - 1e-8 * move)) / 2e-8
    torch.testing.assert_close((gradient * move).sum(), slope, rtol=1e-3, atol=0)


def test_the_derivative_of_a_root_is_0_at_0():
    """And below 0, where values are rounding and the root is 0."""
    values = torch.tensor([-1e-20, 0.0, 4.0], dtype=torch.float64, requires_grad=True)
    taken = root(values)
    assert taken.tolist() == [0.0, 0.0, 2.0]
    (found,) = torch.autograd.grad(taken.sum(), [values])
    assert found.tolist() == [0.0, 0.0, 0.25]


def test_a_student_learns_from_its_teacher():
    """The loss that returned no gradient in silence."""
    generator = torch.Generator().manual_seed(0)
    teacher = torch.randn(50, 6, generator=generator)
    for name in ("procrustes", "rsa", "distance-correlation", "rbf"):
        student = torch.randn(50, 4, generator=generator).requires_grad_()
        optimizer = torch.optim.Adam([student], 0.05)
        losses = []
        for _ in range(10):
            loss = 1 - grid_of(name)([student], [teacher]).squeeze()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0] - 0.05


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("procrustes", "procrustes_grid: wanted create_graph=False"),
        ("rsa", "rsa_grid: wanted create_graph=False"),
        ("cosine", "cosine_grid: wanted create_graph=False"),
        ("rbf", "kernel: wanted 'linear' for a second derivative, .* got 'rbf'"),
        ("distance-correlation", "kernel: wanted 'linear' for a second .* got 'distance'"),
    ],
)
def test_second_derivatives_are_refused(name, message):
    """torch would take them to be 0."""
    x = [leaf.requires_grad_() for leaf in inputs(name)]
    value = grid_of(name)(x[:1], x[1:2]).sum()
    with pytest.raises(RuntimeError, match=message):
        torch.autograd.grad(value, x[:1], create_graph=True)


def test_grids_without_a_derivative_say_so_once():
    x = [layer.requires_grad_() for layer in layers(Case(20, widths=(3, 4)))]
    with pytest.warns(UserWarning, match="svcca_grid") as caught:
        grid = svcca_grid([layer.detach() for layer in x], x)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert str(caught[0].message) == (
        "svcca_grid: Y[0] requires a gradient, and gets none, because this call has no derivative; "
        "grids with one: cka_grid, hsic_grid, cosine_grid, distance_correlation_grid, "
        "procrustes_grid (of layers), rsa_grid (pearson); detached layers, or torch.no_grad(), end "
        "this warning"
    )
    assert not grid.requires_grad
    for refused in (
        lambda: rsa_grid(x, correlation="spearman"),
        lambda: simcore.stats.permutation_test(x, permutations=3, measure="svcca"),
    ):
        with pytest.warns(UserWarning, match="requires a gradient") as caught:
            refused()
        assert len(caught) == 1


def test_nothing_is_said_where_no_gradient_is_asked_for():
    x = [layer.requires_grad_() for layer in layers(Case(20, widths=(3, 4)))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with torch.no_grad():
            svcca_grid(x)
        svcca_grid([layer.detach() for layer in x])
        for grid in (cka_grid, procrustes_grid, rsa_grid, distance_correlation_grid):
            assert grid(x).requires_grad
