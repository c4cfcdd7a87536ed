"""Grids of errors: those of the maps of single pairs, whatever the memory; what grids refuse."""

import numpy as np
import pytest
import torch

from simcore.align import METHODS, TooFewRowsError, align_grid, align_pairs
from simcore.align import grids as grids_module
from support.tolerance import FLOAT32_LINEAR_MAP, FLOAT64_LINEAR_MAP
from support.trained import trained

ROWS = 90
QUICK = {"linear-gd": {"max_epochs": 3}, "inn": {"max_epochs": 3, "hidden": 8}}
QUICK["mlp"] = QUICK["inn"]


def side(widths, seed, dtype=torch.float64):
    """Layers of different widths that share some of their directions, with an offset."""
    generator = torch.Generator().manual_seed(seed)
    shared = torch.randn(ROWS, 4, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    layers = []
    for width in widths:
        mixing = torch.randn(4, width, generator=generator, dtype=torch.float64)
        noise = torch.randn(ROWS, width, generator=generator, dtype=torch.float64)
        layers.append((shared @ mixing + 0.3 * noise + 5).to(dtype))
    return layers


def numbers(errors):
    """Return all numbers of a table of errors as an array; a missing one is nan."""
    fields = ("mse", "relative", "component_mse", "component_relative")
    return np.array([[[getattr(e, f) for f in fields] for e in row] for row in errors], float)


@pytest.mark.parametrize("method", METHODS)
def test_errors_are_those_of_single_maps(method):
    widths = (5, 5) if method == "inn" else (5, 3)
    x, y = side(widths, 0), side(widths, 1)
    params = trained(**QUICK.get(method, {}))
    found = align_grid(x, y, method, heldout=0.3, split_seed=2, at_once=3, **params)
    for i, one in enumerate(x):
        for j, other in enumerate(y):
            (wanted,) = align_pairs([one], [other], method, heldout=0.3, split_seed=2, **params)
            for part in ("train", "heldout"):
                expected = numbers([[getattr(wanted, part)]])[0, 0]
                got = numbers(getattr(found, part))[i, j]
                np.testing.assert_allclose(got, expected, rtol=FLOAT64_LINEAR_MAP)


@pytest.mark.parametrize("method", ["linear", "cca"])
def test_layers_may_have_names(method):
    x, y = side((5, 5), 0), side((5, 5), 1)
    of_x, of_y = (dict(zip("ab", layers, strict=True)) for layers in (x, y))
    for given, wanted in (
        (align_grid(of_x, of_y, method), align_grid(x, y, method)),
        (
            align_grid(of_x, of_y, method, X_heldout=of_x, Y_heldout=of_y),
            align_grid(x, y, method, X_heldout=x, Y_heldout=y),
        ),
    ):
        np.testing.assert_array_equal(numbers(given.heldout), numbers(wanted.heldout))
        np.testing.assert_array_equal(numbers(given.train), numbers(wanted.train))
    found = align_pairs(of_x, of_y, method, X_heldout=of_x, Y_heldout=of_y)
    alone = align_pairs(x, y, method, X_heldout=x, Y_heldout=y)
    assert [one.heldout for one in found] == [one.heldout for one in alone]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_memory_bounds_the_layers_of_y_and_changes_nothing(dtype, monkeypatch):
    x, y = side((6, 4), 0, dtype), side((5, 3, 7), 1, dtype)
    x[0][:, 5] = x[0][:, :2].sum(1)  # a column that depends on others
    groups = []
    original = grids_module._groups
    monkeypatch.setattr(
        grids_module, "_groups", lambda *args: groups.append(original(*args)) or groups[-1]
    )
    whole = align_grid(x, y)
    parts = align_grid(x, y, max_memory=1)
    assert [len(group) for group in groups] == [1, 3]
    bound = FLOAT32_LINEAR_MAP if dtype == torch.float32 else FLOAT64_LINEAR_MAP
    (single,) = align_pairs(x[:1], y[2:], "linear")
    for part in ("train", "heldout"):
        one, other = (numbers(getattr(found, part)) for found in (whole, parts))
        np.testing.assert_allclose(one, other, rtol=FLOAT64_LINEAR_MAP)
        expected = numbers([[getattr(single, part)]])[0, 0]
        np.testing.assert_allclose(one[0, 2], expected, rtol=bound)


def test_given_rows_are_judged_and_a_constant_layer_has_no_relative_error():
    x, y = side((5,), 0), [*side((4,), 1), torch.ones(ROWS, 2, dtype=torch.float64)]
    rows = {"X_heldout": [x[0][60:]], "Y_heldout": [layer[60:] for layer in y]}
    found = align_grid([x[0][:60]], [layer[:60] for layer in y], **rows)
    (wanted,) = align_pairs(
        [x[0][:60]], [y[0][:60]], "linear", X_heldout=[x[0][60:]], Y_heldout=[y[0][60:]]
    )
    assert found.heldout[0][0].relative == pytest.approx(wanted.heldout.relative)
    assert np.isnan(found.heldout[0][1].relative)
    assert found.heldout[0][1].mse == pytest.approx(0, abs=FLOAT64_LINEAR_MAP)


def test_bad_input_is_named():
    x, y = side((5, 5), 0), side((5, 4), 1)
    with pytest.raises(ValueError, match=r"method: wanted 'linear'.*got 'ols'"):
        align_grid(x, y, "ols")
    with pytest.raises(ValueError, match="Y: wanted at least one layer, got none"):
        align_grid(x, [])
    with pytest.raises(ValueError, match=r"Y\[1\]: wanted n = 90 rows as in X\[0\], got 80"):
        align_grid(x, [y[0], y[1][:80]])
    with pytest.raises(ValueError, match="X_heldout, Y_heldout: wanted both"):
        align_grid(x, y, X_heldout=x)
    with pytest.raises(ValueError, match="Y_heldout: wanted 2 layers as in Y, got 1"):
        align_grid(x, y, X_heldout=x, Y_heldout=y[:1])
    with pytest.raises(ValueError, match=r"Y_heldout\[1\]: wanted 4 columns as in Y\[1\], got 5"):
        align_grid(x, y, X_heldout=x, Y_heldout=x)
    with pytest.raises(TooFewRowsError, match=r"X\[0\]: wanted at least 6 rows .*got 5"):
        align_grid([layer[:5] for layer in x], [y[0][:5]], X_heldout=x, Y_heldout=y[:1])
    with pytest.raises(ValueError, match="max_memory: wanted a positive number of bytes, got 0"):
        align_grid(x, y, max_memory=0)
