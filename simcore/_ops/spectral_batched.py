"""The spectral operators in batches of torch's own matrix products; CUDA devices use them.

The functions run on any device: the tests compare them on CPU tensors with the CPU's operators.
What belongs to one layer is computed once a layer. Pairs are many: layers of one width lie in one
tensor, and a batch of pairs costs the same few calls however many they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from simcore._grid.inputs import check_finite
from simcore._grid.memory import memory_bound
from simcore._ops.polar import nuclear_norms_of

MOST_JACOBI = 128  # rows and columns that csrc/cuda/spectral/jacobi.cu takes
JACOBI_STATIC = 2048  # bytes of shared memory that it takes beside two matrices, and some to spare
MAX_BATCH = 4096  # matrices at a time
PADDING = 16  # widths are filled up to a multiple: truncation leaves every layer another width


@contextmanager
def _full_float32() -> Iterator[None]:
    """float32 products as float32, whatever the program has chosen for its own."""
    chosen = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(chosen)


def _in_full_float32(function: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(function)
    def wrapped(*arguments: object) -> object:
        with torch.no_grad(), _full_float32():
            return function(*arguments)

    return wrapped


def _centred(layer: Tensor) -> tuple[Tensor, Tensor]:
    """Centred columns in float64 with entries near 1, and the power of two they were divided by."""
    x = layer.double()
    shifted = x - x[0]  # constant columns become exactly 0
    centred = shifted - shifted.mean(0)
    largest = centred.abs().max()
    exponent = torch.frexp(torch.where(largest > 0, largest, 1.0)).exponent
    power = torch.ldexp(torch.ones_like(largest), exponent)
    return centred / power, power


def _descending(eigenvalues: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    return eigenvalues.clamp_min(0).sqrt().flip(-1), vectors.flip(-1)


def _reciprocals(s: Tensor) -> Tensor:
    return torch.where(s > 0, s.reciprocal(), 0.0)


def _decompose(layers: Sequence[Tensor], standardize: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Thin SVDs of layers of one shape and dtype: ``[B, n, r]``, ``[B, r]``, ``[B, r, p]``.

    As csrc/torch/composed/principal_components.cpp: eigenvectors of the smaller side's products for
    what is float32 or less, whose rank rule cuts what squaring loses; else the SVD itself.
    """
    parts = [_centred(layer) for layer in layers]
    x = torch.stack([values for values, _ in parts])
    powers = torch.stack([power for _, power in parts])
    if standardize:
        x = x * _reciprocals(x.square().mean(1, keepdim=True).sqrt())
        powers = torch.ones_like(powers)
    n, p = x.shape[1:]
    if layers[0].dtype == torch.float64:
        u, s, vt = torch.linalg.svd(x, full_matrices=False)
    elif p <= n:
        s, v = _descending(*torch.linalg.eigh(x.mT @ x))
        u, vt = x @ (v * _reciprocals(s)[:, None, :]), v.mT
    else:
        s, u = _descending(*torch.linalg.eigh(x @ x.mT))
        vt = _reciprocals(s)[:, :, None] * (u.mT @ x)
    # Rounding would give a constant column variance again in vectors diag(s) components.
    vt = vt.masked_fill((x == 0).all(1)[:, None, :], 0.0)
    return u, s * powers[:, None], vt


