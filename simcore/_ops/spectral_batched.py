"""The spectral operators in batches of torch's own matrix products; CUDA devices use them.

The functions run on any device: tests compare them on CPU tensors with the operators of the CPU.
The work that depends on one layer alone is done once per layer. Layers of one width lie in one
tensor, so that a batch of pairs takes the same few calls of torch however many pairs it holds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from simcore._grid.inputs import check_finite
from simcore._grid.memory import memory_bound
from simcore._grid.progress import reported
from simcore._ops.composed import centred_columns, in_full_float32
from simcore._ops.eigh import eigh
from simcore._ops.polar import nuclear_norms_of
from simcore._ops.tiles import rows_that_fit

MOST_JACOBI = 128  # rows and columns that simcore::small_svd takes
JACOBI_STATIC = 2048  # bytes of shared memory that it takes at most beside two matrices
VANISHING = 1e-7  # a singular value over the largest, in float32
MAX_BATCH = 4096  # matrices at a time
# Whether a device takes the kernel of an operator; simcore/_kernels/choice.py, above this room,
# puts its own function here.
takes_kernel: Callable[[str, torch.device], bool] | None = None
UNITS = 8  # of rounding, in the error of weights: csrc/torch/composed/pwcca.cpp
PADDING = 16  # widths are rounded up to a multiple, because truncation gives every layer its own


def _descending(eigenvalues: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    return eigenvalues.clamp_min(0).sqrt().flip(-1), vectors.flip(-1)


def _reciprocals(s: Tensor) -> Tensor:
    return torch.where(s > 0, s.reciprocal(), 0.0)


def _decompose(layers: Sequence[Tensor], standardize: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return thin SVDs of layers of one shape and dtype, ``[B, n, r]``, ``[B, r]``, ``[B, r, p]``.

    As on the CPU (csrc/torch), float64 layers get an SVD. Other layers get the eigenvectors of the
    smaller of x x' and x' x: squaring loses only singular values that the rank rule cuts.
    """
    parts = [centred_columns(layer) for layer in layers]
    x = torch.stack([values for values, _ in parts])  # [B, n, p]
    powers = torch.stack([power for _, power in parts])  # [B]
    if standardize:
        x = x * _reciprocals(x.square().mean(1, keepdim=True).sqrt())
        powers = torch.ones_like(powers)
    n, p = x.shape[1:]
    if layers[0].dtype == torch.float64:
        u, s, vt = torch.linalg.svd(x, full_matrices=False)
    elif p <= n:
        s, v = _descending(*eigh(x.mT @ x))
        u, vt = x @ (v * _reciprocals(s)[:, None, :]), v.mT
    else:
        s, u = _descending(*eigh(x @ x.mT))
        vt = _reciprocals(s)[:, :, None] * (u.mT @ x)
    # Rounding errors here would give a constant column variance in vectors diag(s) components.
    vt = vt.masked_fill((x == 0).all(1)[:, None, :], 0.0)
    return u, s * powers[:, None], vt


