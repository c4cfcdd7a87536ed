"""The operators for representational dissimilarities in torch's own operations.

CUDA devices use them. The functions run on any device: tests compare them on CPU tensors with the
twins. Only the check of the entries waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from simcore._grid.inputs import check_finite, row_blocks
from simcore._grid.memory import memory_bound
from simcore._grid.progress import reported
from simcore._ops.composed import in_full_float32
from simcore._ops.tiles import rows_that_fit, tiles

EPS = torch.finfo(torch.float64).eps
TIE = 16 * EPS  # of the mean dissimilarity: closer ones are equal, as kTie in csrc/cpu/rsa
MOST_PAIRS = 2**31  # ranks are int32, as in csrc/cpu/rsa
SORTING_BYTES = 64  # of a dissimilarity while it is ranked: sorted values, places, sort's workspace


def unit_rows(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return unit rows, their inverse lengths, and the exponents that scaled them.

    Unit rows ``[n, p]`` are float64, less their mean, and of length 1. Before, they were multiplied
    by ``2**-exponent`` ``[n, 1]``, and then by the inverse length ``[n, 1]``. Constant rows give
    nan.
    """
    wide = x.double()
    exponents = torch.frexp(wide.abs().amax(1, keepdim=True)).exponent  # [n, 1]
    scaled = torch.ldexp(wide, -exponents)
    centred = scaled - scaled.mean(1, keepdim=True)
    centred = centred - centred.mean(1, keepdim=True)  # what rounding left of the mean
    inverse = centred.square().sum(1, keepdim=True).rsqrt()  # [n, 1]
    return centred * inverse, inverse, exponents


