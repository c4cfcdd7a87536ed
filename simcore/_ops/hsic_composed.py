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
from simcore._grid.inputs import BLOCK_ENTRIES, DEVICE_BLOCK_ENTRIES, check_finite
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
class _Stack:
    """Layers of one width and dtype, read together: many launches would take longer than they do.

    Entries are centred and brought near 1: ``(x - first - mean) / power``.
    """

    numbers: list[int]
    layers: list[Tensor]  # W of [n, p]
    first: Tensor  # [W, 1, p], float64
    mean: Tensor  # [W, 1, p]
    power: Tensor  # [W, 1, 1]
    entries: int  # the most that are read at a time

    def blocks(self, rows: slice) -> Iterator[tuple[slice, slice]]:
        """Yield layers and rows of at most `entries` entries: several layers, or a part of one."""
        return _blocks(len(self.layers), rows, self.layers[0].shape[1], self.entries)

    def read(self, some: slice, rows: slice) -> Tensor:
        """Return some rows of some layers ``[w, rows, p]``, centred in float64."""
        values = torch.stack([layer[rows] for layer in self.layers[some]]).double()
        return values.sub_(self.first[some]).sub_(self.mean[some]).div_(self.power[some])

    def rows(self, rows: slice, dtype: torch.dtype) -> Tensor:
        """Return some rows of all layers, ``[W, rows, p]``."""
        count, width = rows.stop - rows.start, self.layers[0].shape[1]
        out = self.first.new_empty(len(self.layers), count, width, dtype=dtype)
        for some, block in self.blocks(rows):
            out[some, block.start - rows.start : block.stop - rows.start] = self.read(some, block)
        return out

    def of(self, wanted: set[int]) -> _Stack | None:
        """Return the wanted layers alone, if there are any."""
        kept = [place for place, number in enumerate(self.numbers) if number in wanted]
        if len(kept) == len(self.numbers):
            return self
        if not kept:
            return None
        numbers, layers = [self.numbers[k] for k in kept], [self.layers[k] for k in kept]
        first, mean, power = (
            torch.stack([values[k] for k in kept]) for values in (self.first, self.mean, self.power)
        )
        return _Stack(numbers, layers, first, mean, power, self.entries)


