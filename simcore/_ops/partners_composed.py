"""Best partners and multiple correlations of single neurons, in torch's own operations.

No matrix of correlations of two layers is held, unless it is one tile: the products of two tiles
are reduced to their maxima or sums of squares.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from simcore._grid.memory import memory_bound
from simcore._grid.progress import reported
from simcore._ops.columns import Columns, check_layers, product, varying
from simcore._ops.composed import in_full_float32
from simcore._ops.tiles import tiles


@dataclass(frozen=True)
class Known:
    """Which neurons of all layers are compared, side by side: ``[L, widest]``."""

    some: Tensor  # bool
    any: Tensor  # [L]

    @classmethod
    def of(cls, layers: Sequence[Tensor], correlates: bool = True) -> Known:
        """Return all neurons, or those with a variance, which have correlations."""
        widest = max(layer.shape[1] for layer in layers)
        some = torch.zeros(len(layers), widest, dtype=torch.bool, device=layers[0].device)
        for row, layer in zip(some, layers, strict=True):
            row[: layer.shape[1]] = varying(layer) if correlates else True
        return cls(some, some.any(1))


class Best:
    """The largest correlations of the neurons of some layers with neurons of others."""

    def __init__(self, shape: tuple[int, int], keep: bool, like: Tensor, dtype: torch.dtype):
        self._rounding = 16 * torch.finfo(dtype).eps
        self.values = like.new_full(shape, -torch.inf, dtype=dtype)  # [layers, neurons]
        self.numbers: Tensor | None = None  # int64, the first neurons that reach the values
        if keep:
            self.numbers = like.new_zeros(shape, dtype=torch.int64)

    def update(self, row: int, part: slice, products: Tensor, dim: int, start: int) -> None:
        """Take in the products of some neurons with neurons from number ``start`` on."""
        values = self.values[row, part]
        if self.numbers is None:  # which take much longer to find
            torch.maximum(values, products.amax(dim), out=values)
            return
        largest, numbers = products.amax(dim, keepdim=True), self.numbers[row, part]
        # Rounding does not decide between equal neurons: the first of them is the partner.
        at = (products >= largest - self._rounding).byte().argmax(dim)
        largest = largest.squeeze(dim)
        numbers.copy_(torch.where(largest > values + self._rounding, at + start, numbers))
        torch.maximum(values, largest, out=values)

    def finish(self, some: Tensor, others: Tensor) -> Tensor:
        """Return the values, float64, nan where there is none; numbers become -1 there.

        ``some`` ``[layers, neurons]`` and ``others`` ``[layers, 1]`` say which neurons have a
        variance, and which layers of partners have such neurons.
        """
        undefined = ~(some & others)
        if self.numbers is not None:
            self.numbers.masked_fill_(undefined, -1)
        return self.values.double().clamp_(-1, 1).masked_fill_(undefined, torch.nan)


def both_ways(
    columns: Columns,
    a: int,
    others: Sequence[int],
    known: Known,
    *,
    keep: bool = False,
    signed: bool = False,
) -> tuple[Best, Best]:
    """Return the best of layer a with each of the others, and of each of the others with a.

    Correlations count with their signs if ``signed``. The numbers of the best partners are found if
    they are to ``keep``.
    """
    like, dtype = columns.layers[0], columns.dtype
    ahead = Best((len(others), columns.widths[a]), keep, like, dtype)
    back = Best((len(others), max(columns.widths)), keep, like, dtype)
    # A neuron without a variance is nobody's partner.
    penalties = torch.zeros(known.some.shape, dtype=dtype, device=like.device)
    penalties.masked_fill_(~known.some, -torch.inf)
    for left, b, right, of_a, of_b in columns.pairs(a, others):
        products = product(of_a, of_b)
        if not signed:
            products.abs_()
        products.add_(penalties[a, left, None]).add_(penalties[b, right])
        row = b - others[0]
        ahead.update(row, left, products, 1, right.start)
        back.update(row, right, products, 0, left.start)
    return ahead, back


def bytes_of_bests(layers: Sequence[Tensor]) -> int:
    """Return the bytes of the best of one layer with all others, both ways."""
    return 48 * len(layers) * max(layer.shape[1] for layer in layers)


def best_partners(
    x: Sequence[Tensor], y: Sequence[Tensor], keep: bool, max_memory: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute ``simcore::best_partners``."""
    check_layers(x, y)
    layers, first_y = [*x, *y], len(x) if y else 0
    columns = Columns(layers, memory_bound(max_memory, x[0]), bytes_of_bests(layers))
    known, widths = Known.of(layers), columns.widths
    starts = [0, *itertools.accumulate(widths)]
    grid = x[0].new_full((len(x), len(y) or len(x)), torch.nan, dtype=torch.float64)
    shape = (starts[len(x)] if keep else 0, grid.shape[1])
    best = grid.new_full(shape, torch.nan)
    partner = torch.full(shape, -1, dtype=torch.int64, device=grid.device)
    for a in reported(range(len(x))):
        rows, others = slice(starts[a], starts[a + 1]), range(first_y or a + 1, len(layers))
        of_a = known.some[a, : widths[a]]
        if not y:  # a neuron is its own best partner
            ones = torch.ones_like(of_a, dtype=torch.float64).masked_fill_(~of_a, torch.nan)
            grid[a, a] = ones.nanmean()
            if keep:
                best[rows, a] = ones
                own = torch.arange(widths[a], device=grid.device)
                partner[rows, a] = own.masked_fill_(~of_a, -1)
        if not others:
            continue
        ahead, back = both_ways(columns, a, others, known, keep=keep)
        later = slice(others.start, others.stop)
        at = slice(others.start - first_y, others.stop - first_y)
        values = ahead.finish(of_a, known.any[later, None])
        grid[a, at] = values.nanmean(1)
        if ahead.numbers is not None:
            best[rows, at], partner[rows, at] = values.T, ahead.numbers.T
        if y:
            continue
        values = back.finish(known.some[later], known.any[a])
        grid[at, a] = values.nanmean(1)
        if back.numbers is not None:
            for b, of_b, numbers in zip(others, values, back.numbers, strict=True):
                part = slice(starts[b], starts[b + 1])
                best[part, a], partner[part, a] = of_b[: widths[b]], numbers[: widths[b]]
    return grid, best, partner