def principal_components(
    x: Sequence[Tensor], standardize: bool
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Compute ``simcore::principal_components``; layers of one shape are decomposed together."""
    check_finite(x, "X")
    groups: dict[tuple[torch.Size, torch.dtype], list[int]] = {}
    for i, layer in enumerate(x):
        groups.setdefault((layer.shape, layer.dtype), []).append(i)
    empty = x[0].new_empty(0)
    u, s, vt = ([empty] * len(x) for _ in range(3))
    for (_, dtype), members in reported(groups.items()):
        kept = torch.float64 if dtype == torch.float64 else torch.float32
        parts = _decompose([x[i] for i in members], standardize)
        for i, left, values, right in zip(members, *parts, strict=True):
            u[i], s[i], vt[i] = left.to(kept).contiguous(), values, right.to(kept).contiguous()
    return u, s, vt


@dataclass(frozen=True)
class _Stack:
    """Layers as one tensor ``[B, n, width]``, filled up with columns of zeros."""

    members: Tensor  # [B], the numbers of the layers in their side
    values: Tensor
    extra: Tensor  # [B, ...], other values of each layer that an operator needs


@dataclass(frozen=True)
class _Side:
    """The layers of one side of a grid, and the function that stacks some of them."""

    widths: list[int]  # width of the stack that a layer goes to
    bytes_each: list[int]  # bytes of a layer in its stack
    stack: Callable[[list[int]], _Stack]

    def chunks(self, bound: int) -> list[list[list[int]]]:
        """Return the layers as chunks of at most ``bound`` bytes; a chunk is a list of stacks."""
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
    """Return zeros ``[len(parts), *shape]`` with a matrix in the corner of each."""
    filled = parts[0].new_zeros(len(parts), *shape, dtype=dtype)
    for zeros, part in zip(filled, parts, strict=True):
        zeros[: part.shape[0], : part.shape[1]] = part
    return filled


def _stack_pairs(x: _Side, y: _Side | None, bound: int) -> Iterator[tuple[_Stack, _Stack]]:
    """Yield all pairs of stacks, within ``bound`` bytes; (a, b) or (b, a) alone where y is None."""
    chunks = x.chunks(bound // 2)
    for at, rows in reported(enumerate(chunks)):
        left = [x.stack(members) for members in rows]
        if y is None:
            yield from ((a, b) for first, a in enumerate(left) for b in left[first:])
        other, others = (x, chunks[at + 1 :]) if y is None else (y, y.chunks(bound // 2))
        for columns in others:
            right = [other.stack(members) for members in columns]
            yield from ((a, b) for a in left for b in right)


def _runs(rows: int, columns: int, most: int, upper: bool) -> Iterator[list[tuple[int, int, int]]]:
    """Yield ``most`` pairs at a time as runs (row, first column, end); ``upper``: column > row."""
    runs: list[tuple[int, int, int]] = []
    room = most
    for row in range(rows):
        first = row + 1 if upper else 0
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
    """Yield i, j and ``a_i' b_j`` ``[B, k, l]`` of all pairs; of pairs i < j where a is b."""
    k, l = a.values.shape[2], b.values.shape[2]
    device = a.values.device  # copies of numbers from the host would wait for the device
    for runs in _runs(len(a.values), len(b.values), most, upper=a is b):
        rows = torch.cat([torch.full((end - i,), row, device=device) for row, i, end in runs])
        columns = torch.cat([torch.arange(i, end, device=device) for _, i, end in runs])
        products = a.values.new_empty(len(rows), k, l)
        at = 0
        for row, first, end in runs:
            part = b.values[first:end]
            left = a.values[row].mT.expand(len(part), -1, -1)
            torch.bmm(left, part, out=products[at : at + len(part)])
            at += len(part)
        yield rows, columns, products


def _most_matrices(bytes_each: int, bound: int) -> int:
    return max(1, min(MAX_BATCH, bound // max(1, bytes_each)))


def _centred_side(layers: Sequence[Tensor], dtype: torch.dtype) -> _Side:
    """Return a side of centred layers; ``extra`` holds norms and the powers of two divided by."""
    n, device = len(layers[0]), layers[0].device
    widths = [_padded(layer.shape[1]) for layer in layers]

    def stack(members: list[int]) -> _Stack:
        values = torch.zeros((len(members), n, widths[members[0]]), dtype=dtype, device=device)
        extra = torch.empty((len(members), 2), dtype=torch.float64, device=device)
        for at, i in enumerate(members):
            part, power = centred_columns(layers[i])
            values[at, :, : part.shape[1]] = part
            extra[at, 0], extra[at, 1] = part.norm() * power, power
        return _Stack(torch.tensor(members, device=device), values, extra)

    return _Side(widths, [n * width * dtype.itemsize for width in widths], stack)


def nuclear_norms(
    x: Sequence[Tensor], y: Sequence[Tensor], max_memory: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute ``simcore::nuclear_norms``; layers are centred once if all fit into memory."""
    dtype = torch.float64 if any(t.dtype == torch.float64 for t in (*x, *y)) else torch.float32
    check_finite(x, "X")
    check_finite(y, "Y")
    bound, widest = memory_bound(max_memory, x[0]), max(layer.shape[1] for layer in (*x, *y))
    least = max(4 * len(x[0]) * _padded(widest), 12 * _padded(widest) ** 2) * dtype.itemsize
    rows_that_fit(bound, 0, least, 1, "one pair of layers")
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
    if not y:
        norm_y = norm_x.clone()
        grid.diagonal().copy_(norm_x.square())  # X'X has no negative eigenvalue
    undefined = (norm_x == 0)[:, None] | (norm_y == 0)[None, :]
    return grid.masked_fill(undefined, float("nan")), norm_x, norm_y


def _takes_jacobi(rows: int, columns: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether the kernel of ``simcore::small_svd`` takes matrices, or transposed ones."""
    if device.type != "cuda" or dtype != torch.float32 or max(rows, columns) > MOST_JACOBI:
        return False
    if takes_kernel is None or not takes_kernel("small_svd", device):
        return False
    return fits_jacobi(rows, columns, dtype, device)


def fits_jacobi(rows: int, columns: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether a block of a device has the shared memory for such a matrix."""
    smaller = min(rows, columns)
    quads = sum(-(-length // 4) * 4 for length in (rows, columns))  # columns have whole ones
    needed = dtype.itemsize * smaller * quads + JACOBI_STATIC
    properties: Any = torch.cuda.get_device_properties(device)  # torch's stub lacks the next one
    return bool(needed <= properties.shared_memory_per_block_optin)


def composed_small_svd(m: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute ``simcore::small_svd`` by torch's own decompositions."""
    u, s, vt = _composed_systems(m)
    return u.contiguous(), s, vt.mT.contiguous()


def singular_systems(m: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return thin SVDs of ``[B, k, l]`` as `torch.linalg.svd`; small ones by ``small_svd``."""
    if not _takes_jacobi(m.shape[1], m.shape[2], m.dtype, m.device):
        return _composed_systems(m)
    if m.shape[1] < m.shape[2]:
        v, s, u = torch.ops.simcore.small_svd(m.mT.contiguous())
    else:
        u, s, v = torch.ops.simcore.small_svd(m.contiguous())
    return u, s, v.mT


def _composed_systems(m: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return thin SVDs of ``[B, k, l]``."""
    # float32 matrices get one symmetric eigenproblem each, in float64: on a CUDA device torch
    # decomposes matrices one by one, and eigenproblems are solved in batches.
    if m.dtype == torch.float64:
        return torch.linalg.svd(m, full_matrices=False)
    if m.shape[1] > m.shape[2]:
        u, s, vt = _by_eigenvectors(m.mT)
        return vt.mT, s, u.mT
    return _by_eigenvectors(m)


def _by_eigenvectors(m: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return thin SVDs of float32 matrices ``[B, k, l]``, k <= l, from eigenvectors of ``M M'``."""
    # With P the eigenvectors, ``P' M = diag(s) V'``. Squares in float64 keep all singular values
    # that float32 products determine; where some are 0 beside the largest, V needs the SVD.
    wide = m.double()
    p = eigh(wide @ wide.mT)[1].flip(-1)
    turned = p.mT @ wide
    s = torch.linalg.vector_norm(turned, dim=-1)
    vt = turned * _reciprocals(s)[:, :, None]
    u, s, vt = p.to(m.dtype), s.to(m.dtype), vt.to(m.dtype)
    vanishing = (s <= VANISHING * s.amax(-1, keepdim=True)).any(-1)
    (which,) = vanishing.nonzero(as_tuple=True)  # one wait for the device
    if len(which):
        u[which], s[which], vt[which] = torch.linalg.svd(m[which], full_matrices=False)
    return u, s, vt


def weighted_mean(
    directions: Tensor, rho: Tensor, kept: Tensor, weighted: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return ``sum(a rho) / sum(a)`` over the ``kept`` rows of ``directions`` ``[..., r, k]``."""
    # The second value is its error, as in csrc/torch/composed/pwcca.cpp; ``dtype`` is that of the
    # bases.
    parts = directions @ weighted
    a = parts.abs().sum(-1).double()
    total = (a * kept).sum(-1)
    values = (a * kept * rho).sum(-1) / total  # 0 / 0 for a layer without variance
    away = torch.where(kept, rho - values[..., None], 0.0)
    unit = UNITS * torch.finfo(dtype).eps / 2
    gaps = (rho[..., :, None] - rho[..., None, :]).abs()
    gained = away[..., :, None] * (parts.sign() @ parts.mT)
    moved = (gained - gained.mT) * (unit / gaps.clamp(min=unit))
    squares = moved.square().sum((-2, -1)) / 2
    if directions.shape[-1] > rho.shape[-1]:  # the layer has dimensions beside these directions
        squares += (away * a * (unit / rho.clamp(min=unit))).square().sum(-1)
    return values, (squares.sqrt() / total).nan_to_num(0.0)


def _basis_side(
    u: Sequence[Tensor], weighted: Sequence[Tensor], dtype: torch.dtype, pad: bool
) -> _Side:
    """Return a side of bases; ``extra`` holds weighted components ``[B, width, p]``, if given."""
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
) -> tuple[Tensor, Tensor]:
    """Compute ``simcore::pwcca`` by batches of `singular_systems`, one for both directions."""
    # Widths are filled up with columns of zeros only if ``small_svd`` decomposes the products,
    # which never rotates columns of zeros. LAPACK may mix them with directions that have no
    # correlation but a weight.
    everything = [*u_x, *weighted_x, *u_y]
    dtype = functools.reduce(torch.promote_types, [t.dtype for t in everything])
    widest = _padded(max(basis.shape[1] for basis in (*u_x, *u_y)))
    pad = _takes_jacobi(widest, widest, dtype, u_x[0].device)
    bound = memory_bound(max_memory, u_x[0])
    grid = torch.ones((len(u_x), len(u_y or u_x)), dtype=torch.float64, device=u_x[0].device)
    errors = torch.zeros_like(grid)
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
        bytes_each += 8 * (2 * k * l + 6 * min(k, l) ** 2)  # `_by_eigenvectors`, `weighted_mean`
        for rows, columns, products in _products(a, b, _most_matrices(bytes_each, bound // 2)):
            left, rho, right = singular_systems(products)
            rho = rho.double().clamp_max(1)
            i, j = a.members[rows], b.members[columns]
            count = torch.minimum(counts_x[i], counts_y[j])
            kept = torch.arange(rho.shape[1], device=rho.device) < count[:, None]
            ways = [(i, j, left.mT, a.extra[rows])]
            if not u_y:
                ways.append((j, i, right, b.extra[columns]))
            for one, other, directions, weighted in ways:
                grid[one, other], errors[one, other] = weighted_mean(
                    directions, rho, kept, weighted, dtype
                )
    if not u_y:
        grid.fill_diagonal_(1.0)
        errors.fill_diagonal_(0.0)
    return grid, errors


# Registered for CUDA in simcore/_ops/spectral.py.
OPERATORS: dict[str, Callable[..., object]] = {
    "principal_components": in_full_float32(principal_components),
    "nuclear_norms": in_full_float32(nuclear_norms),
    "pwcca": in_full_float32(pwcca),
}