def _blocks(count: int, rows: slice, width: int, entries: int) -> Iterator[tuple[slice, slice]]:
    height = min(rows.stop - rows.start, max(1, entries // width))
    together = max(1, entries // (height * width))
    for some in tiles(count, together):
        for block in tiles(rows.stop - rows.start, height):
            yield some, slice(rows.start + block.start, rows.start + block.stop)


def _stacks(layers: Sequence[Tensor], entries: int) -> list[_Stack]:
    """Return the layers by width and dtype, with their means and powers."""
    numbers: dict[tuple[int, torch.dtype], list[int]] = {}
    for i, layer in enumerate(layers):
        numbers.setdefault((layer.shape[1], layer.dtype), []).append(i)
    most = BLOCK_ENTRIES if layers[0].device.type == "cpu" else DEVICE_BLOCK_ENTRIES
    return [
        _stack(alike, [layers[i] for i in alike], min(entries, most)) for alike in numbers.values()
    ]


def _stack(numbers: list[int], layers: list[Tensor], entries: int) -> _Stack:
    n, width = layers[0].shape
    # Constant columns become exactly 0.
    first = torch.stack([layer[0] for layer in layers]).double()[:, None]  # [W, 1, p]
    total, least, greatest = torch.zeros_like(first), first.clone(), first.clone()
    for some, rows in _blocks(len(layers), slice(0, n), width, entries):
        values = torch.stack([layer[rows] for layer in layers[some]])  # [w, rows, p]
        least[some] = torch.minimum(least[some], values.amin(1, keepdim=True))
        greatest[some] = torch.maximum(greatest[some], values.amax(1, keepdim=True))
        total[some] += values.double().sub_(first[some]).sum(1, keepdim=True)
    mean = total.div_(n)
    # Rounding keeps the order of entries: the largest is the least or the greatest of its column.
    ends = torch.cat([least, greatest], 1)  # [W, 2, p]
    largest = ends.sub_(first).sub_(mean).abs_().amax((1, 2), keepdim=True)
    exponent = torch.frexp(torch.where(largest > 0, largest, 1.0)).exponent
    power = torch.ldexp(torch.ones_like(largest), exponent)
    return _Stack(numbers, layers, first, mean, power, entries)


def in_order(groups: Sequence[Sequence[int]], values: Tensor) -> Tensor:
    """Return values of the layers of all groups ``[L, ...]`` in the order of the layers."""
    # Groups are the numbers of layers of one width. An index of numbers would wait for the device.
    if len(groups) == 1:
        return values
    numbers = [number for group in groups for number in group]
    rows = dict(zip(numbers, values.unbind(), strict=True))
    return torch.stack([rows[number] for number in range(len(rows))])


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
) -> tuple[Tensor, list[_Stack]]:
    """Return ``||Xc'Yc||_F^2`` ``[L, L]`` of the pairs of a result, and the layers' stacks."""
    # Squares are in units of the layers' powers.
    pairs = pairs_of(count_x, len(layers))
    n, widths = len(layers[0]), [layer.shape[1] for layer in layers]
    sizes = product_bytes(widths, pairs)
    rows, room = feature_rows(n, widths, sizes, dtype.itemsize, bound)
    stacks = _stacks(layers, rows * max(widths))
    squares = []
    for group in reported(_groups(pairs, sizes, room)):
        wanted = {layer for number in group for layer in pairs[number]}
        read = [part for stack in stacks if (part := stack.of(wanted))]
        sums = [
            torch.zeros(widths[a], widths[b], dtype=torch.float64, device=layers[0].device)
            for a, b in (pairs[number] for number in group)
        ]
        for tile in tiles(n, rows):
            parts: dict[int, Tensor] = {}  # [rows, p]
            for stack in read:
                parts |= zip(stack.numbers, stack.rows(tile, dtype).unbind(), strict=True)
            for total_of_pair, number in zip(sums, group, strict=True):
                a, b = pairs[number]
                total_of_pair += parts[a].T @ parts[b]
        squares += [total_of_pair.square_().sum() for total_of_pair in sums]
    return _grid_of(torch.stack(squares), count_x, len(layers)), stacks


def _grid_of(values: Tensor, count_x: int, count: int) -> Tensor:
    """Return the values of `_pairs` as ``[L, L]``, symmetric; 0 where there is no pair."""
    grid = values.new_zeros(count, count)
    if count_x == count:
        for a, row in enumerate(values.split([*range(count, 0, -1)])):
            grid[a, a:] = row
    else:
        grid.diagonal().copy_(values[:count])
        grid[:count_x, count_x:] = values[count:].view(count_x, -1)
    return grid.triu() + grid.triu(1).T


def _gram_squares(
    layers: Sequence[Tensor], count_x: int, dtype: torch.dtype, bound: int
) -> tuple[Tensor, list[_Stack]]:
    """Return the same as `_feature_squares`, from tiles of the Gram matrices of all layers."""
    n, count = len(layers[0]), len(layers)
    widths = [layer.shape[1] for layer in layers]
    on_cpu = layers[0].device.type == "cpu"
    side, _, held, entries = gram_side(n, widths, dtype.itemsize, bound, on_cpu)
    stacks = _stacks(layers, entries)
    whole = [stack.rows(slice(0, n), dtype) for stack in stacks] if held else []

    def rows_of(tile: slice) -> list[Tensor]:
        if held:
            return [rows[:, tile] for rows in whole]
        return [stack.rows(tile, dtype) for stack in stacks]

    total = torch.zeros(count, count, dtype=torch.float64, device=layers[0].device)
    for rows in reported(tiles(n, side)):
        left = rows_of(rows)
        for columns in tiles(n, side):
            if columns.start < rows.start:
                continue
            right = left if columns == rows else rows_of(columns)
            products = [torch.bmm(a, b.mT) for a, b in zip(left, right, strict=True)]
            # [L, rows * columns]
            grams = (torch.cat(products) if len(products) > 1 else products[0]).double().flatten(1)
            total.addmm_(grams, grams.T, alpha=1.0 if rows == columns else 2.0)
    groups = [stack.numbers for stack in stacks]
    total = in_order(groups, in_order(groups, total).T)
    return total.triu() + total.triu(1).T, stacks  # symmetric to the last bit


def _diagonals(stacks: Sequence[_Stack], dtype: torch.dtype) -> Tensor:
    """Return the diagonals of the Gram matrices, ``[L, n]`` float64."""
    n, diagonals = len(stacks[0].layers[0]), []
    for stack in stacks:
        diagonal = stack.first.new_empty(len(stack.layers), n)
        for some, rows in stack.blocks(slice(0, n)):
            diagonal[some, rows] = stack.read(some, rows).to(dtype).double().square().sum(2)
        diagonals.append(diagonal)
    return in_order([stack.numbers for stack in stacks], torch.cat(diagonals))


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
    products, stacks = by(layers, count_x, dtype, bound)
    values = _estimates(products, estimator, n, lambda: _diagonals(stacks, dtype))
    powers = torch.cat([stack.power.flatten() for stack in stacks])
    powers = in_order([stack.numbers for stack in stacks], powers)  # [L]
    values = values * powers.square()[:, None] * powers.square()
    own = values.diagonal()
    return values[:count_x, first_y:].clone(), own[:count_x].clone(), own[first_y:].clone()


def _estimates(products: Tensor, estimator: str, n: int, diagonals: Callable[[], Tensor]) -> Tensor:
    """Return the estimates of csrc/core/math/hsic_math.h; row sums of centred layers are 0."""
    # Without its diagonal d, row i of a Gram matrix sums to ``-d_i``.
    if estimator == "product":
        return products
    if estimator == "biased":
        return products / (n - 1.0) ** 2
    d = diagonals()
    crossed, totals = d @ d.T, d.sum(1)
    crossed = crossed.triu() + crossed.triu(1).T  # symmetric to the last bit
    means = totals[:, None] * totals / ((n - 1.0) * (n - 2.0))
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
    # Kernels alone have the lower precision; float64 layers have none.
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
