"""Agreement of the nearest neighbours of some rows in galleries of growing size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from simcore._grid.accuracy import warn_tied_neighbours
from simcore._grid.finish import as_given, warn_undefined
from simcore._grid.inputs import Array, Layers
from simcore._grid.neighbours import Metric
from simcore._grid.one_operator import REBUILT, one_operator
from simcore._grid.options import check_choice, check_count
from simcore._grid.progress import progress_bar
from simcore._grid.side import read_sides
from simcore._neighbour_lists import check_neighbours
from simcore._ops.composed import full_float32
from simcore._ops.nearest_composed import nearest_of_first
from simcore.knn import NO_VARIANCE

Measure = Literal["mutual", "jaccard"]


@dataclass(frozen=True)
class KnnCurve:
    """The result of `knn_curve`; arrays are float64.

    Attributes
    ----------
    galleries : tuple of int
        The numbers N of rows among which neighbours were sought.
    values : array ``[len(galleries), len(X), len(Y)]``
        The mean over the queries.
    errors : array ``[len(galleries), len(X), len(Y)]``
        Standard error of the mean over all N rows of the gallery; 0 where all are queries.
    chance : tuple of float
        ``k / (N - 1)``, the expected mutual share of unrelated layers.
    """

    galleries: tuple[int, ...] = field(metadata=REBUILT)
    values: Array
    errors: Array
    chance: tuple[float, ...] = field(metadata=REBUILT)

    def __repr__(self) -> str:
        return f"KnnCurve({self.values.shape[1]} x {self.values.shape[2]} pairs, {self.galleries})"


def _sizes(n: int, queries: int, k: int, galleries: Sequence[int] | None) -> tuple[int, list[int]]:
    """Return the number of queries and the sizes of the galleries, in ascending order."""
    count = min(check_count(queries, "queries", 2), n)
    if galleries is None:
        sizes = [n]
        while sizes[0] // 2 >= max(count, k + 1):
            sizes.insert(0, sizes[0] // 2)
        return count, sizes
    sizes = sorted({check_count(size, "galleries") for size in galleries})
    if not sizes or sizes[-1] > n or sizes[0] < max(count, k + 1):
        raise ValueError(
            f"galleries: wanted numbers of rows from {max(count, k + 1)} (no fewer than the "
            f"queries and more than k) to n = {n}, got {list(galleries)}"
        )
    return count, sizes


def _empty(
    like: Tensor,
    X: Sequence[Array],
    Y: Sequence[Array] | None = None,
    *,
    galleries: Sequence[int] | None = None,
    queries: int = 1000,
    k: int = 10,
    **_: Any,
) -> list[Tensor]:
    _, sizes = _sizes(X[0].shape[0], queries, k, galleries)
    shape = (len(sizes), len(X), len(X if Y is None else Y))
    return [like.new_empty(shape, dtype=torch.float64) for _ in range(2)]


def _rebuilt(
    outputs: list[Any],
    X: Sequence[Array],
    *_: Any,
    galleries: Sequence[int] | None = None,
    queries: int = 1000,
    k: int = 10,
    **__: Any,
) -> KnnCurve:
    _, sizes = _sizes(X[0].shape[0], queries, k, galleries)
    values, errors = outputs
    return KnnCurve(tuple(sizes), values, errors, tuple(k / (size - 1) for size in sizes))


@one_operator(_empty, _rebuilt)
def knn_curve(
    X: Layers,
    Y: Layers | None = None,
    *,
    galleries: Sequence[int] | None = None,
    queries: int = 1000,
    measure: Measure = "mutual",
    k: int = 10,
    metric: Metric = "cosine",
    seed: int = 0,
    max_memory: int | None = None,
    progress: bool = False,
) -> KnnCurve:
    """Compute how well the k nearest neighbours of some rows agree, in galleries of N rows.

    The k nearest rows are sought among N rows, and the agreement of two layers falls as N grows:
    values of different N cannot be compared. The curve over N shows how far it falls. ``queries``
    rows are drawn, and N - 1 others beside each; larger galleries contain the smaller ones. The
    mean over the queries is unbiased for the value of `knn_grid` of all N rows, at the cost of
    ``queries * N`` distances in place of ``N * N``.

    Parameters
    ----------
    X, Y : sequence of ``[n, p_i]`` arrays, or one ``[L, n, p]`` array
        Representations as in `simcore.cka_grid`.
    galleries : sequence of int, optional
        Numbers N of rows, at least ``queries`` and more than k. Default: n, and its halves.
    queries : int
        Number of rows whose neighbours are sought; all rows where n is smaller.
    measure : {"mutual", "jaccard"}
        As in `simcore.knn_grid`.
    k : int
        The number of neighbours.
    metric : {"cosine", "euclidean", "inner"}
        What is near; see `simcore.neighbours`. Equally near rows are in the drawn order.
    seed : int
        Seed of the order in which rows are drawn. Global random states are neither read nor
        changed.
    max_memory, progress
        A bound in bytes and a bar on stderr, as in `cka_grid`. A layer is held five times in
        float64.

    Returns
    -------
    KnnCurve
        numpy if all inputs are numpy, else torch tensors. ``nan``, with one warning, for a layer
        whose rows are all equal. Not differentiable.

    Raises
    ------
    TypeError, ValueError
        As `simcore.knn_grid`; galleries that are too small or too large.

    References
    ----------
    mutual: Huh et al. 2024, *The Platonic Representation Hypothesis*.

    Examples
    --------
    >>> import torch
    >>> from simcore import knn_curve
    >>> x = torch.randn(2, 4000, 8, generator=torch.Generator().manual_seed(0))
    >>> curve = knn_curve(x[:1], x[:1] + 0.3 * x[1:], queries=500)
    >>> curve.galleries
    (500, 1000, 2000, 4000)
    >>> curve.values.flatten().diff() < 0
    tensor([True, True, True])
    """
    check_choice(measure, "measure", Measure)
    check_choice(metric, "metric", Metric)
    k, seed = check_count(k, "k"), check_count(seed, "seed", 0)
    check_count(queries, "queries", 2)
    sides = read_sides(X, Y, "neighbours", max_memory=max_memory)
    layers, first_y = sides.layers, 0 if sides.same else len(sides.x)
    check_neighbours(layers[0], "X[0]", k)
    sides.check_finite()
    count, sizes = _sizes(sides.n, queries, k, galleries)
    # Galleries are nested: each is the first rows of one permutation.
    order = torch.from_numpy(np.random.default_rng(seed).permutation(sides.n)).to(sides.device)
    shape = (len(sizes), len(sides.x), len(layers) - first_y)
    values, errors = torch.empty(2, *shape, dtype=torch.float64, device=sides.device).unbind()
    undefined = torch.zeros(len(sizes), len(layers), dtype=torch.bool, device=sides.device)
    ties = torch.zeros(len(sizes), len(layers), dtype=torch.float64, device=sides.device)
    bound, done = sides.bound, 0
    with progress_bar("knn_curve", progress) as report, full_float32():
        for place, size in enumerate(sizes):
            lists = []
            for number, layer in enumerate(layers):
                drawn = layer[order[:size]]
                found, ties[place, number] = nearest_of_first(drawn, count, k, metric, bound)
                lists.append(found)
                undefined[place, number] = lists[-1][0, 0] < 0
                done += size
                report(done / (sum(sizes) * len(layers)))
            for i, a in enumerate(lists[: len(sides.x)]):
                for j, b in enumerate(lists[first_y:]):
                    values[place, i, j], errors[place, i, j] = _agreement(a, b, measure, size)
    # Layers without distinct rows in a gallery have no value there.
    of_x, of_y = undefined[:, : len(sides.x)], undefined[:, first_y:]
    nowhere = of_x[:, :, None] | of_y[:, None]
    values, errors = (t.masked_fill_(nowhere, torch.nan) for t in (values, errors))
    every_y = None if sides.same else of_y.any(0)
    warn_undefined("knn_curve", of_x.any(0), every_y, NO_VARIANCE)
    warn_tied_neighbours("knn_curve", [*zip(sides.labels, ties.amax(0), strict=True)])
    outputs = [as_given(t, sides.from_numpy) for t in (values, errors)]
    return _rebuilt(outputs, layers, galleries=galleries, queries=queries, k=k)


def _agreement(a: Tensor, b: Tensor, measure: str, size: int) -> tuple[Tensor, Tensor]:
    """Return mean and standard error over the queries of the agreement of two lists."""
    queries, k = a.shape
    ordered = b.sort(1).values
    places = torch.searchsorted(ordered, a).clamp(max=k - 1)
    common = (ordered.gather(1, places) == a).sum(1).double()
    each = common / k if measure == "mutual" else common / (2 * k - common)
    return each.mean(), (each.var() * ((1 - queries / size) / queries)).sqrt()
