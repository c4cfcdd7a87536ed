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
from simcore._ops.hsic_composed import Terms, composed_terms
from simcore._ops.hsic_plan import EXACT_MEDIAN_ROWS, distance_side
from simcore._ops.tiles import tiles

MEDIAN_ROWS = 256  # whose distances from all others are computed at a time


@dataclass(frozen=True)
class _Layer:
    """A layer and the function of its squared distances that is its Gram matrix."""

    rows: Tensor  # [n, p] float64, centred and scaled
    squares: Tensor  # [n], the squared lengths of the rows
    # `1 / (2 sigma^2)` of the RBF kernel; None: the Gram matrix holds distances.
    gamma: Tensor | None
    shift: Tensor  # subtracted from every entry: HSIC is blind to it, and the sums cancel less

    def tile(self, left: slice, right: slice) -> Tensor:
        """Return a tile of the Gram matrix; a row has the distance 0 from itself."""
        entries = torch.addmm(self.squares[right], self.rows[left], self.rows[right].T, alpha=-2)
        entries.add_(self.squares[left, None]).clamp_(min=0)
        if left == right:
            entries.fill_diagonal_(0)
        if self.gamma is None:
            return entries.sqrt_().sub_(self.shift)
        return entries.mul_(-self.gamma).exp_().sub_(self.shift)


def _median(rows: Tensor) -> Tensor:
    """Return the median of the squared distances over all ordered pairs, the diagonal included."""
    kept = rows[:: -(-len(rows) // EXACT_MEDIAN_ROWS)]
    n, lengths = len(kept), kept.square().sum(1)  # lengths [n]
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


def _read(layer: Tensor, kernel: str, bandwidth: float, shifted: bool) -> tuple[_Layer, Tensor]:
    """Return a layer, and the power of two that the entries of its Gram matrix are divided by."""
    rows, power = centred_columns(layer)
    squares = rows.square().sum(1)  # [n]
    zero = torch.zeros_like(power)
    if kernel == "distance":
        shift = (2 * squares.sum() / (len(rows) - 1)).sqrt() if shifted else zero
        return _Layer(rows, squares, None, shift), power
    median = _median(rows)  # []
    # A median of 0 leaves the width undefined: every entry, and every sum of the layer, is nan.
    median = torch.where(median > 0, median, torch.nan)
    gamma = (0.5 / (bandwidth**2 * median)).clamp(max=torch.finfo(torch.float64).max)
    shift = zero + math.exp(-0.5 / bandwidth**2) if shifted else zero
    return _Layer(rows, squares, gamma, shift), torch.ones_like(power)


def _values(products: Tensor, crossed: Tensor, sums: Tensor, estimator: str, n: int) -> Tensor:
    """Return the estimates of csrc/core/math/hsic_math.h.

    ``crossed`` are the products of two layers' row sums, ``sums`` the sums of all entries. For the
    unbiased estimator the diagonals are 0.
    """
    totals = sums[:, None] * sums  # [L, L]
    if estimator == "product":
        return products
    if estimator == "biased":
        return (products - 2 / n * crossed + totals / n**2) / (n - 1.0) ** 2
    means = totals / ((n - 1.0) * (n - 2.0))
    return (products + means - 2 / (n - 2.0) * crossed) / (n * (n - 3.0))


def _sums(layers: Sequence[_Layer], side: int, without_diagonal: bool) -> tuple[Tensor, Tensor]:
    """Return the sums of entrywise products of all pairs ``[L, L]``, and row sums ``[L, n]``."""
    n, count = len(layers[0].rows), len(layers)
    products = layers[0].rows.new_zeros(count, count)
    row_sums = layers[0].rows.new_zeros(count, n)  # [L, n]
    for rows in reported(tiles(n, side)):
        for columns in tiles(n, side):
            if columns.start < rows.start:
                continue
            grams = torch.stack([layer.tile(rows, columns) for layer in layers])
            if rows == columns:
                if without_diagonal:
                    grams.diagonal(dim1=1, dim2=2).zero_()
            else:
                row_sums[:, columns] += grams.sum(1)  # [L, columns]
            row_sums[:, rows] += grams.sum(2)  # [L, rows]
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
    read, powers = zip(*(_read(t, kernel, bandwidth, shifted) for t in layers), strict=True)
    values = _pairs(read, side, estimator)
    scales = torch.stack(powers)  # [L]
    return _terms(values * scales[:, None] * scales, count_x, first_y)


def _pairs(read: Sequence[_Layer], side: int, estimator: str) -> Tensor:
    """Return the estimates of all pairs of layers, ``[L, L]``."""
    products, row_sums = _sums(read, side, estimator == "unbiased")
    crossed = row_sums @ row_sums.T  # [L, L]
    crossed = crossed.triu() + crossed.triu(1).T
    return _values(products, crossed, row_sums.sum(1), estimator, len(read[0].rows))


def _terms(values: Tensor, count_x: int, first_y: int) -> Terms:
    own = values.diagonal()  # [L]
    return values[:count_x, first_y:].clone(), own[:count_x].clone(), own[first_y:].clone()
