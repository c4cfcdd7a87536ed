"""Correlations of single neurons in torch's own operations; CUDA devices use them.

The functions run on any device: tests compare them on CPU tensors with the twins. Layers of Y that
have one width lie side by side, so that a product takes many pairs at once.
"""

from __future__ import annotations

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
    largest = centred.abs().amax(0)  # a column may be far smaller than the largest one
    some = largest > 0
    near_one = centred / torch.where(some, largest, 1.0)
    length = torch.linalg.vector_norm(near_one, dim=0)
    return (near_one / torch.where(some, length, 1.0)).to(dtype), some


@dataclass(frozen=True)
class _Group:
    """Layers of one width: their places in their side, and their columns ``[n, layers, width]``."""

    places: Tensor
    values: Tensor
    known: Tensor  # [layers, width], bool


def _groups(layers: Sequence[Tensor], dtype: torch.dtype, bytes_each: int) -> Iterator[_Group]:
    """Yield the layers of each width, as many together as fit into ``bytes_each``; one at least."""
    by_width: dict[int, list[int]] = {}
    for place, layer in enumerate(layers):
        by_width.setdefault(layer.shape[1], []).append(place)
    n, device = len(layers[0]), layers[0].device
    for width, places in by_width.items():
        together = max(1, bytes_each // (dtype.itemsize * n * width))
        for part in tiles(len(places), together):
            units = [unit_columns(layers[place], dtype) for place in places[part]]
            values = torch.stack([columns for columns, _ in units], 1)
            known = torch.stack([some for _, some in units])
            yield _Group(torch.tensor(places[part], device=device), values, known)


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
    neurons = sum(layer.shape[1] for layer in x)
    shape = (neurons, len(others))
    best = torch.empty(shape if keep else (0, len(others)), dtype=torch.float64, device=x[0].device)
    partner = torch.empty(best.shape, dtype=torch.int64, device=best.device)
    grid = best.new_empty(len(x), len(others))
    for group in _groups(others, dtype, room.of_group):
        start = 0
        for place, layer in reported(enumerate(x)):
            values, numbers = _best_of(layer, group, room.rows)
            if not y:  # a neuron is its own best partner, whatever rounding makes of the product
                own = torch.arange(layer.shape[1], device=best.device)
                itself = (group.places == place) & ~values.isnan()
                values = torch.where(itself, 1.0, values)
                numbers = torch.where(itself, own[:, None], numbers)
            grid[place, group.places] = values.nanmean(0)
            if keep:
                best[start : start + len(values), group.places] = values
                partner[start : start + len(values), group.places] = numbers
            start += len(values)
    return grid, best, partner


def _best_of(layer: Tensor, group: _Group, rows: int) -> tuple[Tensor, Tensor]:
    """Return the largest correlations of a layer's neurons, and the first that has each."""
    units, some = unit_columns(layer, group.values.dtype)
    n, count, width = group.values.shape
    values, numbers = [], []
    for tile in tiles(units.shape[1], rows):
        products = (units[:, tile].T @ group.values.reshape(n, -1)).abs_().clamp_(max=1)
        products = products.view(-1, count, width).masked_fill_(~group.known, -1.0)
        largest, first = products.max(2)
        undefined = (largest < 0) | ~some[tile, None]
        values.append(largest.double().masked_fill_(undefined, torch.nan))
        numbers.append(first.masked_fill_(undefined, -1))
    return torch.cat(values), torch.cat(numbers)


def multiple_correlations(x: Sequence[Tensor], y: Sequence[Tensor], max_memory: int) -> Tensor:
    """Compute ``simcore::multiple_correlations``; the layers of y are orthonormal bases."""
    if not y:
        raise ValueError("Y: wanted at least one layer, got none")
    check_finite(x, "X")
    check_finite(y, "Y")
    dtype = dtype_of([*x, *y])
    room = _Room.of(x, y, dtype, max_memory)
    grid = torch.empty(len(x), len(y), dtype=torch.float64, device=x[0].device)
    for column, basis in reported(enumerate(y)):
        centred, power = centred_columns(basis)
        directions = (centred * power).to(dtype)
        empty = (directions == 0).all()
        for row, layer in enumerate(x):
            units, some = unit_columns(layer, dtype)
            shares = [
                (units[:, tile].T @ directions).double().square_().sum(1).sqrt_()
                for tile in tiles(units.shape[1], room.rows)
            ]
            known = torch.cat(shares).clamp_(max=1.0).masked_fill_(~some | empty, torch.nan)
            grid[row, column] = known.nanmean()
    return grid


# Registered for CUDA in simcore/_ops/neurons.py.
OPERATORS: dict[str, Callable[..., object]] = {
    "best_partners": in_full_float32(best_partners),
    "multiple_correlations": in_full_float32(multiple_correlations),
}
