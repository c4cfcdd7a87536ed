"""Numbers of grids as text in a page, and orders of layers.

The planes of a setting (value, low, high, pvalue, calibrated) are laid end to end over all its
grids, as float32 numbers. A grid whose planes are all symmetric stores the entries on and above the
diagonal. The bytes of all numbers of one significance come together, the highest first, because
similar bytes compress better.

The page unpacks the text with ``atob`` and ``DecompressionStream("deflate")``.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.cluster.hierarchy import cophenet, leaves_list, linkage
from scipy.spatial.distance import pdist, squareform

VALUE = "value"
PLANES = (VALUE, "low", "high", "pvalue", "calibrated")
_LEVEL = 5  # of zlib: 9 takes many times as long for 1 % less
# Above this number of layers the best order of the leaves takes longer than the clustering.
_MOST_LEAVES = 400
_MOST_SQUARED = 1e150  # sums of squares of larger values are infinite


def entries(plane: np.ndarray, symmetric: bool) -> np.ndarray:
    """Return the numbers of a grid that are stored: all, or those on and above the diagonal."""
    return plane[np.triu_indices(len(plane))] if symmetric else plane.ravel()


def is_symmetric(planes: Sequence[np.ndarray]) -> bool:
    """Return whether every plane equals its transpose."""
    return all(
        plane.shape[0] == plane.shape[1] and np.array_equal(plane, plane.T, equal_nan=True)
        for plane in planes
    )


def pack(plane: np.ndarray) -> str:
    """Return the stored entries of all grids of a setting as text."""
    with np.errstate(over="ignore"):  # a number beyond float32 is infinite
        numbers = plane.astype("<f4")
    split = numbers.view(np.uint8).reshape(-1, 4)[:, ::-1].T
    return compress(split.tobytes())


def compress(data: bytes) -> str:
    """Return bytes as the text that the page unpacks."""
    return base64.b64encode(zlib.compress(data, _LEVEL)).decode()


class Tree(NamedTuple):
    """A hierarchical clustering of layers."""

    leaves: list[int]  # the layers in an order in which each cluster is a run
    # For each leaf but the last, the height at which its cluster joins the cluster of the next
    # leaf, where 1 is the largest distance of two layers; the heights say the whole tree.
    heights: list[float]


def clustered(grid: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> list[Tree]:
    """Return the tree of a symmetric grid, or the trees of rows and columns, by average linkage.

    The distance of two layers of a symmetric grid is what their similarity is below the largest
    one; of other grids, the Euclidean distance of their rows (columns). An undefined entry counts
    as the lowest one. An order begins with the half of the lower layers, whose numbers are `rows`
    and `columns`.
    """
    finite = np.isfinite(grid)
    grid = np.where(finite, grid, grid[finite].min() if finite.any() else 0.0)
    largest = np.abs(grid).max(initial=0.0)
    grid = grid / largest if largest > _MOST_SQUARED else grid
    if grid.shape[0] == grid.shape[1] and np.allclose(grid, grid.T):
        distances = grid.max(initial=0.0) - (grid + grid.T) / 2
        np.fill_diagonal(distances, 0.0)
        return [_tree(squareform(distances, checks=False), rows)]
    return [_tree(pdist(grid), rows), _tree(pdist(grid.T), columns)]


def _tree(distances: np.ndarray, depth: np.ndarray) -> Tree:
    """Return the tree of condensed distances; lower layers are in the first half of its leaves."""
    count = len(depth)
    if count < 2:
        return Tree(list(range(count)), [])
    scaled = distances / (distances.max() or 1.0)
    tree = linkage(scaled, "average", optimal_ordering=count <= _MOST_LEAVES)
    leaves = leaves_list(tree)
    first, last = depth[leaves[: count // 2]].mean(), depth[leaves[-(count // 2) :]].mean()
    if first > last or (first == last and leaves[0] > leaves[-1]):
        leaves = leaves[::-1]
    joined = squareform(cophenet(tree))  # [L, L]: the height at which two layers join
    return Tree(leaves.tolist(), joined[leaves[:-1], leaves[1:]].round(4).tolist())
