"""Correlations of single neurons in torch's own operations; CUDA devices use them.

The functions run on any device: tests compare them on CPU tensors with the twins. Layers of Y that
have one width lie side by side, so that a product takes many pairs at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from simcore._grid.inputs import check_finite
from simcore._grid.memory import memory_bound
from simcore._grid.progress import reported
from simcore._ops.composed import centred_columns, in_full_float32
from simcore._ops.tiles import rows_that_fit, tiles

MOST_NEURONS = 2**12  # of X in one product


def dtype_of(layers: Sequence[Tensor]) -> torch.dtype:
    """Return float64 if a layer is, else float32."""
    return torch.float64 if any(t.dtype == torch.float64 for t in layers) else torch.float32


def unit_columns(layer: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return centred columns of unit length, or zeros, and which of them have a variance."""
    centred, _ = centred_columns(layer)
    # A column may be far smaller than the largest one.
    largest = torch.maximum(centred.amax(0), -centred.amin(0))  # [p]
    some = largest > 0
    centred /= torch.where(some, largest, 1.0)
    centred /= torch.where(some, torch.linalg.vector_norm(centred, dim=0), 1.0)
    return centred.to(dtype), some


@dataclass(frozen=True)
class _Group:
    """Layers of one width: their places in their side, and their columns ``[n, layers, width]``."""

    places: list[int]
    values: Tensor
    known: Tensor  # [layers, width], bool


