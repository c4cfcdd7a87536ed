"""Numbers of grids as text: what comes out is what went in, as float32 numbers."""

import numpy as np
import pytest

from simlab.report.planes import clustered, entries, is_symmetric, pack
from support.lab.pages import unpack


@pytest.mark.parametrize(
    "given",
    [
        np.random.default_rng(0).uniform(-0.1, 1.0, 500),
        [np.nan, 0.25, np.inf, -np.inf],
        [0.0, 1e6, 3e-6],
        [np.nan, np.nan],
        [],
    ],
)
def test_every_number_comes_back(given):
    np.testing.assert_array_equal(unpack(pack(np.asarray(given))), np.float32(given))


def test_a_triangle_is_stored_where_all_planes_are_symmetric():
    draw = np.random.default_rng(0)
    half = draw.uniform(size=(5, 5))
    whole = half + half.T
    whole[1, 2] = whole[2, 1] = np.nan
    assert is_symmetric([whole, np.full((5, 5), np.nan)])
    assert not is_symmetric([whole, half])
    assert not is_symmetric([half[:, :4]])
    assert entries(whole, symmetric=True).tolist()[:5] == whole[0].tolist()
    assert len(entries(whole, symmetric=True)) == 15
    assert len(entries(half, symmetric=False)) == 25


@pytest.mark.parametrize(
    ("depth", "leaves"),
    [([0, 1, 2, 3], [2, 0, 3, 1]), ([3, 2, 1, 0], [1, 3, 0, 2]), ([1, 1, 1, 1], [1, 3, 0, 2])],
)
def test_the_half_of_the_lower_layers_comes_first(depth, leaves):
    """Layers 2, 0, 3 and 1 are a chain; of equal depths, the first layer decides."""
    chain = np.array([2, 0, 3, 1])
    grid = np.empty((4, 4))
    grid[np.ix_(chain, chain)] = 1 - 0.1 * np.abs(np.subtract.outer([0, 1, 4, 5], [0, 1, 4, 5]))
    (tree,) = clustered(grid, np.array(depth), np.array(depth))
    assert tree.leaves == leaves
