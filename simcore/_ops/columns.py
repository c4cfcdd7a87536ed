"""Tiles of the columns of layers, centred in float64, for products of the neurons of two layers.

Columns are made once and kept where the bound of memory has room for those of all layers. Else they
are made again for every product, a tile at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from simcore._grid.inputs import BLOCK_ENTRIES, DEVICE_BLOCK_ENTRIES, check_alike, check_finite
from simcore._ops.tiles import LEAST_SIDE, side_that_fits, tiles

MOST_COLUMNS = 2**12  # of either layer in one product
# Of one float32 product; the sums of several are float64. Terms of equal rows round the same way.
MOST_ROWS = 2**11
NARROW = 16  # fewer columns: their products are sums in the order of the rows, so they are float64
COPIES = 3  # float64 arrays of the size of a block that are held while columns are made


def dtype_of(layers: Sequence[Tensor]) -> torch.dtype:
    """Return float64 if a layer is, else float32."""
    return torch.float64 if any(t.dtype == torch.float64 for t in layers) else torch.float32


def check_layers(x: Sequence[Tensor], y: Sequence[Tensor]) -> None:
    """Raise a ValueError unless there are layers, of as many rows each, without NaN or infinity."""
    if not x:
        raise ValueError("X: wanted at least one layer, got none")
    for name, side in (("X", x), ("Y", y)):
        for i, layer in enumerate(side):
            check_alike(layer, f"{name}[{i}]", x[0], "X[0]")
        check_finite(side, name)


def varying(layer: Tensor) -> Tensor:
    """Return which neurons have a variance, ``[p]`` bool."""
    return layer.amax(0) != layer.amin(0)


def block_columns(layer: Tensor) -> int:
    """Return of how many columns float64 copies are made at a time."""
    entries = BLOCK_ENTRIES if layer.device.type == "cpu" else DEVICE_BLOCK_ENTRIES
    # Fewer would use a part of each cache line alone.
    return min(max(LEAST_SIDE, entries // len(layer)), layer.shape[1])


def _row_blocks(columns: Tensor) -> tuple[Tensor, ...]:
    entries = BLOCK_ENTRIES // 2 if columns.device.type == "cpu" else DEVICE_BLOCK_ENTRIES
    return columns.split(max(1, entries // columns.shape[1]))  # float64 copies fit into the cache


def mean_row(columns: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first row and the mean of the rows less the first, float64 ``[c]``."""
    first = columns[0].double()
    sums = torch.stack([(block - first).sum(0) for block in _row_blocks(columns)])
    return first, sums.sum(0) / len(columns)


def write_centred(columns: Tensor, out: Tensor, scale: Tensor | None = None) -> None:
    """Write the centred columns ``[n, c]`` times ``scale``, by default of length 1, or zeros."""
    first, offset = mean_row(columns)
    blocks = _row_blocks(columns)

    def centred(block: Tensor) -> Tensor:  # constant columns are exactly 0
        return (block - first).sub_(offset)

    if scale is None:
        squares = torch.stack([centred(block).square_().sum(0) for block in blocks]).sum(0)  # [c]
        scale = torch.where(squares > 0, squares.rsqrt(), 0.0)
    for block, part in zip(blocks, out.split(len(blocks[0])), strict=True):
        part.copy_(centred(block).mul_(scale))


def product(of_a: Tensor, of_b: Tensor, out: Tensor | None = None) -> Tensor:
    """Return ``of_a' of_b`` without the rounding of long float32 sums."""
    narrow = min(of_a.shape[1], of_b.shape[1]) < NARROW
    if of_a.dtype == torch.float64 or (len(of_a) <= MOST_ROWS and not narrow):
        return torch.mm(of_a.T, of_b, out=out)
    total = of_a.new_zeros((of_a.shape[1], of_b.shape[1]), dtype=torch.float64)
    if narrow:
        step = len(_row_blocks(of_a)[0])
        for rows in tiles(len(of_a), step):
            total.addmm_(of_a[rows].T.double(), of_b[rows].double())
    else:
        for rows in tiles(len(of_a), MOST_ROWS):
            total += of_a[rows].T @ of_b[rows]
    return total.to(of_a.dtype) if out is None else out.copy_(total)


class Columns:
    """Tiles of the centred columns of layers, ``[n, c]``: of unit length, or times ``scales``."""

    def __init__(
        self,
        layers: Sequence[Tensor],
        bound: int,  # bytes of all, beside `held`
        held: int,
        scales: Sequence[Tensor] | None = None,
        others: Sequence[Tensor] | None = None,  # layers that products take as they are
    ) -> None:
        self.layers, self.dtype = layers, dtype_of([*layers, *(others or ())])
        self._scales = scales
        n, item = len(layers[0]), self.dtype.itemsize
        self.widths = [layer.shape[1] for layer in layers]
        widest = max(layer.shape[1] for layer in [*layers, *(others or ())])
        held += 8 * COPIES * max(_row_blocks(layer)[0].numel() for layer in layers)
        # A tile of either side, and the products of two tiles before and after a step.
        of_column, of_entry = 2 * n * item, 2 * item + 8
        purpose = "the products of a pair"
        side = side_that_fits(bound, held, of_column, of_entry, widest, purpose, bound)
        self.side = min(side, MOST_COLUMNS)
        room = bound - held - of_column * self.side - of_entry * self.side**2
        whole = n * item * sum(self.widths)
        self.left = max(0, room - whole)  # bytes
        self._kept: list[Tensor] | None = None
        # Where tiles are made again, those of a side are written to the same memory.
        self._sides: tuple[Tensor, ...] = ()
        if whole <= room and others is None:  # else a tile is made once
            self._kept = [self._empty(p) for p in self.widths]
            for i, kept in enumerate(self._kept):
                self._write(i, slice(0, kept.shape[1]), kept)
        else:
            self._sides = tuple(self._empty(min(self.side, widest)) for _ in range(2))

    def _empty(self, columns: int) -> Tensor:
        return self.layers[0].new_empty((len(self.layers[0]), columns), dtype=self.dtype)

    def _write(self, i: int, part: slice, out: Tensor) -> None:
        scale = None if self._scales is None else self._scales[i]
        write_centred(self.layers[i][:, part], out, scale)

    def tile(self, i: int, part: slice, side: int = 0) -> Tensor:
        """Return some columns of layer i, valid until the next tile of this side."""
        if self._kept is not None:
            return self._kept[i][:, part]
        result = self._sides[side][:, : part.stop - part.start]
        self._write(i, part, result)
        return result

    def pairs(
        self, a: int, others: Sequence[int]
    ) -> Iterator[tuple[slice, int, slice, Tensor, Tensor]]:
        """Yield a tile of layer a, one of the others, a tile of it, and the columns of both."""
        for left in tiles(self.widths[a], self.side):
            of_a = self.tile(a, left)
            for b in others:
                for right in tiles(self.widths[b], self.side):
                    yield left, b, right, of_a, self.tile(b, right, 1)