def _groups(layers: Sequence[Tensor], dtype: torch.dtype, bytes_each: int) -> Iterator[_Group]:
    """Yield the layers of each width, as many together as fit into ``bytes_each``; one at least."""
    by_width: dict[int, list[int]] = {}
    for place, layer in enumerate(layers):
        by_width.setdefault(layer.shape[1], []).append(place)
    n = len(layers[0])
    for width, places in by_width.items():
        together = max(1, bytes_each // (dtype.itemsize * n * width))
        for part in tiles(len(places), together):
            units = [unit_columns(layers[place], dtype) for place in places[part]]
            values = torch.stack([columns for columns, _ in units], 1)  # [n, layers, width]
            known = torch.stack([some for _, some in units])  # [layers, width]
            yield _Group(places[part], values, known)


@dataclass(frozen=True)
class _Room:
    """How a bound of memory is divided: columns of Y at a time, and neurons of X in a product."""

    of_group: int
    rows: int

    @classmethod
    def of(
        cls, x: Sequence[Tensor], y: Sequence[Tensor], dtype: torch.dtype, max_memory: int
    ) -> _Room:
        n, item = len(x[0]), dtype.itemsize
        widest_x, widest_y = (max(layer.shape[1] for layer in side) for side in (x, y))
        bound = memory_bound(max_memory, x[0])
        # One layer of either side is read at a time, through some float64 copies.
        held = (item + 40) * n * max(widest_x, widest_y) + item * n * (widest_x + widest_y)
        rows = rows_that_fit(bound, held, 3 * item * widest_y, widest_x, "the products of a pair")
        of_group = max((bound - held) // 4, item * n * widest_y)
        # A product has as many columns as a group of layers of Y.
        columns = max(of_group // (item * n), widest_y)
        return cls(
            of_group, max(1, min(rows, MOST_NEURONS, (bound - held) // (3 * item * columns)))
        )


def best_partners(
    x: Sequence[Tensor], y: Sequence[Tensor], keep: bool, max_memory: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute ``simcore::best_partners``."""
    check_finite(x, "X")
    check_finite(y, "Y")
    others, dtype = y or x, dtype_of([*x, *y])
    room = _Room.of(x, others, dtype, max_memory)
    starts = [0, *itertools.accumulate(layer.shape[1] for layer in x)]
    shape = (starts[-1] if keep else 0, len(others))
    best = torch.empty(shape, dtype=torch.float64, device=x[0].device)
    partner = torch.empty(shape, dtype=torch.int64, device=best.device)
    grid = best.new_empty(len(x), len(others))

    def put(place: int, other: int, found: _Found) -> None:
        grid[place, other] = found.values.nanmean()  # []
        if keep:
            part = slice(starts[place], starts[place + 1])
            best[part, other], partner[part, other] = found.values, found.numbers

    for group in _groups(others, dtype, room.of_group):
        for place, layer in reported(enumerate(x)):
            units, some = unit_columns(layer, dtype)  # [n, p], [p]
            if not y and place in group.places:  # a neuron is its own best partner
                own = torch.arange(len(some), device=best.device)
                put(place, place, _found(torch.ones_like(units[0]), own, some, some))
            later = [i for i, other in enumerate(group.places) if y or other > place]
            for i in later:
                ahead, back = _compared(units, some, group, i, room.rows, keep, not y)
                put(place, group.places[i], ahead)
                if back is not None:
                    put(group.places[i], place, back)
    return grid, best, partner


@dataclass(frozen=True)
class _Found:
    """The largest correlation of every neuron of a layer; nan and -1 where it has none."""

    values: Tensor
    numbers: Tensor  # [p], int64


def _found(largest: Tensor, first: Tensor, some: Tensor, others: Tensor) -> _Found:
    """Return what was found; a neuron without a variance is nobody's partner."""
    undefined = ~some | ~others.any()
    first = torch.where(largest == 0, others.int().argmax(), first)
    values = largest.double().clamp_(max=1)
    return _Found(values.masked_fill_(undefined, torch.nan), first.masked_fill_(undefined, -1))


def _compared(
    units: Tensor, some: Tensor, group: _Group, i: int, rows: int, keep: bool, both: bool
) -> tuple[_Found, _Found | None]:
    """Return the best partners in layer ``i`` of a group and, if ``both``, of its neurons."""
    known, ahead = group.known[i], []
    largest = group.values.new_full(known.shape, -1.0)
    first = torch.zeros(known.shape, dtype=torch.int64, device=known.device)
    none = first[:1]  # stands for the numbers, which take long to find
    for tile in tiles(units.shape[1], rows):
        products = (units[:, tile].T @ group.values[:, i]).abs_()  # [neurons of x, width]
        ahead.append(products.max(1) if keep else (products.amax(1), none.expand(len(products))))
        if both:
            of_tile, at = products.max(0) if keep else (products.amax(0), none.expand_as(first))
            first = torch.where(of_tile > largest, at + tile.start, first)
            largest = torch.maximum(of_tile, largest)
    values, numbers = (torch.cat(parts) for parts in zip(*ahead, strict=True))  # [p] each
    back = _found(largest, first, known, some) if both else None
    return _found(values, numbers, some, known), back


def multiple_correlations(x: Sequence[Tensor], y: Sequence[Tensor], max_memory: int) -> Tensor:
    """Compute ``simcore::multiple_correlations``; the layers of y are orthonormal bases."""
    if not y:
        raise ValueError("Y: wanted at least one layer, got none")
    check_finite(x, "X")
    check_finite(y, "Y")
    dtype = dtype_of([*x, *y])
    room = _Room.of(x, y, dtype, max_memory)
    grid = torch.empty(len(x), len(y), dtype=torch.float64, device=x[0].device)
    for group in _groups(x, dtype, room.of_group):
        for column, basis in reported(enumerate(y)):
            centred, power = centred_columns(basis)  # [n, k], []
            directions = (centred * power).to(dtype)
            empty = (directions == 0).all()
            for i, row in enumerate(group.places):
                shares = [
                    (group.values[:, i, tile].T @ directions).double().square_().sum(1).sqrt_()
                    for tile in tiles(group.values.shape[2], room.rows)
                ]
                undefined = ~group.known[i] | empty
                known = torch.cat(shares).clamp_(max=1.0).masked_fill_(undefined, torch.nan)
                grid[row, column] = known.nanmean()  # []
    return grid


# Registered for CUDA in simcore/_ops/neurons.py.
OPERATORS: dict[str, Callable[..., object]] = {
    "best_partners": in_full_float32(best_partners),
    "multiple_correlations": in_full_float32(multiple_correlations),
}
