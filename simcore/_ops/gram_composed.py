"""HSIC of Gram matrices in torch's own operations: ``simcore::gram_terms`` without its kernels.

The functions run on any device: tests compare them on CPU tensors with the twins. Gram matrices of
the linear kernel are in `simcore._ops.hsic_composed`; here are the RBF kernel and distances, whose
products and sums are float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from simcore._grid.inputs import check_finite
from simcore._grid.memory import memory_bound
from simcore._grid.progress import reported
from simcore._ops.composed import centred_columns
from simcore._ops.hsic_composed import Terms, composed_terms, in_order
from simcore._ops.hsic_plan import EXACT_MEDIAN_ROWS, distance_side
from simcore._ops.tiles import tiles

MEDIAN_ROWS = 256  # whose distances from all others are computed at a time


def _shortened(squares: Tensor, width: int) -> Tensor:
    """Take from squared lengths of rows ``[..., width]`` what rounding adds to distances.

    Sums of squares and products of rows round differently, so that equal rows would be apart by
    some units of their lengths, and an RBF kernel could have the width of this rounding.
    """
    units = 8 + 2 * math.sqrt(width)
    return squares.mul_(1 - units * torch.finfo(squares.dtype).eps / 2)


@dataclass(frozen=True)
class _Stack:
    """Layers of one width, and the function of their squared distances that is a Gram matrix."""

    rows: Tensor  # [W, n, p] float64, centred and scaled
    squares: Tensor  # [W, n], the squared lengths of the rows, `_shortened`
    # [W, 1, 1], `1 / (2 sigma^2)` of the RBF kernel; None: Gram matrices hold distances.
    gamma: Tensor | None
    # [W, 1, 1], subtracted from every entry: HSIC is blind to it, and the sums cancel less.
    shift: Tensor

    def write(self, left: slice, right: slice, out: Tensor) -> None:
        """Write a tile of each Gram matrix ``[W, l, r]``; a row has the distance 0 from itself."""
        # A cache holds the tile of one layer; a device gets few launches.
        together = 1 if out.device.type == "cpu" else len(out)
        for some in tiles(len(out), together):
            rows, squares, entries = self.rows[some], self.squares[some], out[some]
            torch.baddbmm(
                squares[:, None, right], rows[:, left], rows[:, right].mT, alpha=-2, out=entries
            )
            entries.add_(squares[:, left, None]).clamp_(min=0)
            if left == right:
                entries.diagonal(dim1=1, dim2=2).zero_()
            if self.gamma is None:
                entries.sqrt_()
            else:
                entries.mul_(-self.gamma[some]).exp_()
            entries.sub_(self.shift[some])


def median(rows: Tensor) -> Tensor:
    """Return the median of the squared distances over all ordered pairs, the diagonal included."""
    kept = rows[:: -(-len(rows) // EXACT_MEDIAN_ROWS)]
    n, lengths = len(kept), _shortened(kept.square().sum(1), kept.shape[1])
    distances = lengths.new_empty(n * (n - 1) // 2)  # of each pair once
    end = 0
    for i in range(0, n - 1, MEDIAN_ROWS):
        tile = torch.addmm(lengths[i:], kept[i : i + MEDIAN_ROWS], kept[i:].T, alpha=-2)
        tile.add_(lengths[i : i + MEDIAN_ROWS, None]).clamp_(min=0)
        rows, columns = torch.triu_indices(len(tile), tile.shape[1], 1, device=tile.device)
        distances[end : end + len(rows)] = tile[rows, columns]
        end += len(rows)
    # In the order of all n^2, n zeros of the diagonal come first, and then each pair twice.
    middle = [max((place - n) // 2, -1) for place in ((n * n - 1) // 2, n * n // 2)]
    if middle[0] == -1:
        low = lengths.new_zeros(())
    else:
        low = distances.kthvalue(middle[0] + 1).values
    if middle[0] == middle[1]:
        return low
    # The next one; a second selection would take longer than these passes.
    above = torch.where(distances > low, distances, torch.inf).amin()
    return (low + torch.where((distances <= low).sum() > middle[1], low, above)) / 2


def _read(
    layers: Sequence[Tensor], kernel: str, bandwidth: float, shifted: bool
) -> tuple[_Stack, Tensor]:
    """Return layers of one width, and the powers of two that their Gram matrices are divided by."""
    n, width = layers[0].shape
    rows = layers[0].new_empty(len(layers), n, width, dtype=torch.float64)
    squares, powers = rows.new_empty(len(layers), n), []
    for i, layer in enumerate(layers):  # one at a time, for the memory of their copies
        centred, power = centred_columns(layer)
        rows[i] = centred
        squares[i] = centred.square_().sum(1)
        powers.append(power)
    _shortened(squares, width)
    units = torch.stack(powers)  # [W]
    shift = torch.zeros_like(units)
    if kernel == "distance":
        if shifted:
            shift = (2 * squares.sum(1) / (n - 1)).sqrt()
        return _Stack(rows, squares, None, shift[:, None, None]), units
    medians = torch.stack([median(layer) for layer in rows])
    # A median of 0 leaves the width undefined: every entry, and every sum of the layer, is nan.
    medians = torch.where(medians > 0, medians, torch.nan)
    gamma = (0.5 / (bandwidth**2 * medians)).clamp(max=torch.finfo(torch.float64).max)
    if shifted:
        shift = shift + math.exp(-0.5 / bandwidth**2)
    return _Stack(rows, squares, gamma[:, None, None], shift[:, None, None]), torch.ones_like(units)


def _values(products: Tensor, crossed: Tensor, sums: Tensor, estimator: str, n: int) -> Tensor:
    """Return the estimates of csrc/core/math/hsic_math.h."""
    # ``crossed`` are the products of two layers' row sums, ``sums`` the sums of all entries. For
    # the unbiased estimator the diagonals are 0.
    totals = sums[:, None] * sums
    if estimator == "product":
        return products
    if estimator == "biased":
        return (products - 2 / n * crossed + totals / n**2) / (n - 1.0) ** 2
    means = totals / ((n - 1.0) * (n - 2.0))
    return (products + means - 2 / (n - 2.0) * crossed) / (n * (n - 3.0))


def _sums(stacks: Sequence[_Stack], side: int, without_diagonal: bool) -> tuple[Tensor, Tensor]:
    """Return the sums of entrywise products of all pairs ``[L, L]``, and row sums ``[L, n]``."""
    counts, n = [len(stack.rows) for stack in stacks], stacks[0].rows.shape[1]
    products = stacks[0].rows.new_zeros(sum(counts), sum(counts))
    row_sums = stacks[0].rows.new_zeros(sum(counts), n)
    for rows in reported(tiles(n, side)):
        for columns in tiles(n, side):
            if columns.start < rows.start:
                continue
            height, width = rows.stop - rows.start, columns.stop - columns.start
            grams = products.new_empty(sum(counts), height, width)
            for stack, out in zip(stacks, grams.split(counts), strict=True):
                stack.write(rows, columns, out)
            if rows == columns:
                if without_diagonal:
                    grams.diagonal(dim1=1, dim2=2).zero_()
            else:
                row_sums[:, columns] += grams.sum(1)
            row_sums[:, rows] += grams.sum(2)
            flat = grams.flatten(1)  # [L, rows * columns]
            products.addmm_(flat, flat.T, alpha=1.0 if rows == columns else 2.0)
    return products.triu() + products.triu(1).T, row_sums  # symmetric to the last bit


def gram_terms(
    x: Sequence[Tensor],
    y: Sequence[Tensor],
    kernel: str,
    estimator: str,
    bandwidth: float,
    max_memory: int,
    precision: str,
) -> Terms:
    """Compute ``simcore::gram_terms``; every `precision` is computed as the highest."""
    if kernel == "linear":
        return composed_terms(x, y, estimator, "gram", max_memory)
    check_finite(x, "X")
    check_finite(y, "Y")
    layers, count_x = [*x, *y], len(x)
    first_y, widths = 0 if not y else count_x, [layer.shape[1] for layer in layers]
    bound, on_cpu = memory_bound(max_memory, x[0]), x[0].device.type == "cpu"
    side, _ = distance_side(len(x[0]), widths, kernel, bound, on_cpu)
    shifted = estimator != "product"
    by_width = [[i for i, p in enumerate(widths) if p == width] for width in dict.fromkeys(widths)]
    read = [_read([layers[i] for i in alike], kernel, bandwidth, shifted) for alike in by_width]
    products, row_sums = _sums([stack for stack, _ in read], side, estimator == "unbiased")
    crossed = row_sums @ row_sums.T  # [L, L]
    crossed = crossed.triu() + crossed.triu(1).T
    values = _values(products, crossed, row_sums.sum(1), estimator, len(x[0]))
    scales = torch.cat([powers for _, powers in read])  # [L]
    values = values * scales[:, None] * scales
    values = in_order(by_width, in_order(by_width, values).T)
    own = values.diagonal()
    return values[:count_x, first_y:].clone(), own[:count_x].clone(), own[first_y:].clone()
