"""Rows of layers of one width, compared by torch's operations: on CUDA devices, and in derivatives.

Some rows of all layers are compared at a time, in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from simcore._grid.memory import memory_bound, require_memory
from simcore._grid.progress import reported
from simcore._ops.composed import in_full_float32

# Bytes of the rows of all layers that are compared at a time. On the CPU they stay in cache; a
# device has larger blocks, because every block is some launches of kernels.
BLOCK_BYTES = {"cpu": 2**23, "cuda": 2**28}


def row_pairs(
    x: Sequence[Tensor], y: Sequence[Tensor], measure: str, max_memory: int
) -> tuple[Tensor, Tensor, Tensor]:
    shape = len(x), len(y) or len(x)
    zeros = torch.zeros(len(x) + len(y), dtype=torch.int64, device=x[0].device)
    sums = torch.zeros(shape, dtype=torch.float64, device=x[0].device)
    if measure == "labels":
        return _different_labels(x, y, max_memory), torch.full_like(sums, len(x[0])), zeros
    if measure == "divergence":
        for block_x, block_y in blocks_of_rows(x, y, max_memory, pairs=0):
            p = block_x.softmax(-1)  # [Lx, rows, classes]
            sums += _divergences(p, block_y.softmax(-1)) if y else _own_divergences(p)
        return sums, torch.full_like(sums, len(x[0])), zeros
    counts = torch.zeros_like(sums)
    for block_x, block_y in blocks_of_rows(x, y, max_memory, pairs=3 if measure == "angle" else 1):
        unit_x, some_x = directions(block_x)  # [Lx, rows, p], [Lx, rows]
        unit_y, some_y = directions(block_y) if y else (unit_x, some_x)
        if measure == "angle":
            sums += _angles(unit_x, unit_y, some_x, some_y)
        else:
            sums += unit_x.flatten(1) @ unit_y.flatten(1).T  # [Lx, Ly]
        counts += some_x.double() @ some_y.double().T  # [Lx, Ly]
        zeros += (~torch.cat([some_x, some_y] if y else [some_x])).sum(1)  # [Lx + Ly]
    return sums, counts, zeros


def blocks_of_rows(
    x: Sequence[Tensor],
    y: Sequence[Tensor],
    max_memory: int,
    pairs: int,
    copies: int = 3,
    *,
    refuse: bool = True,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield some rows of all layers of x, and of y (or of x again), ``[L, rows, p]`` float64."""
    # ``pairs`` is the number of float64 arrays ``[rows, Lx, Ly]`` that the caller makes of them,
    # and ``copies`` the number of blocks: these rows, what is divided by their lengths, and one
    # more copy. Unless it may ``refuse``, single rows are yielded where not even these fit.
    bound = memory_bound(max_memory, x[0])
    count_x, count_y = len(x), len(y) or len(x)
    row_bytes = 8 * (copies * (len(x) + len(y)) * x[0].shape[1] + pairs * count_x * count_y)
    fixed = 4 * 8 * count_x * count_y
    if refuse:
        require_memory(fixed + row_bytes, bound, "one row of all layers")
    most = min(bound - fixed, BLOCK_BYTES[x[0].device.type])
    step = max(1, most // row_bytes)
    for start in reported(range(0, len(x[0]), step)):
        rows = slice(start, start + step)
        block = torch.stack([layer[rows].double() for layer in x])  # [Lx, rows, p]
        yield block, torch.stack([layer[rows].double() for layer in y]) if y else block


def directions(block: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows of length 1, zeros for rows of zeros, and which are not zeros ``[L, rows]``."""
    # Rows are divided by their largest entry first: their squares stay in the range of float64.
    largest = block.abs().amax(-1, keepdim=True)  # [L, rows, 1]
    some = largest > 0
    block = block / torch.where(some, largest, 1.0)
    lengths = torch.linalg.vector_norm(block, dim=-1, keepdim=True)  # [L, rows, 1]
    return block.div_(torch.where(some, lengths, 1.0)), some.squeeze(-1)


def _angles(x: Tensor, y: Tensor, some_x: Tensor, some_y: Tensor) -> Tensor:
    """Return the sums over rows of ``arccos(cosine) / pi``; rows of zeros add nothing."""
    cosines = torch.bmm(x.transpose(0, 1), y.permute(1, 2, 0))  # [rows, Lx, Ly]
    angles = cosines.clamp_(-1.0, 1.0).arccos_().div_(torch.pi)
    angles *= some_x.T[:, :, None] & some_y.T[:, None, :]  # [rows, Lx, Ly]
    return angles.sum(0)  # [Lx, Ly]


def _different_labels(x: Sequence[Tensor], y: Sequence[Tensor], max_memory: int) -> Tensor:
    n, bound = len(x[0]), memory_bound(max_memory, x[0])
    held = (2 * (len(x) + len(y)) + 2 * (len(y) or len(x))) * 8 * n
    require_memory(held, bound, "labels")
    labels = torch.stack([layer.argmax(1) for layer in x])  # [Lx, n]
    others = torch.stack([layer.argmax(1) for layer in y]) if y else labels
    return torch.stack([(one != others).sum(1) for one in labels]).double()  # [Lx, Ly]


def _divergences(p: Tensor, q: Tensor) -> Tensor:
    """Return the sums over rows of the Jensen-Shannon divergences of all pairs, base 2."""
    # ``JSD(p, q) = H(m) - (H(p) + H(q)) / 2`` with the entropy H and ``m = (p + q) / 2``.
    means = (_negative_entropy(p)[:, None] + _negative_entropy(q)) / 2  # [Lx, Ly]
    return means - torch.stack([_negative_entropy((one + q) / 2) for one in p])


def _own_divergences(p: Tensor) -> Tensor:
    """Return `_divergences` of p with itself, each pair computed once."""
    grid = p.new_zeros(len(p), len(p))
    for i in range(len(p) - 1):
        grid[i, i + 1 :] = _divergences(p[i : i + 1], p[i + 1 :])[0]
    return grid + grid.T


def _negative_entropy(p: Tensor) -> Tensor:
    """Return ``sum p log2(p)`` of each layer ``[L, rows, classes]``; 0 log 0 = 0."""
    return torch.xlogy(p, p).sum((1, 2)) / math.log(2)  # [L]


OPERATORS = {"row_pairs": in_full_float32(row_pairs)}
