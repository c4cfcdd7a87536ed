"""Derivatives of HSIC by the rows of layers.

Linear kernels, in operations that torch can differentiate again. With respect to the centred rows
``Xa`` of layer a, HSIC(a, b) has the gradient

    G_ab = 2 / norm * (Xb (Xb' Xa) + diag(r_b) Xa)

with ``norm = (n-1)^2`` and ``r_b = 0`` for the biased estimator. The unbiased estimator (Song et
al. 2012, equation 5; of its corrections only the squared row lengths ``l_b`` remain if rows are
centred) has ``norm = n (n-3)`` and ``r_b = sum(l_b) / ((n-1) (n-2)) - n / (n-2) l_b``. A common
shift of all rows does not change HSIC, so that the columns of a gradient sum to 0.

Kernels of the distances between rows. A loss with ``d loss = sum_ab w_ab / 2 d HSIC(a, b)`` has the
derivative ``G_a = sum_b w_ab C(K_b)`` by the entries of the kernel matrix ``K_a`` of layer a, where

    biased    C(K)_ij = (K_ij - m_i - m_j + m) / (n-1)^2, m the means of rows and of all entries
    unbiased  C(K)_ij = (K_ij - (l_i + l_j) / (n-2) + l / ((n-1)(n-2))) / (n (n-3)), l the sums,
              without the diagonal

and, with squared distances D and ``A_a`` the derivative by ``D_a``, the rows of layer a have

    4 (diag(A_a 1) - A_a) X_a

``A = -G K / (2 s^2)`` for the kernel exp(-D / (2 s^2)) and ``A = G / (2 d)`` for the distance d.
The width s of the RBF kernel is a multiple of the median distance. The median is the distance of
one pair of rows, or the mean of two, and these rows have its derivative besides; pairs at equal
distances share it.

Cost: two passes over the kernel matrices, some rows at a time. Numerics: float64. The distance of
two rows that are equal up to rounding has the derivative 0, as in `torch.cdist`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, reduce

import torch
from torch import Tensor

from simcore._grid.inputs import centred
from simcore._ops.hsic import median_squared_distances

Blocks = tuple[list[slice], int]  # rows of every block, and columns at a time
# Squared distances below this share of the squared lengths of the two rows are rounding.
NEAREST = 2.0**-40
MEDIAN_ROWS = 4096  # kExactMedianRows in csrc/core/math/rbf_math.h
TIE = 2.0**-44  # of a squared distance: nearer ones are equal, and share a derivative
TEMPORARIES = 8  # blocks [rows, n] that are held beside the blocks of all layers


def widest_dtype(layers: Sequence[Tensor]) -> torch.dtype:
    """Return the dtype that HSIC is computed in: float64 if any layer is float64, else float32."""
    double = any(layer.dtype == torch.float64 for layer in layers)
    return torch.float64 if double else torch.float32


def fitting_blocks(layers: Sequence[Tensor], members: int, limit: int) -> Blocks:
    """Return the largest blocks of `LinearHsic` that fit into ``limit`` bytes, or the smallest."""
    # ``members`` is the number of columns of all layers that lie side by side in a block.
    n, widest = layers[0].shape[0], max(layer.shape[1] for layer in layers)
    item = widest_dtype(layers).itemsize
    left = limit - 8 * sum(layer.shape[1] for layer in layers)  # less the bytes of the means
    # Three products: a running sum, the next summand, and the new sum.
    columns = min(max(left // (2 * 3 * item * members), 1), widest)
    left -= 3 * item * members * columns
    # Bytes of a row: the layers side by side, twice while they are copied and once from the block
    # before; a layer in float64 and its squares; row lengths and weights of all layers; two
    # summands of the gradient, their sum, and the sum without the shift.
    row = 3 * item * members + (8 + item) * widest + 4 * item * (len(layers) + columns)
    step = min(max(left // row, 1), n)
    return [slice(start, min(start + step, n)) for start in range(0, n, step)], columns


class LinearHsic:
    """The derivatives of the HSIC of all pairs of ``layers`` by their rows."""

    # ``blocks`` has slices of rows, and the number of columns that are worked on at a time; by
    # default it is all at once, so that every step is differentiable.

    def __init__(
        self, layers: Sequence[Tensor], unbiased: bool, blocks: Blocks | None = None
    ) -> None:
        self.layers, self.unbiased, self.n = layers, unbiased, layers[0].shape[0]
        self.widths = [layer.shape[1] for layer in layers]
        self.rows, self.columns = blocks or ([slice(0, self.n)], max(self.widths))
        self.dtype = widest_dtype(layers)
        self.norm = self.n * (self.n - 3.0) if unbiased else (self.n - 1.0) ** 2
        self.means = [self._sum(_column_sums(layer)) / self.n for layer in layers]
        # Powers of two near the largest difference within a column. float32 would not hold weights
        # of CKA, which grow with the inverse fourth power of the features.
        self.units = _power_of_two(torch.stack([_spread(layer) for layer in layers]), self.dtype)
        self._last: tuple[tuple[slice, tuple[int, ...]], Tensor] | None = None

    def gradient(self, a: int, weights: Tensor, members: tuple[int, ...]) -> Tensor:
        """Return ``sum_b weights[b] G_ab`` over the layers b in ``members``, which include a."""
        layer, width = self.layers[a], self.widths[a]
        chosen = list(members)
        # Of the size of the gradient, whatever the scales of the layers are.
        in_units = weights[chosen] * self.units[chosen].square() * self.units[a]  # [members]
        scaled = (2 / self.norm * in_units).to(self.dtype)
        if len(self.rows) == 1 and self.columns >= width:
            return next(self._blocks(a, scaled, members, slice(0, width))).to(layer.dtype)
        gradient = torch.empty(layer.shape, dtype=layer.dtype, device=layer.device)
        for first in range(0, width, self.columns):
            columns = slice(first, min(first + self.columns, width))
            blocks = self._blocks(a, scaled, members, columns)
            for rows, block in zip(self.rows, blocks, strict=True):
                gradient[rows, columns] = block
        return gradient

    def slopes(self, tangents: Sequence[Tensor | None]) -> Tensor:
        """Return ``<G_ab, tangents[a]>`` of all pairs, float64 ``[L, L]``; None means zeros."""
        members = tuple(range(len(self.layers)))
        z = self._side_by_side(self.rows[0], members)  # [n, sum of p]
        parts = z.split(self.widths, dim=1)  # [n, p] each
        slopes = []
        for x, tangent in zip(parts, tangents, strict=True):
            if tangent is None:
                slopes.append(z.new_zeros(len(members), dtype=torch.float64))
                continue
            # HSIC does not depend on a common shift of the rows.
            dx = (tangent - tangent.mean(0, dtype=torch.float64)).to(self.dtype)
            columns = ((z.T @ x) * (z.T @ dx)).sum(1, dtype=torch.float64)  # [sum of p]
            slope = torch.stack([part.sum() for part in columns.split(self.widths)])  # [L]
            if self.unbiased:
                slope = slope + (x * dx).sum(1).double() @ self._row_weights(z, members).double()
            slopes.append(2 / self.norm * slope)
        return torch.stack(slopes) * self.units[:, None] * self.units.square()  # [L, L]

    def _sum(self, of_rows: Callable[[slice], Tensor]) -> Tensor:
        return reduce(torch.add, map(of_rows, self.rows))

    def _blocks(
        self, a: int, scaled: Tensor, members: tuple[int, ...], columns: slice
    ) -> Iterator[Tensor]:
        """Yield some columns of `gradient`, one block of rows after another."""
        # With ``Z`` the rows of all members side by side and ``w`` their weights, the columns are
        # ``Z diag(w) Z' Z_a + diag(r w) Z_a``, less the mean over the rows of the second term.
        before = sum(self.widths[b] for b in itertools.takewhile(lambda b: b != a, members))
        own = slice(before + columns.start, before + columns.stop)

        def products(rows: slice) -> Tensor:
            z = self._side_by_side(rows, members)
            return z.T @ z[:, own]  # [sum of p, columns]

        def diagonal_terms(rows: slice) -> Tensor:
            z = self._side_by_side(rows, members)
            return (self._row_weights(z, members) @ scaled)[:, None] * z[:, own]  # [rows, columns]

        widths = [self.widths[b] for b in members]
        owners = [weight.expand(width) for weight, width in zip(scaled, widths, strict=True)]
        # diag(w) Z' Z_a: the weight of a member stands at each of its columns.
        product = torch.cat(owners)[:, None] * self._sum(products)  # [sum of p, columns]
        if self.unbiased:
            shift = self._sum(lambda rows: diagonal_terms(rows).sum(0)) / self.n  # [columns]
        for rows in self.rows:
            gradient = self._side_by_side(rows, members) @ product  # [rows, columns]
            if self.unbiased:
                gradient = gradient + diagonal_terms(rows) - shift
            yield gradient

    def _row_weights(self, z: Tensor, members: tuple[int, ...]) -> Tensor:
        """Return r_b for a block ``z`` of centred rows of the layers b, ``[rows, members]``."""
        n, widths = self.n, [self.widths[b] for b in members]
        lengths = torch.stack([x.square().sum(1) for x in z.split(widths, dim=1)], dim=1)
        return self._traces[list(members)] / ((n - 1.0) * (n - 2.0)) - n / (n - 2.0) * lengths

    @cached_property
    def _traces(self) -> Tensor:
        """The sum of the squared row lengths of every layer, in the compute dtype."""

        def trace(b: int) -> Tensor:
            return self._sum(lambda rows: self._centred(b, rows).square().sum())

        return torch.stack([trace(b) for b in range(len(self.layers))])  # [L]

    def _centred(self, b: int, rows: slice) -> Tensor:
        """Return centred rows in the unit of the layer."""
        return (self.layers[b][rows] - self.means[b]).to(self.dtype) / self.units[b]

    def _side_by_side(self, rows: slice, members: tuple[int, ...]) -> Tensor:
        """Return centred rows of some layers side by side, and keep them for the next call."""
        if self._last is None or self._last[0] != (rows, members):
            block = torch.cat([self._centred(b, rows) for b in members], dim=1)  # [rows, sum of p]
            self._last = ((rows, members), block)
        return self._last[1]


def _column_sums(layer: Tensor) -> Callable[[slice], Tensor]:
    # In float64: at an offset of 1000 standard deviations a float32 mean has 3 digits left.
    return lambda rows: layer[rows].sum(0, dtype=torch.float64)


def _spread(layer: Tensor) -> Tensor:
    """Return the largest difference within a column, float64."""
    low, high = torch.aminmax(layer.detach(), dim=0)  # [p] each
    return (high.double() - low.double()).max()


def _power_of_two(sizes: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the powers of two below positive float64 ``sizes``, within ``dtype``; 1 for a 0."""
    limits = torch.finfo(dtype)
    sizes = torch.where(sizes > 0, sizes, 1.0).clamp(limits.tiny, limits.max / 2)
    return ((sizes.view(torch.int64) >> 52) << 52).view(torch.float64)