def principal_components(
    x: Sequence[Tensor], standardize: bool
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """``simcore::principal_components``: layers of one shape are decomposed together."""
    check_finite(x, "X")
    groups: dict[tuple[torch.Size, torch.dtype], list[int]] = {}
    for i, layer in enumerate(x):
        groups.setdefault((layer.shape, layer.dtype), []).append(i)
    empty = x[0].new_empty(0)
    u, s, vt = ([empty] * len(x) for _ in range(3))
    for (_, dtype), members in groups.items():
        kept = torch.float64 if dtype == torch.float64 else torch.float32
        parts = _decompose([x[i] for i in members], standardize)
        for i, left, values, right in zip(members, *parts, strict=True):
            u[i], s[i], vt[i] = left.to(kept).contiguous(), values, right.to(kept).contiguous()
    return u, s, vt


@dataclass(frozen=True)
class _Stack:
    """Layers as one tensor ``[B, n, width]``; columns of zeros where a layer is narrower."""

    members: Tensor  # [B] which layers of their side
    values: Tensor
    extra: Tensor  # what else an operator needs of each: [B, ...]


@dataclass(frozen=True)
class _Side:
    """The layers of one side of a grid, and how some of them become a stack."""

    widths: list[int]  # of the stack that a layer goes to
    bytes_each: list[int]  # of a layer in its stack
    stack: Callable[[list[int]], _Stack]

    def chunks(self, bound: int) -> list[list[list[int]]]:
        """Layers of one stack together, as many stacks together as take `bound` bytes."""
        chunks: list[list[list[int]]] = []
        room = 0
        for i in sorted(range(len(self.widths)), key=lambda i: self.widths[i]):
            room -= self.bytes_each[i]
            if room < 0 or not chunks:
                room = bound - self.bytes_each[i]
                chunks.append([[i]])
            elif self.widths[i] == self.widths[chunks[-1][-1][0]]:
                chunks[-1][-1].append(i)
            else:
                chunks[-1].append([i])
        return chunks


def _padded(width: int) -> int:
    return -(-width // PADDING) * PADDING


def _fill(parts: Sequence[Tensor], shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Matrices in the corners of zeros ``[len(parts), *shape]``."""
    filled = parts[0].new_zeros(len(parts), *shape, dtype=dtype)
    for zeros, part in zip(filled, parts, strict=True):
        zeros[: part.shape[0], : part.shape[1]] = part
    return filled


def _stack_pairs(x: _Side, y: _Side | None, bound: int) -> Iterator[tuple[_Stack, _Stack]]:
    """All pairs of stacks, or one of (a, b) and (b, a) where `y` is None, in `bound` bytes."""
    chunks = x.chunks(bound // 2)
    for at, rows in enumerate(chunks):
        left = [x.stack(members) for members in rows]
        if y is None:
            yield from ((a, b) for first, a in enumerate(left) for b in left[first:])
        other, others = (x, chunks[at + 1 :]) if y is None else (y, y.chunks(bound // 2))
        for columns in others:
            right = [other.stack(members) for members in columns]
            yield from ((a, b) for a in left for b in right)


def _runs(rows: int, columns: int, most: int, upper: bool) -> Iterator[list[tuple[int, int, int]]]:
    """Pairs as runs (row, first column, end), `most` pairs at a time; those with column >= row."""
    runs: list[tuple[int, int, int]] = []
    room = most
    for row in range(rows):
        first = row if upper else 0
        while first < columns:
            end = min(columns, first + room)
            runs.append((row, first, end))
            room -= end - first
            first = end
            if room == 0:
                yield runs
                runs, room = [], most
    if runs:
        yield runs


def _products(a: _Stack, b: _Stack, most: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """``a_i' b_j`` ``[B, k, l]`` of all pairs, once each where a is b, and the i and j in them."""
    k, l = a.values.shape[2], b.values.shape[2]
    for runs in _runs(len(a.values), len(b.values), most, upper=a is b):
        rows = torch.cat([torch.full((end - first,), row) for row, first, end in runs])
        columns = torch.cat([torch.arange(first, end) for _, first, end in runs])
        products = a.values.new_empty(len(rows), k, l)
        at = 0
        for row, first, end in runs:
            part = b.values[first:end]
            left = a.values[row].mT.expand(len(part), -1, -1)
            torch.bmm(left, part, out=products[at : at + len(part)])
            at += len(part)
        yield rows.to(products.device), columns.to(products.device), products


def _most_matrices(bytes_each: int, bound: int) -> int:
    return max(1, min(MAX_BATCH, bound // max(1, bytes_each)))


def _centred_side(layers: Sequence[Tensor], dtype: torch.dtype) -> _Side:
    """Centred layers in `dtype`; extra: their norms and the powers of two they were divided by."""
    n, device = len(layers[0]), layers[0].device
    widths = [_padded(layer.shape[1]) for layer in layers]

    def stack(members: list[int]) -> _Stack:
        values = torch.zeros((len(members), n, widths[members[0]]), dtype=dtype, device=device)
        extra = torch.empty((len(members), 2), dtype=torch.float64, device=device)
        for at, i in enumerate(members):
            part, power = _centred(layers[i])
            values[at, :, : part.shape[1]] = part
            extra[at, 0], extra[at, 1] = part.norm() * power, power
        return _Stack(torch.tensor(members, device=device), values, extra)

    return _Side(widths, [n * width * dtype.itemsize for width in widths], stack)


def nuclear_norms(
    x: Sequence[Tensor], y: Sequence[Tensor], max_memory: int
) -> tuple[Tensor, Tensor, Tensor]:
    """``simcore::nuclear_norms``: layers are centred once, or once a chunk of what fits."""
    dtype = torch.float64 if any(t.dtype == torch.float64 for t in (*x, *y)) else torch.float32
    check_finite(x, "X")
    check_finite(y, "Y")
    bound = memory_bound(max_memory, x[0])
    grid = torch.empty((len(x), len(y or x)), dtype=torch.float64, device=x[0].device)
    norm_x, norm_y = torch.empty_like(grid[:, 0]), torch.empty_like(grid[0])
    sides = _centred_side(x, dtype), _centred_side(y, dtype) if y else None
    for a, b in _stack_pairs(*sides, bound // 2):
        norm_x[a.members], norm_y[b.members] = a.extra[:, 0], b.extra[:, 0]
        k, l = a.values.shape[2], b.values.shape[2]
        most = _most_matrices(dtype.itemsize * (4 * k * l + 2 * min(k, l) ** 2), bound // 2)
        for rows, columns, products in _products(a, b, most):
            values = nuclear_norms_of(products) * a.extra[rows, 1] * b.extra[columns, 1]
            grid[a.members[rows], b.members[columns]] = values
            if not y:
                grid[b.members[columns], a.members[rows]] = values
    norm_y = norm_y if y else norm_x
    undefined = (norm_x == 0)[:, None] | (norm_y == 0)[None, :]
    return grid.masked_fill(undefined, float("nan")), norm_x, norm_y


def _takes_jacobi(rows: int, columns: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether our own kernel decomposes matrices ``[rows, columns]``, or their transposes."""
    if device.type != "cuda" or dtype != torch.float32 or max(rows, columns) > MOST_JACOBI:
        return False
    smaller = min(rows, columns)
    needed = dtype.itemsize * smaller * (rows + columns) + JACOBI_STATIC
    properties: Any = torch.cuda.get_device_properties(device)  # torch's stub lacks the next one
    return bool(needed <= properties.shared_memory_per_block_optin)


def singular_systems(m: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Thin SVDs ``[B, k, l]`` as `torch.linalg.svd` gives them; small ones by our own kernel."""
    if not _takes_jacobi(m.shape[1], m.shape[2], m.dtype, m.device):
        return torch.linalg.svd(m, full_matrices=False)
    if m.shape[1] < m.shape[2]:
        v, s, u = torch.ops.simcore.small_svd(m.mT.contiguous())
    else:
        u, s, v = torch.ops.simcore.small_svd(m.contiguous())
    return u, s, v.mT


def _weighted_means(directions: Tensor, rho: Tensor, count: Tensor, weighted: Tensor) -> Tensor:
    """``sum(a rho) / sum(a)`` over the first `count` directions, rows of ``[B, r, k]``."""
    a = (directions @ weighted).abs().sum(-1).double()
    a = a.masked_fill(torch.arange(a.shape[1], device=a.device) >= count[:, None], 0.0)
    return (a * rho).sum(-1) / a.sum(-1)  # 0 / 0: no variance


def _basis_side(
    u: Sequence[Tensor], weighted: Sequence[Tensor], dtype: torch.dtype, pad: bool
) -> _Side:
    """Bases; extra: weighted components ``[B, width, p]``, of which there may be none."""
    n = len(u[0])
    widths = [_padded(basis.shape[1]) if pad else basis.shape[1] for basis in u]
    p = max((w.shape[1] for w in weighted), default=0)

    def stack(members: list[int]) -> _Stack:
        width = widths[members[0]]
        values = _fill([u[i] for i in members], (n, width), dtype)
        extra = values[:, :0]
        if weighted:
            extra = _fill([weighted[i] for i in members], (width, p), dtype)
        return _Stack(torch.tensor(members, device=values.device), values, extra)

    return _Side(widths, [(n + p) * width * dtype.itemsize for width in widths], stack)


def pwcca(
    u_x: Sequence[Tensor], weighted_x: Sequence[Tensor], u_y: Sequence[Tensor], max_memory: int
) -> Tensor:
    """``simcore::pwcca`` by batches of singular value decompositions.

    LAPACK may turn vectors of the filled-up columns into others without correlation, which count;
    our own kernel never does (columns of zeros are not rotated). So only with it widths are filled.
    """
    everything = [*u_x, *weighted_x, *u_y]
    dtype = functools.reduce(torch.promote_types, [t.dtype for t in everything])
    widest = _padded(max(basis.shape[1] for basis in (*u_x, *u_y)))
    pad = _takes_jacobi(widest, widest, dtype, u_x[0].device)
    bound = memory_bound(max_memory, u_x[0])
    grid = torch.ones((len(u_x), len(u_y or u_x)), dtype=torch.float64, device=u_x[0].device)
    counts_x, counts_y = (
        torch.tensor([basis.shape[1] for basis in side], device=grid.device)
        for side in (u_x, u_y or u_x)
    )
    sides = (
        _basis_side(u_x, weighted_x, dtype, pad),
        _basis_side(u_y, [], dtype, pad) if u_y else None,
    )
    for a, b in _stack_pairs(*sides, bound // 2):
        (k, l), p = (a.values.shape[2], b.values.shape[2]), a.extra.shape[2]
        bytes_each = dtype.itemsize * (4 * k * l + 3 * min(k, l) ** 2 + 2 * (k + l) * p)
        for rows, columns, products in _products(a, b, _most_matrices(bytes_each, bound // 2)):
            left, rho, right = singular_systems(products)
            rho = rho.double().clamp_max(1)
            i, j = a.members[rows], b.members[columns]
            count = torch.minimum(counts_x[i], counts_y[j])
            grid[i, j] = _weighted_means(left.mT, rho, count, a.extra[rows])
            if not u_y:
                grid[j, i] = _weighted_means(right, rho, count, b.extra[columns])
    if not u_y:
        grid.fill_diagonal_(1.0)
    return grid


# Registered for CUDA in simcore/_ops/spectral.py.
OPERATORS: dict[str, Callable[..., object]] = {
    "principal_components": _in_full_float32(principal_components),
    "nuclear_norms": _in_full_float32(nuclear_norms),
    "pwcca": _in_full_float32(pwcca),
}
