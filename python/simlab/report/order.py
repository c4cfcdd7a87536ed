"""Orders of layers in which layers that are alike stand beside each other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# Above this number of layers the best order of the leaves takes longer than the clustering.
_MOST_LEAVES = 400
_MOST_SQUARED = 1e150  # sums of squares of larger values are infinite


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
    from scipy.spatial.distance import pdist, squareform

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
    """Return the tree of condensed distances; lower layers are in the first half of its leaves.

    If both halves have one depth, the first layer of the grid is in the first.
    """
    from scipy.cluster.hierarchy import cophenet, leaves_list, linkage
    from scipy.spatial.distance import squareform

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