class KernelHsic:
    """The gradients of the HSIC of all pairs of ``layers``."""

    # ``bandwidth`` is the width of the RBF kernel in units of the median distance, and ``limit``
    # the number of bytes to work in, beside the gradients. The smallest blocks are taken if no
    # others fit.

    def __init__(
        self, layers: Sequence[Tensor], kernel: str, unbiased: bool, bandwidth: float, limit: int
    ) -> None:
        self.layers, self.unbiased, self.n = layers, unbiased, len(layers[0])
        widest = max(layer.shape[1] for layer in layers)
        left = limit - 4 * 8 * self.n * widest  # a layer in float64, and what makes it
        self.step = max(1, min(self.n, left // (8 * self.n * (len(layers) + TEMPORARIES))))
        self.rbf, self.bandwidth = kernel == "rbf", bandwidth
        none = layers[0].new_zeros(len(layers), dtype=torch.float64)  # [L]
        self.medians = _medians(layers) if self.rbf else none
        # Without a width there is no kernel: the weights of such a layer are 0.
        self.defined = (self.medians > 0) & self.medians.isfinite()
        self.squared_widths = torch.where(self.defined, self.medians, 1.0) * bandwidth**2

    def gradients(self, weights: Tensor, wanted: Sequence[bool]) -> list[Tensor]:
        """Return the gradients of ``sum_ab weights[a, b] / 2 * HSIC(a, b)`` by wanted layers."""
        by_layer = {
            a: torch.zeros_like(layer, dtype=torch.float64)
            for a, (layer, want) in enumerate(zip(self.layers, wanted, strict=True))
            if want
        }
        by_median = torch.zeros_like(self.medians)  # [L]
        n = self.n
        weights = weights / (n * (n - 3.0) if self.unbiased else (n - 1.0) ** 2)
        row_terms, constants = self._terms_of_sums(weights)  # [L, n], [L]
        for rows in self._row_blocks():
            blocks = torch.stack([self._kernel(b, rows) for b in range(len(self.layers))])
            for a, gradient in by_layer.items():
                g = torch.tensordot(weights[a], blocks, dims=1)  # [rows, n]
                g -= row_terms[a][rows, None] + row_terms[a]  # [rows, 1] + [n]
                g += constants[a]
                if self.rbf:
                    by_median[a] -= (g * torch.xlogy(blocks[a], blocks[a])).sum()
                gradient[rows] = self._by_rows(a, rows, g, blocks[a])  # [rows, p]
        if self.rbf:
            by_median *= self.bandwidth**2 / self.squared_widths
            for a, gradient in by_layer.items():
                self._add_median(a, gradient, by_median[a])
        return [gradient.to(self.layers[a].dtype) for a, gradient in by_layer.items()]

    def _row_blocks(self) -> Iterator[slice]:
        for start in range(0, self.n, self.step):
            yield slice(start, min(start + self.step, self.n))

    def _terms_of_sums(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return the terms of G that depend on one row ``[L, n]``, and on no row ``[L]``."""
        n = self.n
        of_rows, of_all = (n - 2.0, (n - 1.0) * (n - 2.0)) if self.unbiased else (n, n * n)
        sums = torch.stack(
            [
                torch.cat([self._kernel(b, rows).sum(1) for rows in self._row_blocks()])
                for b in range(len(self.layers))
            ]
        )
        return weights @ sums / of_rows, weights @ sums.sum(1) / of_all

    def _squared_distances(self, b: int, rows: slice) -> Tensor:
        """Return ``[rows, n]`` squared distances, exactly 0 on the diagonal."""
        x = centred(self.layers[b])  # [n, p]
        squares = x.square().sum(1)  # [n]
        lengths = squares[rows, None] + squares  # [rows, n]
        distances = torch.addmm(lengths, x[rows], x.T, alpha=-2)
        distances.masked_fill_(distances <= NEAREST * lengths, 0.0)
        distances.diagonal(rows.start).zero_()
        return distances

    def _kernel(self, b: int, rows: slice) -> Tensor:
        """Return some rows of a kernel matrix, with the diagonal that the estimator takes."""
        distances = self._squared_distances(b, rows)
        if not self.rbf:
            return distances.sqrt_()
        kernel = distances.div_(-2 * self.squared_widths[b]).exp_()  # [rows, n]
        if self.unbiased:
            kernel.diagonal(rows.start).zero_()
        return kernel * self.defined[b]

    def _by_rows(self, a: int, rows: slice, g: Tensor, kernel: Tensor) -> Tensor:
        """Return some rows of the gradient by layer a, from the gradients of G and the kernel."""
        if self.rbf:
            by_distances = g.mul_(kernel).div_(-2 * self.squared_widths[a])
        else:
            apart = kernel > 0
            by_distances = torch.where(apart, g / (2 * torch.where(apart, kernel, 1.0)), 0.0)
        by_distances.diagonal(rows.start).zero_()
        x = centred(self.layers[a])  # [n, p]
        return 4 * (by_distances.sum(1, keepdim=True) * x[rows] - by_distances @ x)

    def _add_median(self, a: int, gradient: Tensor, by_median: Tensor) -> None:
        """Add ``by_median`` times the derivative of the median to the rows that it depends on."""
        stride = math.ceil(self.n / MEDIAN_ROWS)
        x = centred(self.layers[a])[::stride]  # [sampled, p]
        for middle, share in _middle_distances(x, self.medians[a], self.step):
            moves, count = torch.zeros_like(x), x.new_zeros(())
            for start, distances in _off_diagonal(x, self.step):
                tied = ((distances - middle).abs() <= TIE * middle).double()  # [rows, sampled]
                rows = slice(start, start + len(tied))
                moves[rows] = tied.sum(1, keepdim=True) * x[rows] - tied @ x  # [rows, p]
                count += tied.sum()
            gradient[::stride] += 4 * by_median * share / count.clamp(min=1) * moves


def _medians(layers: Sequence[Tensor]) -> Tensor:
    """Return the medians of squared distances in float64, as the distances here are, ``[L]``."""
    return torch.cat([median_squared_distances([layer.double()], []) for layer in layers])


def _off_diagonal(x: Tensor, step: int) -> Iterator[tuple[int, Tensor]]:
    """Yield the first row of a block, and its squared distances, infinite on the diagonal."""
    squares = x.square().sum(1)  # [n]
    for start in range(0, len(x), step):
        block = slice(start, start + step)
        distances = torch.addmm(squares[block, None] + squares, x[block], x.T, alpha=-2)
        distances.diagonal(start).fill_(torch.inf)
        yield start, distances


def _middle_distances(x: Tensor, median: Tensor, step: int) -> list[tuple[Tensor, float]]:
    """Return the squared distances of which the median is the mean, with their shares in it."""
    # The median over all ordered pairs of rows is one distance if the number of rows is odd, and
    # the mean of two neighbouring ones if it is even. With two rows, one of these is the distance
    # of a row to itself, and is returned as infinite.
    below, above = median.new_full((), -torch.inf), median.new_full((), torch.inf)
    # The median was computed with other rounding: it may lie on either side of equal distances.
    low, high = median * (1 - TIE), median * (1 + TIE)
    for _, distances in _off_diagonal(x, step):
        below = torch.maximum(below, torch.where(distances <= high, distances, below).max())
        above = torch.minimum(above, torch.where(distances >= low, distances, above).min())
    if len(x) % 2 == 0:
        return [(below, 0.5), (above, 0.5)]
    return [(torch.where(median - below <= above - median, below, above), 1.0)]
