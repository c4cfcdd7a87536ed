"""Orders of layers in which layers that are alike stand beside each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np

# Above this number of layers the best order of the leaves takes longer than the clustering.
_MOST_LEAVES = 400
# Small grids are branches of one tree: scipy's checks of a tree take longer than their few leaves.
_MOST_TOGETHER = 104
_FAR = 2.0  # the distance of layers of two grids in one tree; within a grid, 1 is the largest
_MOST_SQUARED = 1e150  # sums of squares of larger values are infinite

Orders = tuple[list[int], list[int]]


def clustered(
    grids: Sequence[np.ndarray], depths: Sequence[tuple[np.ndarray, np.ndarray]]
) -> list[Orders]:
    """Return the orders of the rows and of the columns of each grid by hierarchical clustering.

    Average linkage. The distance of two layers of a symmetric grid is what their similarity is
    below the largest one; of other grids, the Euclidean distance of their rows (columns). An
    undefined entry counts as the lowest one. An order begins with the half of the lower layers.

    Parameters
    ----------
    depths
        For every grid the numbers of the layers of its rows and of its columns.
    """
    filled = [_filled(grid) for grid in grids]
    symmetric = [grid.shape[0] == grid.shape[1] and np.allclose(grid, grid.T) for grid in filled]
    leaves = _leaves(
        table
        for grid, square in zip(filled, symmetric, strict=True)
        for table in ([_below_largest(grid)] if square else [_between(grid), _between(grid.T)])
    )
    orders: list[Orders] = []
    for square, (rows, columns) in zip(symmetric, depths, strict=True):
        down = _upwards(next(leaves), rows)
        orders.append((down, down if square else _upwards(next(leaves), columns)))
    return orders


def _upwards(order: list[int], depth: np.ndarray) -> list[int]:
    """Return an order of layers, or its reverse: the lower layers are in the first half.

    If both halves have one depth, the first layer of the grid is in the first.
    """
    half = len(order) // 2
    if not half:
        return order
    first, last = (float(depth[part].mean()) for part in (order[:half], order[-half:]))
    turned = first > last or (first == last and order[0] > order[-1])
    return order[::-1] if turned else order


def _filled(grid: np.ndarray) -> np.ndarray:
    finite = np.isfinite(grid)
    if not finite.all():
        grid = np.where(finite, grid, grid[finite].min() if finite.any() else 0.0)
    largest = np.abs(grid).max(initial=0.0)
    return grid / largest if largest > _MOST_SQUARED else grid


def _below_largest(grid: np.ndarray) -> np.ndarray:
    distances = grid.max(initial=0.0) - (grid + grid.T) / 2
    np.fill_diagonal(distances, 0.0)
    return distances


def _between(rows: np.ndarray) -> np.ndarray:
    from scipy.spatial.distance import pdist, squareform

    return squareform(pdist(rows), checks=False)


def _leaves(tables: Iterable[np.ndarray]) -> Iterator[list[int]]:
    """Yield the order of the leaves of the tree of each table of distances."""
    together: list[np.ndarray] = []
    for table in tables:
        if together and sum(map(len, together)) + len(table) > _MOST_TOGETHER:
            yield from _ordered(together)
            together = []
        together.append(table)
    yield from _ordered(together)


def _ordered(tables: Sequence[np.ndarray]) -> Iterator[list[int]]:
    """Yield the orders of the leaves of a few tables, from one tree of which each is a branch.

    Every layer is as far from all layers of another table, so that the branches of a table, and the
    best order of their leaves, depend on the table alone.
    """
    ends = np.cumsum([0, *map(len, tables)]).tolist()
    distances = np.full((ends[-1], ends[-1]), _FAR)
    for table, (start, end) in zip(tables, pairwise(ends), strict=True):
        distances[start:end, start:end] = table / (table.max(initial=0.0) or 1.0)
    leaves = np.array(_tree_order(distances), dtype=np.int64)
    for start, end in pairwise(ends):
        yield (leaves[(leaves >= start) & (leaves < end)] - start).tolist()


def _tree_order(distances: np.ndarray) -> list[int]:
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import squareform

    count = len(distances)
    if count < 3:
        return list(range(count))
    flat = squareform(distances, checks=False)
    tree = linkage(flat, "average", optimal_ordering=count <= _MOST_LEAVES)
    return _walk(tree[:, :2].astype(int).tolist(), count)


def _walk(tree: list[list[int]], count: int) -> list[int]:
    """Return the leaves of a tree of scipy from left to right, without scipy's costly checks."""
    leaves, ahead = [], [count + len(tree) - 1]
    while ahead:
        node = ahead.pop()
        if node < count:
            leaves.append(node)
        else:
            ahead += tree[node - count][::-1]
    return leaves
