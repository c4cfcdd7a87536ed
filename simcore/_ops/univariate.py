"""Distance covariances of layers of one column in n log n operations, by torch's own operations.

Math: with ``a_ij = |x_i - x_j|`` and ``b_ij = |y_i - y_j|``, the biased HSIC of distances is

    (sum_ij a_ij b_ij - 2/n sum_i a_i. b_i. + a.. b.. / n^2) / (n - 1)^2

In the order of x, row sums a_i. are prefix sums, and ``sum_ij a_ij^2 = 2 n sum_i x_i^2`` where x is
centred. For the sum of ``a_ij b_ij``, a block of rows that follow each other in the order of x is
cut in two halves. Every row i of the upper half and j of the lower one has

    (x_i - x_j) |y_i - y_j| = 2 [y_j before y_i] (x_i - x_j) (y_i - y_j) - (x_i - x_j) (y_i - y_j)

Within a block, rows are kept in the order of y: sums over the rows j before i are cumulative sums
of 1, x, y and x y over the lower half. The halves are the blocks of the next level, down to `LEAST`
rows, whose pairs are taken one by one. Equal entries may come in any order: their terms are 0.

Numerics: float64. Huo and Székely 2016, and Chaudhuri and Hu 2019, sort in other ways.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from simcore._ops.hsic_composed import Terms

LEAST = 16  # rows of the smallest block
BYTES = 24 * LEAST + 256  # of a row and column of Y, at the last level or at one before it


def univariate_bytes(n: int, layers: int) -> int:
    """Return the bytes that `distance_terms` takes at least."""
    return 32 * n * layers + BYTES * _padded(n)


def distance_terms(x: Sequence[Tensor], y: Sequence[Tensor], bound: int) -> Terms:
    """Return ``hsic_terms`` of the biased estimator and distances, of layers ``[n, 1]``."""
    n, count = len(x[0]), len(x)
    columns = torch.stack([_centred(layer) for layer in (*x, *y)])  # [L, n]
    order = columns.argsort(dim=1, stable=True)  # [L, n]
    sums = _row_sums(columns, order)
    ranks = torch.empty_like(order).scatter_(1, order, torch.arange(n).expand_as(order))
    first_y = count if y else 0
    room = max(1, (bound - 32 * n * len(columns)) // (BYTES * _padded(n)))
    products = columns.new_empty(count, len(columns) - first_y)
    for i, (values, rank) in enumerate(zip(columns[:count], ranks[:count], strict=True)):
        for j in range(first_y if y else i, len(columns), room):
            at = order[j : j + room]  # [layers of y, n]
            total = _pair_sums(rank[at], values[at], columns[j : j + room].gather(1, at))
            products[i, j - first_y : j - first_y + len(at)] = 2 * total
    own = 2 * n * columns.square().sum(1) - 2 * columns.sum(1).square()  # [L]
    if not y:
        products = products.triu(1)
        products = products + products.T + own.diag()
    totals = sums.sum(1)  # [L]

    def hsic(products: Tensor, crossed: Tensor, of_all: Tensor) -> Tensor:
        return (products - 2 / n * crossed + of_all / n**2) / (n - 1.0) ** 2

    terms = hsic(own, sums.square().sum(1), totals.square())
    crossed = sums[:count] @ sums[first_y:].T  # [Lx, Ly]
    xy = hsic(products, crossed, totals[:count, None] * totals[first_y:])
    if not y:  # a layer and itself have one number
        xy = xy.triu(1) + xy.triu(1).T + terms.diag()
    return xy, terms[:count], terms[first_y:]


def _padded(n: int) -> int:
    return max(LEAST, 1 << (n - 1).bit_length())


def _centred(layer: Tensor) -> Tensor:
    wide = layer.detach().double()[:, 0]  # [n]
    wide = wide - wide[0]  # a constant column becomes 0
    return wide - wide.mean()


def _row_sums(columns: Tensor, order: Tensor) -> Tensor:
    """Return the sums of the rows of distance matrices, ``[L, n]``."""
    n = columns.shape[1]
    ordered = columns.gather(1, order)  # [L, n]
    before = ordered.cumsum(1) - ordered  # [L, n]
    twice = 2 * torch.arange(n, dtype=columns.dtype) - n
    sums = twice * ordered - 2 * before + ordered.sum(1, keepdim=True)
    return torch.empty_like(columns).scatter_(1, order, sums)


def _pair_sums(ranks: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return ``sum of |x_i - x_j| |y_i - y_j|`` over pairs i < j, ``[L]``."""
    # The rows of all arguments ``[L, n]`` are in the order of y; ``ranks`` are those of x.
    count, n = x.shape
    size = _padded(n)
    # Rows without weight, with the last ranks, fill the last block.
    w = torch.nn.functional.pad(torch.ones_like(x), (0, size - n))[:, None]
    x, y = (torch.nn.functional.pad(values, (0, size - n))[:, None] for values in (x, y))
    ranks = torch.cat([ranks, torch.arange(n, size).expand(count, -1)], 1)[:, None]
    total = x.new_zeros(count)  # arrays are [L, blocks, size of a block]
    while size > LEAST:
        size //= 2
        lower = (ranks & size) == 0  # [L, blocks, 2 size]
        total += _between_halves(lower, w, x, y)  # [L]

        def halved(values: Tensor, lower: Tensor = lower, size: int = size) -> Tensor:
            halves = [values[part].view(count, -1, size) for part in (lower, ~lower)]
            return torch.stack(halves, 2).view(count, -1, size)

        ranks, w, x, y = (halved(values) for values in (ranks, w, x, y))
    apart = (x[..., :, None] - x[..., None, :]).mul_(y[..., :, None] - y[..., None, :]).abs_()
    apart *= w[..., :, None]
    apart *= w[..., None, :]
    return total + apart.sum((1, 2, 3)) / 2  # [L]


def _between_halves(lower: Tensor, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return the sum over pairs of a row of the lower and one of the upper half, ``[L]``."""
    of_lower = [values * lower for values in (w, x, y, x * y)]
    of_upper = [values * ~lower for values in (w, x, y, x * y)]

    def paired(j: list[Tensor], i: list[Tensor]) -> Tensor:
        """Return the sum of ``(x_i - x_j) (y_i - y_j)`` from sums of 1, x, y and x y over j."""
        return (j[0] * i[3] - j[2] * i[1] - j[1] * i[2] + j[3] * i[0]).sum((1, 2))

    before = [values.cumsum(2) for values in of_lower]  # [L, blocks, size] each
    sums = [[values.sum(2, keepdim=True) for values in half] for half in (of_lower, of_upper)]
    return 2 * paired(before, of_upper) - paired(*sums)
