"""The gradients of HSIC by the rows of layers, for kernels of the distances between rows.

Math: a loss with ``d loss = sum_ab w_ab / 2 d HSIC(a, b)`` has the derivative
``G_a = sum_b w_ab C(K_b)`` by the entries of the kernel matrix ``K_a`` of layer a, where

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

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from simcore._grid.inputs import centred
from simcore._ops.hsic import median_squared_distances

# Squared distances below this share of the squared lengths of the two rows are rounding.
NEAREST = 2.0**-40
MEDIAN_ROWS = 4096  # kExactMedianRows in csrc/core/math/rbf_math.h
TIE = 2.0**-44  # of a squared distance: nearer ones are equal, and share a derivative
TEMPORARIES = 8  # blocks [rows, n] that are held beside the blocks of all layers


class KernelHsic:
    """The gradients of the HSIC of all pairs of ``layers``.

    ``bandwidth`` is the width of the RBF kernel in units of the median distance, and ``limit`` the
    number of bytes to work in, beside the gradients. The smallest blocks are taken if no others
    fit.
    """

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
    """Return the squared distances of which the median is the mean, with their shares in it.

    The median over all ordered pairs of rows is one distance if the number of rows is odd, and the
    mean of two neighbouring ones if it is even. With two rows, one of these is the distance of a
    row to itself, and is returned as infinite.
    """
    below, above = median.new_full((), -torch.inf), median.new_full((), torch.inf)
    # The median was computed with other rounding: it may lie on either side of equal distances.
    low, high = median * (1 - TIE), median * (1 + TIE)
    for _, distances in _off_diagonal(x, step):
        below = torch.maximum(below, torch.where(distances <= high, distances, below).max())
        above = torch.minimum(above, torch.where(distances >= low, distances, above).min())
    if len(x) % 2 == 0:
        return [(below, 0.5), (above, 0.5)]
    return [(torch.where(median - below <= above - median, below, above), 1.0)]
