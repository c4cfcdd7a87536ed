"""The measures made of nearest rows in torch's own operations; CUDA devices use them.

The functions run on any device: tests compare them on CPU tensors with the twins. Nothing in them
waits for the device. One layer at a time is compared with all layers of the other side: the places
of its neighbours are written to a table of all rows, and the lists of the others are looked up in
it. Lists are not checked, because that would wait for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from simcore._grid.memory import memory_bound
from simcore._grid.progress import reported
from simcore._ops.composed import in_full_float32
from simcore._ops.nearest_composed import EPS, Rows, nearest_rows, read_rows
from simcore._ops.tiles import rows_that_fit, tiles

COMPARED = "the comparison of neighbours"
EQUAL = 128 * EPS  # inner products of a row with itself and with another, relative: equal


def _undefined(index: Tensor) -> Tensor:
    """Return which layers have no neighbours, ``[L]`` bool."""
    return index[:, 0, 0] < 0


def _masked(grid: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return grid.masked_fill(_undefined(x)[:, None] | _undefined(y), torch.nan)


def _mirrored(grid: Tensor, diagonal: float) -> Tensor:
    """Return the symmetric matrix of an upper triangle, with this diagonal."""
    upper = grid.triu(1)
    return (upper + upper.T).fill_diagonal_(diagonal)


def _places(own: Tensor, others: Tensor, n: int) -> Tensor:
    """Return the places, from 1 on, of ``others`` ``[rows, L, k]`` in ``[rows, k]``; 0 for none."""
    rows, k = own.shape
    table = torch.zeros((rows, n), dtype=torch.int32, device=own.device)
    ranks = torch.arange(1, k + 1, dtype=torch.int32, device=own.device)
    table.scatter_(1, own, ranks.expand(rows, k))
    return table.gather(1, others.flatten(1)).view(others.shape)


def _by_rows(index: Tensor, tile: slice) -> Tensor:
    """Return the lists of some rows as indices ``[rows, L, k]``; 0 stands for no neighbour."""
    return index[:, tile].transpose(0, 1).long().clamp(min=0)


def list_similarity(x: Tensor, y: Tensor, measure: str, max_memory: int) -> Tensor:
    """Compute ``simcore::list_similarity``, some rows of all layers at a time."""
    same = y.numel() == 0
    other = x if same else y
    (count, n, k), across = x.shape, len(other)
    bound = memory_bound(max_memory, x)
    of_row = 4 * n + 8 * k * (count + across) + 48 * k * across
    rows = rows_that_fit(bound, 24 * count * across, of_row, n, COMPARED)
    grid = torch.zeros((count, across), dtype=torch.float64, device=x.device)
    agreement = _AGREEMENTS[measure]
    for tile in reported(tiles(n, rows)):
        own, others = _by_rows(x, tile), _by_rows(other, tile)  # [rows, L, k] each
        for a in range(count):
            first = a + 1 if same else 0
            if first < across:
                places = _places(own[:, a], others[:, first:], n)  # [rows, others, k]
                grid[a, first:] += agreement(places).sum(0)  # [others]
    grid = grid / n
    return _masked(_mirrored(grid, 1.0) if same else grid, x, other)


def _mutual(places: Tensor) -> Tensor:
    return (places > 0).sum(2).double() / places.shape[2]


def _jaccard(places: Tensor) -> Tensor:
    common = (places > 0).sum(2).double()  # [rows, L]
    return common / (2 * places.shape[2] - common)


def _rank(places: Tensor) -> Tensor:
    k = places.shape[2]
    other = torch.arange(1, k + 1, dtype=torch.float64, device=places.device)
    is_shared = places > 0
    ranks = places.double()  # [rows, L, k]
    terms = 2 / ((1 + (ranks - other).abs()) * (ranks + other))
    harmonic = torch.cat([other.new_ones(1), other.reciprocal().cumsum(0)])  # no common: 0 / 1
    return torch.where(is_shared, terms, 0.0).sum(2) / harmonic[is_shared.sum(2)]


_AGREEMENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "mutual": _mutual,
    "jaccard": _jaccard,
    "rank": _rank,
}


@dataclass(frozen=True)
class _Members:
    """Cosine distances of some rows to members, and where the neighbours are among them."""

    distances: Tensor  # [rows, L, members]
    places: Tensor  # [rows, L, k], of the neighbours in each layer among the members

    def at(self, layers: slice, places: Tensor) -> Tensor:
        """Return distances of ``layers`` to members, ``[rows, layers, k]``."""
        distances = self.distances[:, layers]
        return distances.gather(2, places.expand(-1, distances.shape[1], -1))


def _members(layers: Sequence[Rows], lists: Tensor, tile: slice) -> _Members:
    """Measure the rows of a tile; ``lists`` ``[rows, L, k]`` are the neighbours in all layers."""
    rows, count, k = lists.shape
    n = len(layers[0].values)
    if count * k < n:
        members = lists.flatten(1)  # [rows, L * k]
        places = torch.arange(count * k, device=lists.device).view(1, count, k)
        distances = [layer.distances_to(tile, members) for layer in layers]  # [rows, members] each
        return _Members(torch.stack(distances, 1), places.expand(rows, -1, -1))
    return _Members(torch.stack([layer.distances(tile) for layer in layers], 1), lists)


def second_order_similarity(
    x: Sequence[Tensor], y: Sequence[Tensor], index_x: Tensor, index_y: Tensor, max_memory: int
) -> Tensor:
    """Compute ``simcore::second_order_similarity``, some rows of all layers at a time."""
    same = not y
    index = index_x if same else torch.cat([index_x, index_y])
    (count, n, k), of_x, first_y = index.shape, len(x), 0 if same else len(x)
    widths = [layer.shape[1] for layer in (*x, *y)]
    held = 8 * n * sum(widths) + 32 * n * max(widths) + 24 * count**2
    members = min(n, count * k)
    of_row = 16 * members * (count + max(widths) + 4) + 4 * n + 100 * count * k
    rows = rows_that_fit(memory_bound(max_memory, index), held, of_row, n, COMPARED)
    layers = [read_rows(layer, "cosine") for layer in (*x, *y)]
    grid = torch.zeros((of_x, count - first_y), dtype=torch.float64, device=index.device)
    for tile in reported(tiles(n, rows)):
        lists = _by_rows(index, tile)  # [rows, L, k]
        of_layers = _members(layers, lists, tile)
        for a in range(of_x):
            others = slice(a + 1 if same else first_y, count)
            if others.start < count:
                fresh = _places(lists[:, a], lists[:, others], n) == 0
                values = _cosines(of_layers, a, others, fresh)  # [rows, others]
                grid[a, others.start - first_y :] += values.sum(0)
    grid = grid / n
    return _masked(_mirrored(grid, 1.0) if same else grid, index_x, index[first_y:])


def _cosines(members: _Members, a: int, others: slice, fresh: Tensor) -> Tensor:
    """Return the cosines of layer a with ``others``, ``[rows, others]``."""
    # ``fresh`` ``[rows, others, k]`` says which neighbours in the others are none in layer a.
    one = slice(a, a + 1)
    places, their_places = members.places[:, one], members.places[:, others]
    own = members.distances[:, one].expand(-1, their_places.shape[1], -1).gather(2, their_places)
    theirs = members.distances[:, others].gather(2, their_places)
    # Both vectors over the neighbours in layer a, and over those in the other layer alone.
    first = torch.cat([members.at(one, places).expand_as(own), own * fresh], 2)
    second = torch.cat([members.at(others, places), theirs * fresh], 2)
    squares_a, squares_b = first.square().sum(2), second.square().sum(2)  # [rows, others] each
    zero = (squares_a == 0) | (squares_b == 0)
    cosine = (first * second).sum(2) / (squares_a * squares_b).sqrt()
    return torch.where(zero, (squares_a == squares_b).double(), cosine.clamp(max=1.0))


@dataclass(frozen=True)
class _Edges:
    """The neighbours of the layers of a side, with inner products less their mean."""

    index: Tensor  # [L, n, k]
    values: Tensor  # [L, n, k], in units of a power of two of each layer
    mean: Tensor  # [L]
    mutual: Tensor  # [L, n, k], whether a row is a neighbour of its neighbour


def _edges(index: Tensor, values: Tensor, own: Tensor, biased: bool, rows: int) -> _Edges:
    """Return the edges; for the biased estimator a row may be its own neighbour."""
    n = index.shape[1]
    index, values = index.long().clamp(min=0), values.clone()
    if biased:
        itself = torch.arange(n, device=index.device)
        last, least = index[:, :, -1], values[:, :, -1]  # [L, n] each
        equal = EQUAL * own  # a copy of the row: two sums of the same terms
        nearer = (own > least + equal) | ((own >= least - equal) & (itself < last))
        index[:, :, -1] = torch.where(nearer, itself, last)
        values[:, :, -1] = torch.where(nearer, own, least)
    largest = values.abs().amax((1, 2), keepdim=True)  # [L, 1, 1]
    usable = (largest > 0) & largest.isfinite()
    exponent = torch.frexp(torch.where(usable, largest, 1.0)).exponent
    values = torch.ldexp(values, -exponent.clamp(-1000, 1000))
    mean = torch.where(usable, values.mean((1, 2), keepdim=True), 0.0)
    mutual = torch.empty(index.shape, dtype=torch.bool, device=index.device)
    for lists, out in zip(index, mutual, strict=True):
        for tile in tiles(n, rows):
            row = torch.arange(tile.start, tile.stop, device=index.device)  # [rows]
            out[tile] = (lists[lists[tile]] == row[:, None, None]).any(2)  # [rows, k]
    return _Edges(index, values - mean, mean.flatten(), mutual)


def cknna_terms(
    index_x: Tensor,
    values_x: Tensor,
    own_x: Tensor,
    index_y: Tensor,
    values_y: Tensor,
    own_y: Tensor,
    estimator: str,
    max_memory: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute ``simcore::cknna_terms``: one layer with some layers of the other side at a time."""
    same, biased = index_y.numel() == 0, estimator == "biased"
    (count, n, k), across = index_x.shape, len(index_y) or len(index_x)
    layers = count + (0 if same else across)
    held, of_pair = 48 * layers * n * k + 64 * count * across, n * (80 * k + 48)
    bound = memory_bound(max_memory, index_x)
    rows = rows_that_fit(bound, held + of_pair, 4 * n + 16 * k * k, n, COMPARED)
    together = max(1, (bound - held - rows * (4 * n + 16 * k * k)) // of_pair)
    x = _edges(index_x, values_x, own_x, biased, rows)
    y = x if same else _edges(index_y, values_y, own_y, biased, rows)
    grid = torch.empty((count, across), dtype=torch.float64, device=index_x.device)
    for a in reported(range(count)):
        for others in tiles(across, together):
            if same and others.stop <= a:
                continue
            there, back = _hsic(x, a, y, others, biased, rows)  # [others] each
            grid[a, others] = there
            if same:
                later = slice(max(others.start, a), others.stop)
                grid[later, a] = back[later.start - others.start :]
    xx, yy = (
        grid.diagonal().clone()
        if same
        else torch.cat([_hsic(s, a, s, slice(a, a + 1), biased, rows)[0] for a in range(len(i))])
        for s, i in ((x, index_x), (y, index_y))
    )
    index = index_x if same else index_y
    xx, yy = (
        xx.masked_fill(_undefined(index_x), torch.nan),
        yy.masked_fill(_undefined(index), torch.nan),
    )
    return _masked(grid, index_x, index), xx, yy


def _hsic(
    x: _Edges, a: int, y: _Edges, others: slice, biased: bool, rows: int
) -> tuple[Tensor, Tensor]:
    """Return HSIC of layer a of x with ``others`` of y, and of these with layer a, ``[others]``."""
    # With M the common neighbours, ``A = mean M + A'`` and B alike: sums of M are of whole numbers,
    # hence exact, and the entries of A' and B' are small where inner products hardly differ.
    n = x.index.shape[1]
    index = y.index[others]  # [others, n, k]
    places = torch.empty(index.shape, dtype=torch.int64, device=index.device)
    for tile in tiles(n, rows):
        lists = index[:, tile].transpose(0, 1)  # [rows, others, k]
        places[:, tile] = _places(x.index[a, tile], lists, n).transpose(0, 1)
    common = places > 0
    places.sub_(1).clamp_(min=0)
    own = x.values[a].expand_as(index).gather(2, places)  # [others, n, k]
    both = common & y.mutual[others] & x.mutual[a].expand_as(index).gather(2, places)
    m = common.double()
    values = {"m": m, "a": own * m, "b": y.values[others] * m}
    parts = {
        name: _Part(v, v.sum(2), v.sum((1, 2)), (v * both).sum((1, 2)))
        for name, v in values.items()
    }
    trace_ab = (values["a"] * values["b"] * both).sum((1, 2))  # [others]
    neighbour = index.flatten(1)  # [rows, L * k]
    mean_a, mean_b = x.mean[a], y.mean[others]  # [], [others]

    def hsic(back: bool) -> Tensor:
        def term(one: str, other: str, trace: Tensor) -> Tensor:
            return _estimate(parts[one], parts[other], trace, neighbour, n, biased, back)

        traces = {name: part.trace for name, part in parts.items()}
        return (
            mean_a * mean_b * term("m", "m", traces["m"])
            + (mean_b * term("a", "m", traces["a"]) + mean_a * term("m", "b", traces["b"]))
            + term("a", "b", trace_ab)
        )

    there = hsic(False)
    return there, there if biased else hsic(True)


@dataclass(frozen=True)
class _Part:
    """A matrix that has entries at common neighbours alone, for some pairs of layers."""

    entries: Tensor  # [pairs, n, k]
    rows: Tensor  # [pairs, n], sums of entries
    total: Tensor  # [pairs], the sum of all entries
    trace: Tensor  # [pairs], the sum of entries between mutual neighbours


def _estimate(
    a: _Part, b: _Part, trace: Tensor, neighbour: Tensor, n: int, biased: bool, back: bool
) -> Tensor:
    """Return the estimate of HSIC as csrc/core/math/hsic_math.h has it, ``[pairs]``."""
    # ``1'A B 1`` is the sum of the entries of A times the row sums of B at their columns.

    def product(one: _Part, other: _Part) -> Tensor:
        at_columns = other.rows.gather(1, neighbour).view_as(one.entries)  # [pairs, n, k]
        return (one.entries * at_columns).sum((1, 2))  # [pairs]

    if biased:
        crossed = (product(a, b) + product(b, a)) / 2
        total = trace - 2.0 / n * crossed + a.total * b.total / n**2
        return total / (n - 1.0) ** 2
    crossed = product(b, a) if back else product(a, b)
    means = a.total * b.total / ((n - 1.0) * (n - 2.0))
    return (trace + means - 2.0 / (n - 2.0) * crossed) / (n * (n - 3.0))


COMPOSED = (nearest_rows, list_similarity, second_order_similarity, cknna_terms)
# Registered for CUDA in simcore/_ops/neighbours.py.
OPERATORS: dict[str, Callable[..., object]] = {
    function.__name__: in_full_float32(function) for function in COMPOSED
}
