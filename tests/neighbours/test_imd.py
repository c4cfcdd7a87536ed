"""Multi-scale intrinsic distance: exact values, quadrature against spectra, and the contract."""

import warnings
from functools import partial

import numpy as np
import pytest
import torch

from simcore import imd as module
from simcore import imd_estimate, imd_grid, neighbours, reference
from support.bad_inputs import ENTRIES, LAYERS, X, Y, assert_refused, rows
from support.cases import DTYPES, HALVES, Case, exact, layers, spread_out
from support.tolerance import HEAT_ESTIMATE

FLOAT64 = torch.float64
estimate = partial(imd_grid, probes=100)


def test_the_published_data_have_their_exact_value():
    """The data of Cloos et al. 2024; two codes estimated 12.48 and 12.29 for it, in units of 1e-6.

    By all eigenvalues of the definition it is 11.75.
    """
    random = np.random.RandomState(0)
    x, y = ([random.uniform(size=(30, 25))] for _ in range(2))
    value, error = imd_estimate(x, y)
    assert abs(1e6 * value.item() - 11.7475) < 1e-4
    assert error.item() == 0
    np.testing.assert_array_equal(imd_grid(x, y, seed=7), value)
    np.testing.assert_allclose(value, reference.imd_grid(x, y), rtol=1e-9)
    estimates, errors = imd_estimate(x, y, probes=5_000)
    assert 0 < errors.item() < 6e-6
    assert abs(estimates - value).item() < 5 * errors.item()


@pytest.mark.deep
def test_errors_are_those_over_seeds():
    """Layers are far apart: the maximum of near ones spreads more than the value at one place."""
    x, y = layers(Case(100, widths=(9,))), layers(Case(100, widths=(1,)), seed=1)
    found = [imd_estimate(x, y, probes=20, seed=seed) for seed in range(100)]
    values, errors = (torch.cat(kind).flatten() for kind in zip(*found, strict=True))
    assert 0.8 < float(errors.mean() / values.std()) < 1.25
    exact_value = float(imd_grid(x, y))
    assert abs(float(values.mean()) - exact_value) < 4 * float(values.std()) / 10


def test_rows_beyond_the_exact_ones_are_estimated(monkeypatch):
    x = layers(Case(60, widths=(2, 9)))
    monkeypatch.setattr(module, "EXACT_ROWS", 59)
    grid, errors = imd_estimate(x)
    assert torch.equal(grid, estimate(x))
    assert float(errors[0, 1]) > 0
    assert not errors.diagonal().any()


def test_each_block_of_probes_is_new():
    x = layers(Case(60, widths=(2, 9)))
    blocks = list(module._probes(60, 250, 0))
    assert [block.shape[1] for block in blocks] == [100, 100, 50]
    assert not torch.equal(blocks[0], blocks[1])
    assert not torch.equal(imd_grid(x, probes=200), estimate(x))


def test_quadrature_with_all_probes_is_exact():
    """Unit vectors as probes, and as many steps as rows: every trace is that of the spectrum."""
    (x,) = layers(Case(9, widths=(3,)))
    (found,) = neighbours([x], 5, "euclidean")
    laplacian, basis = module._Laplacian(found.index), torch.eye(9, dtype=FLOAT64)
    dense = laplacian(basis)
    assert torch.equal(dense, dense.T)
    np.testing.assert_allclose(laplacian.dense(), dense, atol=1e-15)
    want = np.linalg.eigvalsh(dense.numpy())
    np.testing.assert_allclose(want, reference.imd.spectrum(x.numpy()), atol=1e-12)
    tridiagonal = module._tridiagonal(laplacian, basis)
    values, weights = module._quadrature(tridiagonal)
    np.testing.assert_allclose(weights.sum(1), np.ones(9), rtol=1e-12)
    for power in (1, 2, 5):
        trace = (weights * values**power).sum()
        np.testing.assert_allclose(trace, (want**power).sum(), rtol=1e-12)
    temperatures = torch.from_numpy(module.TEMPERATURES)
    exact_trace = module._Spectrum(values, weights).heat_trace(temperatures)
    np.testing.assert_allclose(exact_trace, reference.imd.heat_trace(x.numpy()), rtol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES + HALVES, ids=str)
def test_estimates_are_near_the_exact_distance(dtype):
    x = layers(Case(200, 3.0, widths=(2, 9, 40)), dtype)
    y = layers(Case(200, widths=(3,)), dtype, seed=1)
    y.append(y[0][:34].repeat_interleave(6, 0)[:200])  # graphs of six rows each
    want = reference.imd_grid(exact(x), exact(y))
    assert want.max() > 4 * HEAT_ESTIMATE
    for seed in (0, 1):
        assert np.abs(np.asarray(estimate(x, y, seed=seed)) - want).max() < HEAT_ESTIMATE


