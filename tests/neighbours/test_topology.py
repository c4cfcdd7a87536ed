"""Representation topology divergence: published value, twin, draws, and the contract."""

import sys

import numpy as np
import pytest
import torch

from simcore import reference, rtd_estimate, rtd_grid
from simcore import topology as module
from support.bad_inputs import ENTRIES, LAYERS, X, Y, assert_refused, rows
from support.cases import DTYPES, Case, exact, layers


@pytest.mark.slow
def test_the_published_value():
    """The readme of the authors' code: seed 7 of numpy, whose state the draws of rows continue."""
    random = np.random.RandomState(7)
    x, y = (random.rand(1000, 2) for _ in range(2))
    values = []
    for _ in range(10):
        drawn = list(range(1000))
        random.shuffle(drawn)
        values.append(rtd_grid([x[drawn[:500]]], [y[drawn[:500]]]).item())
    assert np.mean(values) == pytest.approx(35.55234398557805, abs=1e-6)  # printed of float32


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset", [0, 1000])
def test_the_twin(dtype, offset):
    x, y = (
        layers(Case(9, offset, widths=(5, 2, 7)), dtype),
        layers(Case(9, widths=(3, 5)), dtype, seed=1),
    )
    for sides in ((x,), (x, y)):
        want = reference.rtd_grid(*map(exact, sides))
        np.testing.assert_allclose(rtd_grid(*sides), want, atol=1e-10)


def test_bars_of_a_known_complex():
    """A square of side 1 is a cycle from 1 to the diagonal."""
    square = np.array([[0.0, 0], [0, 1], [1, 1], [1, 0]])
    distances = np.sqrt(reference.squared_distances(square))
    assert reference.first_persistence(distances) == pytest.approx(np.sqrt(2) - 1)


def test_values_do_not_depend_on_place_size_and_rotation():
    x, y = (layers(Case(20, widths=(4,)), seed=seed)[0] for seed in (0, 1))
    rotation = torch.linalg.qr(torch.randn(4, 4, dtype=x.dtype))[0]
    want = rtd_grid([x], [y])
    for other in (x + 7, x * 1e-150, x * 1e150, x @ rotation, x @ rotation * 3 - 1):
        torch.testing.assert_close(rtd_grid([other], [y]), want)
    assert rtd_grid([x], [x * 2 + 1]).item() == pytest.approx(0, abs=1e-9)
    torch.testing.assert_close(rtd_grid([y], [x]), want)
    assert rtd_grid([x], [x]).item() == 0


def test_draws():
    x = layers(Case(40, widths=(4, 3)))
    grid, errors = rtd_estimate(x, rows=12, draws=5)
    generator = np.random.default_rng(0)
    drawn = [generator.choice(40, 12, replace=False) for _ in range(5)]
    each = torch.stack([rtd_grid([layer[index] for layer in x]) for index in drawn])
    torch.testing.assert_close(grid, each.mean(0))
    torch.testing.assert_close(errors, each.std(0) / 5**0.5)
    assert torch.equal(rtd_grid(x, rows=12, draws=5), grid)
    assert not torch.equal(rtd_grid(x, rows=12, draws=5, seed=1), grid)
    whole, none = rtd_estimate(x, rows=40, draws=5)
    assert torch.equal(whole, rtd_grid(x))
    assert not none.any()


def test_layers_of_equal_rows_are_nan():
    x = layers(Case(40, widths=(4,)))
    few = torch.zeros_like(x[0])
    few[0] = 1  # one row apart: nine tenths of the distances are 0
    with pytest.warns(UserWarning, match=r"rtd_estimate: nan for X\[1\], X\[2\]: nine tenths"):
        grid, errors = rtd_estimate([*x, torch.ones_like(x[0]), few])
    for found in (grid, errors):
        assert found[0, 0] == 0
        assert found[1:].isnan().all()
        assert found[:, 1:].isnan().all()


def test_pairs_side_by_side_give_what_one_thread_gives(monkeypatch):
    x = layers(Case(30, widths=(4, 3, 6)))
    want = rtd_grid(x)
    monkeypatch.setattr(module.torch, "get_num_threads", lambda: 4)
    assert torch.equal(rtd_grid(x), want)
    assert torch.equal(rtd_grid(x, max_memory=220_000), want)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [
        *LAYERS.values(),
        *ENTRIES.values(),
        (([rows(2)],), {}, ValueError, "X 3 2 topology"),
        ((X, Y), {"rows": 2}, ValueError, "rows 3 2"),
        ((X, Y), {"draws": 0}, ValueError, "draws 1 0"),
        ((X, Y), {"seed": -1}, ValueError, "seed 0 -1"),
        ((X, Y), {"max_memory": 1000}, ValueError, "max_memory 1000 distances rows"),
    ],
)
def test_refused(arguments, options, error, words):
    assert_refused(rtd_grid, arguments, options, error, words)


def test_without_gudhi(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "gudhi"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "gudhi", None)
    with pytest.raises(ModuleNotFoundError, match="rtd_grid: wanted the package gudhi, found none"):
        rtd_grid(X)


def test_one_draw_has_no_error():
    """An error of 0 would say that the value does not depend on the draw."""
    assert_refused(rtd_estimate, (X, Y), {"draws": 1}, ValueError, "draws 2 1")
