"""Orders of layers in which layers that are alike stand beside each other."""

from __future__ import annotations

import numpy as np

# Above this number of layers the best order of the leaves takes longer than the clustering.
_MOST_LEAVES = 400


def clustered(grid: np.ndarray) -> tuple[list[int], list[int]]:
    """Return the orders of the rows and of the columns of a grid by hierarchical clustering.

    Average linkage. The distance of two layers of a symmetric grid is what their similarity is
    below the largest one; of other grids, the Euclidean distance of their rows (columns). An
    undefined entry counts as the lowest one.
    """
    finite = grid[np.isfinite(grid)]
    filled = np.where(np.isfinite(grid), grid, finite.min() if len(finite) else 0.0)
    if grid.shape[0] == grid.shape[1] and np.allclose(filled, filled.T):
        order = _leaves(filled.max() - filled, square=True)
        return order, order
    return _leaves(filled, square=False), _leaves(filled.T, square=False)


def _leaves(table: np.ndarray, square: bool) -> list[int]:
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import pdist, squareform

    count = len(table)
    if count < 3:
        return list(range(count))
    if square:
        symmetric = (table + table.T) / 2
        np.fill_diagonal(symmetric, 0.0)
        distances = squareform(symmetric, checks=False)
    else:
        distances = pdist(table)
    tree = linkage(distances, "average", optimal_ordering=count <= _MOST_LEAVES)
    return _walk(tree[:, :2].astype(int).tolist(), count)


def _walk(tree: list[list[int]], count: int) -> list[int]:
    """Return the leaves of a tree of scipy from left to right, without scipy's costly checks."""
    found, ahead = [], [count + len(tree) - 1]
    while ahead:
        node = ahead.pop()
        if node < count:
            found.append(node)
        else:
            ahead += tree[node - count][::-1]
    return found