def standardised_rows(
    x: Tensor, dtype: torch.dtype, name: str = "X[0]"
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute ``simcore::standardised_rows``."""
    # csrc/cpu/rsa/standard_rows.cpp derives the formulas. Entries are not checked, because that
    # would wait for the device: the caller checks all layers at once.
    n, blocks = len(x), row_blocks(x)
    constant = (x == x[:, :1]).all(1, keepdim=True)  # [n, 1]
    z = torch.empty(x.shape, dtype=torch.float64, device=x.device)
    c = torch.empty(x.shape, dtype=dtype, device=x.device)
    of_blocks = [part.split(len(blocks[0])) for part in (constant, z, c)]
    scales = []  # exponents, and the squared error of an entry over its square, [rows, 1] each
    for values, still, unit in zip(blocks, *of_blocks[:2], strict=True):
        found, inverse, exponents = unit_rows(values)
        unit.copy_(found.masked_fill_(still, 0.0))
        error = (torch.finfo(x.dtype).eps / 2 * inverse).square() / 3
        scales.append((-exponents, error.masked_fill_(still, 0.0)))
    mean = torch.stack([unit.sum(0) for unit in of_blocks[1]]).sum(0) / n  # [p]
    by_centred = (2 * EPS) ** 2 / 3
    rows, columns, products = [], [], []
    for values, still, unit, centred, (power, error) in zip(
        blocks, *of_blocks, scales, strict=True
    ):
        t = torch.ldexp(values.double(), power).square_().mul_(error) + unit.square() * by_centred
        squares = (unit - mean).masked_fill_(still, 0.0)
        centred.copy_(squares)
        squares.square_()
        rows.append(torch.stack([squares.sum(1), t.sum(1)]))  # [2, rows]
        columns.append(torch.stack([squares.sum(0), t.sum(0)]))  # [2, p]
        products.append((squares * t).sum())  # []
    lengths, errors = torch.cat(rows, 1)  # [n] each
    crossed = torch.stack(columns).sum(0).prod(0).sum()  # []
    by_length = 2 * (by_centred * (1 + x.shape[1] / 8192)) ** 2
    rounding = 2 / (n * (n - 1)) * (n * torch.stack(products).sum() + crossed)
    rounding = rounding + errors.var(correction=0) / 2 + by_length
    return c, (lengths / 2).masked_fill(constant[:, 0], torch.nan), rounding


def rank_moments(
    x: Sequence[Tensor], y: Sequence[Tensor], max_memory: int, near: Sequence[int] = ()
) -> tuple[Tensor, ...]:
    """Compute ``simcore::rank_moments``: one layer after another is ranked, in float64.

    As on the CPU, the ranks of all layers are held, as whole numbers. The layers at the places
    ``near``, of x and then of y, are ranked by `distances`.
    """
    layers = [*x, *y]
    n, count = len(layers[0]), len(layers)
    pairs = n * (n - 1) // 2
    if pairs >= MOST_PAIRS:
        raise ValueError(f"X[0]: wanted at most 65536 rows to rank their dissimilarities, got {n}")
    check_finite(x, "X")
    check_finite(y, "Y")
    widest = max(layer.shape[1] for layer in layers)
    held = 4 * count * pairs + SORTING_BYTES * pairs + 56 * n * widest
    bound = memory_bound(max_memory, layers[0])
    rows = rows_that_fit(bound, held, 48 * n, n, "ranks of all dissimilarities")
    ranks = torch.empty((count, pairs), dtype=torch.int32, device=layers[0].device)
    spreads, roundings = [], []
    for place, (layer, out) in reported(enumerate(zip(layers, ranks, strict=True))):
        c, halves, rounding = standardised_rows(layer, torch.float64)
        unit = halves.mean()  # nan for a layer with a constant row
        values = dissimilarities(c, halves, rows)  # [pairs]
        known = unit > 0
        spread = (values - 2 * n / (n - 1) * unit).square().mean() / unit.square()
        spreads.append(torch.where(known, spread, torch.nan))
        roundings.append(rounding / unit.square())
        tie = TIE * 2 * unit
        if place in near:
            values, tie = distances(c)
        _write_centred_ranks(values, tie, out)
        out.mul_(known)
    room = (bound - held + SORTING_BYTES * pairs) // (8 * count + 8)
    xy, xx, yy = _covariances(ranks, len(x), max(1, min(pairs, room)))  # [Lx, Ly], [Lx], [Ly]
    return xy, xx, yy, torch.stack(spreads), torch.stack(roundings)


def dissimilarities(c: Tensor, halves: Tensor, rows: int) -> Tensor:
    """Return ``|c_i|^2 / 2 + |c_j|^2 / 2 - c_i'c_j`` of all i < j, ``[n (n - 1) / 2]``."""
    n = len(c)
    values = c.new_empty(n * (n - 1) // 2)
    at = 0
    for tile in tiles(n, rows):
        block = (halves[tile, None] + halves).sub_(c[tile] @ c.T)  # [rows, n]
        i, j = torch.triu_indices(len(block), n, tile.start + 1, device=c.device)  # pairs i < j
        values[at : at + len(i)] = block[i, j]
        at += len(i)
    return values


def distances(c: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``|c_i - c_j|`` of all i < j, and up to which difference they are equal.

    Differences of rows keep the digits of small dissimilarities, which products lose. The error of
    a distance is that of unit rows, whatever its size.
    """
    return torch.pdist(c), c.new_tensor(TIE)


def _write_centred_ranks(values: Tensor, rounding: Tensor, out: Tensor) -> None:
    """Write ``2 rank - (count + 1)`` of all values; neighbours within ``rounding`` share a rank."""
    count = len(values)
    ordered, places = values.sort()  # [count] each
    place = torch.arange(count, dtype=torch.int32, device=values.device)
    apart = torch.ones(count + 1, dtype=torch.bool, device=values.device)
    apart[1:-1] = ordered.diff() > rounding
    first = place.where(apart[:-1], 0).cummax(0).values
    last = (place + 1).where(apart[1:], count).flip(0).cummin(0).values.flip(0)
    out[places] = (first - count) + last  # in this order: first + last may be beyond int32


def centred_ranks(values: Tensor, rounding: Tensor) -> Tensor:
    """Return what `_write_centred_ranks` writes, as float64: whole numbers."""
    ranks = torch.empty(len(values), dtype=torch.int32, device=values.device)
    _write_centred_ranks(values, rounding, ranks)
    return ranks.double()


def _covariances(ranks: Tensor, count_x: int, depth: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the covariances and variances of ranks [0, count_x) and the others, or themselves."""
    count, pairs = ranks.shape
    total = torch.zeros((count, count), dtype=torch.float64, device=ranks.device)
    for part in tiles(pairs, depth):
        wide = ranks[:, part].double()  # [L, part]
        total += wide @ wide.T
    total = (total.triu() + total.triu(1).T) / (4.0 * pairs) / pairs / pairs
    of_x, of_y = total.diagonal()[:count_x], total.diagonal()[count_x:]  # [Lx], [Ly]
    if count == count_x:
        return total, of_x.clone(), of_x.clone()
    return total[:count_x, count_x:].clone(), of_x.clone(), of_y.clone()


# Registered for CUDA in simcore/_ops/rsa.py.
OPERATORS: dict[str, Callable[..., object]] = {
    "standardised_rows": standardised_rows,
    "rank_moments": in_full_float32(rank_moments),
}