def multiple_correlations(x: Sequence[Tensor], y: Sequence[Tensor], max_memory: int) -> Tensor:
    """Compute ``simcore::multiple_correlations``; the layers of y are orthonormal bases."""
    if not y:
        raise ValueError("Y: wanted at least one layer, got none")
    check_layers(x, y)
    held = 8 * len(y) * max(layer.shape[1] for layer in x)
    columns = Columns(x, memory_bound(max_memory, x[0]), held, others=y)
    empty = torch.stack([~varying(basis).any() for basis in y])  # [Ly]
    grid = torch.empty(len(x), len(y), dtype=torch.float64, device=x[0].device)
    for a in reported(range(len(x))):
        squares = grid.new_zeros(len(y), columns.widths[a])
        for left in tiles(columns.widths[a], columns.side):
            units = columns.tile(a, left)  # centred, so that the mean of a basis does not matter
            for of_basis, basis in zip(squares, y, strict=True):
                for right in tiles(basis.shape[1], columns.side):
                    products = product(units, basis[:, right].to(columns.dtype))
                    of_basis[left] += products.square_().sum(1, dtype=torch.float64)
        undefined = ~varying(x[a]) | empty[:, None]
        values = squares.sqrt_().clamp_(max=1.0).masked_fill_(undefined, torch.nan)
        grid[a] = values.nanmean(1)
    return grid


# Registered in simcore/_ops/neurons.py.
OPERATORS: dict[str, Callable[..., object]] = {
    "best_partners": in_full_float32(best_partners),
    "multiple_correlations": in_full_float32(multiple_correlations),
}