def test_seeds_and_the_global_state():
    x = layers(Case(60, widths=(2, 9)))
    before = torch.random.get_rng_state()
    first, other = estimate(x), estimate(x, seed=1)
    assert torch.equal(first, estimate(x))
    assert not torch.equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), before)


def changed(kind, x):
    generator = np.random.default_rng([5, x.shape[1]])
    rotation = np.linalg.qr(generator.standard_normal((x.shape[1],) * 2))[0]
    return {
        "rotation": lambda: x @ torch.from_numpy(rotation),
        "translation": lambda: x + 4,
        "scale": lambda: 3 * x,
        "linear": lambda: x @ torch.from_numpy(rotation * np.geomspace(1e-3, 10, x.shape[1])),
        "rows": lambda: x[torch.from_numpy(generator.permutation(len(x)))],
    }[kind]()


@pytest.mark.parametrize("grid", [imd_grid, estimate], ids=["exact", "estimate"])
@pytest.mark.parametrize("kind", ["rotation", "translation", "scale", "linear", "rows"])
def test_invariances(kind, grid):
    x, y = layers(Case(200, widths=(9,))), layers(Case(200, widths=(3, 20)), seed=1)
    moved = float((grid([changed(kind, x[0])], y) - grid(x, y)).abs().max())
    if kind == "rows" and grid is estimate:  # probes meet other rows
        assert 0 < moved < HEAT_ESTIMATE
    elif kind == "linear":
        assert moved > HEAT_ESTIMATE
    else:
        assert moved < 1e-12


def test_contract(tmp_path):
    x, y = layers(Case(60, 1.0, widths=(2, 9, 5))), layers(Case(60, widths=(3,)), seed=1)
    grid, whole = imd_grid(x, y), imd_grid([*x, *y])
    assert torch.equal(grid, whole[:3, 3:])
    assert torch.equal(whole, whole.T)
    assert not whole.diagonal().any()
    assert not imd_grid(x, [x[1].clone()])[1].any()
    assert isinstance(imd_grid(exact(x)), np.ndarray)
    np.testing.assert_array_equal(imd_grid(exact(x), exact(y)), grid)
    for way in spread_out(torch.zeros(2, 2)):
        assert torch.equal(imd_grid([spread_out(layer)[way] for layer in x], y), grid)
    for scale in (1e-200, 1e200):
        np.testing.assert_allclose(imd_grid([layer * scale for layer in x], y), grid, atol=1e-12)
    got = imd_grid([layer.requires_grad_() for layer in x], y)
    assert not got.requires_grad


def test_duplicates_constants_and_two_separate_clusters():
    (x,) = layers(Case(60, widths=(4,)))
    doubled = torch.cat([x, x])
    apart = torch.cat([x, x + 100])
    want = reference.imd_grid(exact([doubled, apart]))
    np.testing.assert_allclose(imd_grid([doubled, apart]), want, atol=1e-12)
    with pytest.warns(UserWarning, match=r"imd_grid: nan for X\[1\]: no variance"):
        grid = imd_grid([doubled, torch.ones_like(doubled), apart])
    np.testing.assert_array_equal(grid[::2, ::2], imd_grid([doubled, apart]))
    assert grid[1].isnan().all()


def test_neighbours_that_are_all_other_rows():
    """The graph of six rows is the same for all layers."""
    x = layers(Case(6, widths=(3, 2)))
    with pytest.warns(
        UserWarning, match=r"nan for X\[0\], X\[1\]: of 6 rows, each is a neighbour of all"
    ) as warned:
        grid, errors = imd_estimate(x)
    assert grid.isnan().all()
    assert errors.isnan().all()
    assert len(warned) == 1
    np.testing.assert_array_equal(np.isnan(reference.imd_grid(exact(x))), True)


@pytest.mark.parametrize("n", [7, 11, 12])
def test_neighbours_that_are_half_of_all_other_rows(n):
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert imd_grid(layers(Case(n, widths=(3, 2)))).isfinite().all()
    assert [f"of {n} rows are half" in str(one.message) for one in warned] == [True] * (n < 12)


@pytest.mark.parametrize("name", [*LAYERS, *ENTRIES])
def test_message(name):
    assert_refused(imd_grid, *{**LAYERS, **ENTRIES}[name])


def test_options():
    assert_refused(imd_grid, ([rows(5)],), {}, ValueError, "k 4 X 5")
    assert_refused(imd_grid, (X,), {"seed": -1}, ValueError, "seed 0 1")
    assert_refused(imd_grid, (X, Y), {"probes": 1}, ValueError, "probes 2 1")
    small = {"probes": 100, "max_memory": 10**5}
    assert_refused(imd_grid, (X, Y), small, ValueError, "max_memory 100000")
    many = [rows(1000)]
    small = {"max_memory": 10**7}
    assert_refused(imd_grid, (many,), small, ValueError, "max_memory 10000000 eigenvalues")


def test_progress(capfd):
    imd_grid(X, progress=True)
    assert "imd_grid" in capfd.readouterr().err
