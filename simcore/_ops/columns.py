"""Tiles of the columns of layers, centred in float64, for products of the neurons of two layers.

Columns are made once and kept where the bound of memory has room for those of all layers. Else they
are made again for every product, a tile at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from simcore._grid.inputs import BLOCK_ENTRIES, DEVICE_BLOCK_ENTRIES, centred
from simcore._ops.tiles import LEAST_SIDE, side_that_fits, tiles

MOST_COLUMNS = 2**12  # of either layer in one product
MOST_ROWS = 2**13  # of one float32 product: the sums of several are float64
COPIES = 3  # float64 arrays of the size of a block that are held while columns are made


def dtype_of(layers: Sequence[Tensor]) -> torch.dtype:
    """Return float64 if a layer is, else float32."""
    return torch.float64 if any(t.dtype == torch.float64 for t in layers) else torch.float32


def varying(layer: Tensor) -> Tensor:
    """Return which neurons have a variance, ``[p]`` bool."""
    return layer.amax(0) != layer.amin(0)


def block_columns(layer: Tensor) -> int:
    """Return of how many columns float64 copies are made at a time."""
    entries = BLOCK_ENTRIES if layer.device.type == "cpu" else DEVICE_BLOCK_ENTRIES
    # Fewer would use a part of each cache line alone.
    return min(max(LEAST_SIDE, entries // len(layer)), layer.shape[1])


def of_unit_length(columns: Tensor) -> Tensor:
    """Return centred columns ``[n, c]`` of length 1, or zeros, float64."""
    result = centred(columns)
    lengths = result.square().sum(0).sqrt_()  # [c]
    return result.div_(torch.where(lengths > 0, lengths, 1.0))


def product(of_a: Tensor, of_b: Tensor, out: Tensor | None = None) -> Tensor:
    """Return ``of_a' of_b``; float32 sums over a million rows would lose digits."""
    if len(of_a) <= MOST_ROWS or of_a.dtype == torch.float64:
        return torch.mm(of_a.T, of_b, out=out)
    total = of_a.new_zeros((of_a.shape[1], of_b.shape[1]), dtype=torch.float64)
    for rows in tiles(len(of_a), MOST_ROWS):
        total += of_a[rows].T @ of_b[rows]
    return total.to(of_a.dtype) if out is None else out.copy_(total)


class Columns:
    """Columns of layers as products take them, ``[n, c]``: ``make`` of some columns of a layer."""

    def __init__(
        self,
        layers: Sequence[Tensor],
        bound: int,  # bytes of all, beside `held`
        held: int,
        make: Callable[[int, slice], Tensor] | None = None,  # by default of unit length
        others: Sequence[Tensor] | None = None,  # layers that products take as they are
    ) -> None:
        self.layers, self.dtype = layers, dtype_of([*layers, *(others or ())])
        self._make = make or (lambda i, part: of_unit_length(layers[i][:, part]))
        n, item = len(layers[0]), self.dtype.itemsize
        self.widths = [layer.shape[1] for layer in layers]
        widest = max(layer.shape[1] for layer in [*layers, *(others or ())])
        held += 8 * COPIES * n * max(map(block_columns, layers))
        # One tile of either layer, and the products of two tiles before and after a step.
        of_column, of_entry = 2 * n * item, 2 * item + 8
        purpose = "the products of a pair"
        side = side_that_fits(bound, held, of_column, of_entry, widest, purpose, bound)
        self.side = min(side, MOST_COLUMNS)
        room = bound - held - of_column * self.side - of_entry * self.side**2
        whole = n * item * sum(self.widths)
        self.left = max(0, room - whole)  # bytes
        self._kept: list[Tensor] | None = None
        if whole <= room and others is None:  # else a tile is made once
            self._kept = [self._made(i, slice(0, p)) for i, p in enumerate(self.widths)]

    def __call__(self, i: int, part: slice) -> Tensor:
        """Return some columns of layer i."""
        return self._made(i, part) if self._kept is None else self._kept[i][:, part]

    def _made(self, i: int, part: slice) -> Tensor:
        layer = self.layers[i]
        result = layer.new_empty((len(layer), part.stop - part.start), dtype=self.dtype)
        for block in tiles(result.shape[1], block_columns(layer)):
            of_layer = slice(part.start + block.start, part.start + block.stop)
            result[:, block] = self._make(i, of_layer)
        return result

    def pairs(
        self, a: int, others: Sequence[int]
    ) -> Iterator[tuple[slice, int, slice, Tensor, Tensor]]:
        """Yield a tile of layer a, one of the others, a tile of it, and the columns of both."""
        for left in tiles(self.widths[a], self.side):
            of_a = self(a, left)
            for b in others:
                for right in tiles(self.widths[b], self.side):
                    yield left, b, right, of_a, self(b, right)
