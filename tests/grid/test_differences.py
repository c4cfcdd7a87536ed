"""Distances of nearly equal layers, beside the differences themselves in float64."""

import numpy as np
import pytest

from simcore import rsm_difference_grid
from simcore._grid.accuracy import RELATIVE, watch


def shared_massive_column(r):
    """Two layers that have one column in common, 5,000 times the others."""
    x, y = r.standard_normal((2, 300, 32))
    x[:, 0] = y[:, 0] = 5000 * r.standard_normal(300)
    return x, y


def residual_step(r):
    x = r.standard_normal((300, 32))
    return x, x + 1e-2 * r.standard_normal((300, 32))


def sink_row(r):
    x = r.standard_normal((300, 32))
    y = x + 0.7 * r.standard_normal((300, 32))
    x[0, 3] = y[0, 3] = 1e4
    return x, y


DRAWN = {f.__name__: f for f in (shared_massive_column, residual_step, sink_row)}


def drawn(name):
    x, y = DRAWN[name](np.random.default_rng(0))
    return np.float32(x), np.float32(y)


def distances(x):
    x = np.float64(x)
    return np.linalg.norm(x[:, None] - x, axis=2)


@pytest.mark.parametrize("name", DRAWN)
def test_rsm_differences_are_those_of_the_distances(name):
    x, y = drawn(name)
    want = np.linalg.norm(distances(x) - distances(y))
    order = np.random.default_rng(1).permutation(len(x))
    with watch() as again:
        grid = rsm_difference_grid([x, y])
    assert again == ["rsm_difference_grid: X[0], X[1]"]
    turned = rsm_difference_grid([x[order]], [y[order]])
    for got in (grid[0, 1], grid[1, 0], turned[0, 0]):
        assert got == pytest.approx(want, rel=RELATIVE)
    assert grid[0, 0] == 0
