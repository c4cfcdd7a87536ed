"""HSIC of the linear kernel by torch's matrix products; CUDA devices use it for long inputs.

``sum_ij K_ij L_ij = ||Xc'Yc||_F^2``: either by the products of features (n p q flops for each
pair) or by tiles of Gram matrices (n^2 p for each layer and n^2 for each pair). The functions run
on any device: tests compare them on CPU tensors with the twins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from simcore._extension import PURE
from simcore._grid.inputs import check_finite, row_blocks
from simcore._grid.memory import memory_bound
from simcore._grid.progress import reported
from simcore._ops.composed import in_full_float32
from simcore._ops.hsic_plan import (
    feature_rows,
    flops,
    gram_side,
    pairs_of,
    plan_hsic,
    product_bytes,
)
from simcore._ops.tiles import tiles

Terms = tuple[Tensor, Tensor, Tensor]
# Flops of Gram matrices from which on the launches of many products take no time beside them.
MANY_FLOPS = 1e11


@dataclass(frozen=True)
class _Layer:
    """How the entries of a layer are centred and brought near 1: ``(x - first - mean) / power``."""

    values: Tensor
    first: Tensor
    mean: Tensor
    power: Tensor

    def rows(self, tile: slice, dtype: torch.dtype) -> Tensor:
        """Return some rows, centred in float64."""
        values = self.values[tile]
        return self.write(tile, values.new_empty(values.shape, dtype=dtype))

    def write(self, tile: slice, out: Tensor) -> Tensor:
        """Write some rows, centred in float64, as many at a time as a cache holds."""
        blocks = row_blocks(self.values[tile])
        for values, part in zip(blocks, out.split(len(blocks[0])), strict=True):
            shifted = (values.double() - self.first).sub_(self.mean)
            part.copy_(shifted.div_(self.power))
        return out


def _read(layer: Tensor, rows: int) -> _Layer:
    first = layer[0].double()  # constant columns become exactly 0
    rows = min(rows, len(row_blocks(layer)[0]))
    sums = [(layer[tile].double() - first).sum(0) for tile in tiles(len(layer), rows)]  # [p] each
    mean = torch.stack(sums).sum(0) / len(layer)  # [p]
    # Rounding keeps the order of entries: the largest is the least or the greatest of its column.
    ends = torch.stack([layer.amin(0), layer.amax(0)]).double()  # [2, p]
    largest = (ends - first - mean).abs().max()  # []
    exponent = torch.frexp(torch.where(largest > 0, largest, 1.0)).exponent
    return _Layer(layer, first, mean, torch.ldexp(torch.ones_like(largest), exponent))


def _groups(pairs: list[tuple[int, int]], sizes: list[int], room: int) -> Iterator[list[int]]:
    """Yield the numbers of pairs whose sizes are at most ``room`` together; one at least."""
    group: list[int] = []
    left = room
    for number in range(len(pairs)):
        if group and sizes[number] > left:
            yield group
            group, left = [], room
        group.append(number)
        left -= sizes[number]
    yield group


def _feature_squares(
    layers: Sequence[Tensor], count_x: int, dtype: torch.dtype, bound: int
) -> tuple[Tensor, list[_Layer]]:
    """Return ``||Xc'Yc||_F^2`` ``[L, L]`` of the pairs that a result has, and how layers are read.

    Squares are in units of the layers' powers.
    """
    pairs = pairs_of(count_x, len(layers))
    n, widths = len(layers[0]), [layer.shape[1] for layer in layers]
    sizes = product_bytes(widths, pairs)
    rows, room = feature_rows(n, widths, sizes, dtype.itemsize, bound)
    read = [_read(layer, rows) for layer in layers]
    squares = []
    for group in reported(_groups(pairs, sizes, room)):
        needed = sorted({layer for number in group for layer in pairs[number]})
        sums = [
            torch.zeros(widths[a], widths[b], dtype=torch.float64, device=layers[0].device)
            for a, b in (pairs[number] for number in group)
        ]
        for tile in tiles(n, rows):
            part = {layer: read[layer].rows(tile, dtype) for layer in needed}  # [rows, p] each
            for total_of_pair, number in zip(sums, group, strict=True):
                a, b = pairs[number]
                total_of_pair += part[a].T @ part[b]  # [p, q]
        squares += [total_of_pair.square_().sum() for total_of_pair in sums]  # [] each
    return _grid_of(torch.stack(squares), count_x, len(layers)), read


def _grid_of(values: Tensor, count_x: int, count: int) -> Tensor:
    """Return the values of `_pairs` as ``[L, L]``, symmetric; 0 where there is no pair."""
    grid = values.new_zeros(count, count)  # [L, L]
    if count_x == count:
        for a, row in enumerate(values.split([*range(count, 0, -1)])):
            grid[a, a:] = row
    else:
        grid.diagonal().copy_(values[:count])
        grid[:count_x, count_x:] = values[count:].view(count_x, -1)  # [Lx, Ly]
    return grid.triu() + grid.triu(1).T


def _gram_squares(
    layers: Sequence[Tensor], count_x: int, dtype: torch.dtype, bound: int
) -> tuple[Tensor, list[_Layer]]:
    """Return the same as `_feature_squares`, computed from tiles of Gram matrices."""
    n, count = len(layers[0]), len(layers)
    widths = [layer.shape[1] for layer in layers]
    on_cpu = layers[0].device.type == "cpu"
    side, _, held = gram_side(n, widths, dtype.itemsize, bound, on_cpu)
    read = [_read(layer, side) for layer in layers]
    every = _stacks(read, slice(0, n), side, dtype) if held else []

    def rows_of(tile: slice) -> list[tuple[list[int], Tensor]]:
        if held:
            return [(alike, stack[:, tile]) for alike, stack in every]  # [W, rows, width] each
        return _stacks(read, tile, side, dtype)

    total = torch.zeros(count, count, dtype=torch.float64, device=layers[0].device)
    for rows in reported(tiles(n, side)):
        left = rows_of(rows)
        for columns in tiles(n, side):
            if columns.start < rows.start:
                continue
            right = left if columns == rows else rows_of(columns)
            grams = _tiles_of_grams(left, right).flatten(1)  # [L, rows * columns]
            total.addmm_(grams, grams.T, alpha=1.0 if rows == columns else 2.0)
    return total.triu() + total.triu(1).T, read  # symmetric to the last bit


def _stacks(
    read: Sequence[_Layer], rows: slice, side: int, dtype: torch.dtype
) -> list[tuple[list[int], Tensor]]:
    """Return rows of the centred layers of one width ``[W, rows, width]``, with their numbers."""
    members: dict[int, list[int]] = {}
    for i, layer in enumerate(read):
        members.setdefault(layer.values.shape[1], []).append(i)
    stacks, count = [], rows.stop - rows.start
    for width, alike in members.items():
        stack = torch.empty(len(alike), count, width, dtype=dtype, device=read[0].values.device)
        for at, i in enumerate(alike):
            read[i].write(rows, stack[at])
        stacks.append((alike, stack))
    return stacks


def _tiles_of_grams(
    left: Sequence[tuple[list[int], Tensor]], right: Sequence[tuple[list[int], Tensor]]
) -> Tensor:
    """Return a tile of the Gram matrices of all layers ``[L, rows, columns]``, float64."""
    tiles: dict[int, Tensor] = {}
    for (alike, rows), (_, columns) in zip(left, right, strict=True):
        products = torch.bmm(rows, columns.mT)  # [W, rows, columns]
        if len(left) == 1:
            return products.double()
        tiles |= zip(alike, products.unbind(), strict=True)
    return torch.stack([tiles[i] for i in range(len(tiles))]).double()  # [L, rows, columns]


def _diagonals(read: Sequence[_Layer], dtype: torch.dtype) -> Tensor:
    """Return the diagonals of the Gram matrices, ``[L, n]`` float64."""
    n, rows = len(read[0].values), min(len(row_blocks(x.values)[0]) for x in read)
    return torch.stack(
        [
            torch.cat([x.rows(tile, dtype).double().square().sum(1) for tile in tiles(n, rows)])
            for x in read
        ]
    )


def composed_terms(
    x: Sequence[Tensor], y: Sequence[Tensor], estimator: str, method: str, max_memory: int
) -> Terms:
    """Compute ``simcore::hsic_terms`` of the linear kernel; ``method`` is "feature" or "gram"."""
    check_finite(x, "X")
    check_finite(y, "Y")
    layers, count_x = [*x, *y], len(x)
    n, count, first_y = len(layers[0]), len(layers), 0 if not y else count_x
    wide = any(layer.dtype == torch.float64 for layer in layers)
    dtype = torch.float64 if wide else torch.float32
    diagonal_bytes = 24 * n * count if estimator == "unbiased" else 0
    bound = max(memory_bound(max_memory, layers[0]) - diagonal_bytes, 1)
    by = _feature_squares if method == "feature" else _gram_squares
    products, read = by(layers, count_x, dtype, bound)  # [L, L]
    values = _estimates(products, estimator, n, lambda: _diagonals(read, dtype))
    powers = torch.stack([layer.power for layer in read])  # [L]
    values = values * powers.square()[:, None] * powers.square()
    own = values.diagonal()  # [L]
    return values[:count_x, first_y:].clone(), own[:count_x].clone(), own[first_y:].clone()


def _estimates(products: Tensor, estimator: str, n: int, diagonals: Callable[[], Tensor]) -> Tensor:
    """Return the estimates of csrc/core/math/hsic_math.h, whose row sums are 0 for centred layers.

    Without its diagonal d, row i of a Gram matrix sums to ``-d_i``.
    """
    if estimator == "product":
        return products
    if estimator == "biased":
        return products / (n - 1.0) ** 2
    d = diagonals()  # [L, n]
    crossed, totals = d @ d.T, d.sum(1)  # [L, L], [L]
    crossed = crossed.triu() + crossed.triu(1).T  # symmetric to the last bit
    means = totals[:, None] * totals / ((n - 1.0) * (n - 2.0))  # [L, L]
    return (products - crossed + means - 2.0 / (n - 2.0) * crossed) / (n * (n - 3.0))


def _choice(
    x: Sequence[Tensor],
    y: Sequence[Tensor],
    kernel: str,
    method: str,
    precision: str,
    max_memory: int,
) -> str:
    """Return the form of `composed_terms` to take, or "" for the kernels."""
    if kernel != "linear" or method == "feature":
        return method if method == "feature" else ""
    wide = any(layer.dtype == torch.float64 for layer in (*x, *y))
    widths_x, widths_y = ([layer.shape[1] for layer in side] for side in (x, y))
    if PURE and x[0].device.type == "cpu":
        given = len(x[0]), widths_x, widths_y, kernel, 1.0, method, wide, max_memory
        return plan_hsic(*given).method
    gram, feature = flops(len(x[0]), widths_x, widths_y, kernel)
    if gram < MANY_FLOPS or (precision == "medium" and not wide):
        return ""
    if method == "auto" and feature < gram:
        return "feature"
    return "gram" if wide else ""


def hsic_terms(
    x: Sequence[Tensor],
    y: Sequence[Tensor],
    kernel: str,
    estimator: str,
    bandwidth: float,
    method: str,
    max_memory: int,
    precision: str = "highest",
) -> Terms:
    """Compute ``simcore::hsic_terms`` on a CUDA device, by torch's products or by kernels."""
    form = _choice(x, y, kernel, method, precision, max_memory)
    if form and kernel != "linear":
        raise ValueError(
            f"method: wanted 'auto' or 'gram' for kernel {kernel!r}, which has no feature form, "
            "got 'feature'"
        )
    capturing = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
    if form and not (capturing and method != "feature"):
        try:
            return composed_terms(x, y, estimator, form, max_memory)
        except ValueError as refused:
            # The kernels may do with less memory.
            if method == "feature" or not str(refused).startswith("max_memory"):
                raise
    launch = torch.ops.simcore.gram_terms
    terms: Terms = launch(x, y, kernel, estimator, bandwidth, max_memory, precision)
    return terms


# Registered for CUDA in simcore/_ops/hsic.py.
OPERATORS: dict[str, Callable[..., object]] = {"hsic_terms": in_full_float32(hsic_terms)}
