"""Orders of layers in which layers that are alike stand beside each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

# Above this number of layers the best order of the leaves takes longer than the clustering.
_MOST_LEAVES = 400
# Small grids are branches of one tree: scipy's checks of a tree take longer than their few leaves.
_MOST_TOGETHER = 104
_FAR = 2.0  # the distance of layers of two grids in one tree; within a grid, 1 is the largest
_MOST_SQUARED = 1e150  # sums of squares of larger values are infinite


class Tree(NamedTuple):
    """A hierarchical clustering of layers."""

    leaves: list[int]  # the layers in an order in which each cluster is a run
    # For each leaf but the last, the height at which its cluster joins the cluster of the next
    # leaf, where 1 is the largest distance of two layers; the heights say the whole tree.
    heights: list[float]


def clustered(
    grids: Sequence[np.ndarray], depths: Sequence[tuple[np.ndarray, np.ndarray]]
) -> list[tuple[Tree, Tree]]:
    """Return the trees of the rows and of the columns of each grid by average linkage.

    The distance of two layers of a symmetric grid is what their similarity is below the largest
    one; of other grids, the Euclidean distance of their rows (columns). An undefined entry counts
    as the lowest one. An order begins with the half of the lower layers, whose numbers are in
    `depths`.
    """
    filled = [_filled(grid) for grid in grids]
    symmetric = [grid.shape[0] == grid.shape[1] and np.allclose(grid, grid.T) for grid in filled]
    trees = _trees(
        table
        for grid, square in zip(filled, symmetric, strict=True)
        for table in ([_below_largest(grid)] if square else [_between(grid), _between(grid.T)])
    )
    trees_of_both: list[tuple[Tree, Tree]] = []
    for square, (rows, columns) in zip(symmetric, depths, strict=True):
        down = _upwards(next(trees), rows)
        trees_of_both.append((down, down if square else _upwards(next(trees), columns)))
    return trees_of_both


def _upwards(tree: Tree, depth: np.ndarray) -> Tree:
    """Return a tree, or its mirror image: the lower layers are in the first half.

    If both halves have one depth, the first layer of the grid is in the first.
    """
    order, half = tree.leaves, len(tree.leaves) // 2
    if not half:
        return tree
    first, last = (float(depth[part].mean()) for part in (order[:half], order[-half:]))
    turned = first > last or (first == last and order[0] > order[-1])
    return Tree(order[::-1], tree.heights[::-1]) if turned else tree


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


def _trees(tables: Iterable[np.ndarray]) -> Iterator[Tree]:
    """Yield the tree of each table of distances."""
    together: list[np.ndarray] = []
    for table in tables:
        if together and sum(map(len, together)) + len(table) > _MOST_TOGETHER:
            yield from _ordered(together)
            together = []
        together.append(table)
    yield from _ordered(together)


def _ordered(tables: Sequence[np.ndarray]) -> Iterator[Tree]:
    """Yield the trees of a few tables, which are branches of one tree.

    Every layer is as far from all layers of another table, so that the branches of a table, and the
    best order of their leaves, depend on the table alone.
    """
    ends = np.cumsum([0, *map(len, tables)]).tolist()
    distances = np.full((ends[-1], ends[-1]), _FAR)
    for table, (start, end) in zip(tables, pairwise(ends), strict=True):
        distances[start:end, start:end] = table / (table.max(initial=0.0) or 1.0)
    leaves, heights = _tree(distances)
    places = np.argsort(leaves)
    for start, end in pairwise(ends):
        first = int(places[start:end].min(initial=len(leaves)))
        last = first + end - start
        yield Tree([leaf - start for leaf in leaves[first:last]], heights[first : last - 1])


def _tree(distances: np.ndarray) -> Tree:
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import squareform

    count = len(distances)
    if count < 3:
        return Tree(list(range(count)), [float(distances[0, 1])] if count == 2 else [])
    flat = squareform(distances, checks=False)
    tree = linkage(flat, "average", optimal_ordering=count <= _MOST_LEAVES)
    joins = [(int(left), int(right), height) for left, right, height, _ in tree.tolist()]
    return _walk(joins, count)


def _walk(joins: list[tuple[int, int, float]], count: int) -> Tree:
    """Return a tree of scipy from left to right, without scipy's costly checks."""
    tree = Tree([], [])
    ahead: list[int | float] = [count + len(joins) - 1]
    while ahead:
        node = ahead.pop()
        if isinstance(node, float):  # the height between two branches
            tree.heights.append(round(node, 4))
        elif node < count:
            tree.leaves.append(node)
        else:
            left, right, height = joins[node - count]
            ahead += [right, height, left]
    return tree
