"""``simcore::aligned_cosines`` in batches of torch's own operations; CUDA devices use it.

The function runs on any device: tests compare it on CPU tensors with the twin. Pairs of layers of
two widths are decomposed together. Entries are not checked.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from simcore._grid.memory import memory_bound
from simcore._ops.columns import NARROW, dtype_of
from simcore._ops.composed import in_full_float32
from simcore._ops.eigh import eigh
from simcore._ops.spectral_batched import _most_matrices, _products, _Side, _Stack, _stack_pairs

RESOLVED = 2.0**-10  # singular values above it, over the largest, lose nothing
CUT = 4  # eps: directions of smaller singular values, over the largest, are rounding


def _near_one(layer: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the layer times the power of two that brings its largest entry near 1."""
    wide = layer.double()
    exponent = torch.frexp(wide.abs().max()).exponent.clamp(-1000, 1000)  # []
    return torch.ldexp(wide, -exponent).to(dtype)


def _units(layer: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the rows at unit length; rows of zeros stay zeros."""
    wide = layer.to(dtype)
    largest = wide.abs().amax(1, keepdim=True)  # [n, 1]
    near_one = wide / torch.where(largest > 0, largest, 1.0)
    length = torch.linalg.vector_norm(near_one, dim=1, keepdim=True)  # [n, 1]
    return near_one / torch.where(length > 0, length, 1.0)


def _side(layers: Sequence[Tensor], dtype: torch.dtype) -> _Side:
    """Return a side of layers; ``extra`` holds their unit rows ``[B, n, width]``."""
    n, device = len(layers[0]), layers[0].device
    widths = [layer.shape[1] for layer in layers]

    def stack(members: list[int]) -> _Stack:
        values = torch.stack([_near_one(layers[i], dtype) for i in members])  # [B, n, p]
        units = torch.stack([_units(layers[i], dtype) for i in members])  # [B, n, p]
        return _Stack(torch.tensor(members, device=device), values, units)

    return _Side(widths, [2 * n * width * dtype.itemsize for width in widths], stack)


def _along(products: Tensor, turned: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``sum_r u_r' turned v_r`` over directions of ``products`` ``[B, p, q]``, float64."""
    # The second value is its error, as in csrc/torch/composed/aligned_cosines.cpp. float32 products
    # get the eigenvectors P of ``M M'`` in float64, whose squares keep all singular values that
    # count; ``P' M = diag(s) V'``.
    if products.shape[1] > products.shape[2]:
        products, turned = products.mT, turned.mT
    if products.dtype == torch.float64:
        u, s, vt = torch.linalg.svd(products, full_matrices=False)
        left = u.mT
    else:
        wide = products.double()
        left = eigh(wide @ wide.mT)[1].mT  # [B, p, p]
        vt = left @ wide  # [B, p, q]
        s = torch.linalg.vector_norm(vt, dim=2)  # [B, p]
        vt = vt / torch.where(s > 0, s, 1.0)[:, :, None]
    largest = s.amax(1, keepdim=True)  # [B, 1]
    eps = torch.finfo(products.dtype).eps
    moved = left @ turned.to(vt.dtype)  # [B, p, q]
    small = (s <= RESOLVED * largest).to(s.dtype)  # [B, p]
    least, both = (eps * largest)[:, :, None], s[:, :, None] + s[:, None, :]
    shares = torch.where(both > least, least / torch.where(both > least, both, 1.0), 1.0)
    block = (moved @ vt.mT) * small[:, :, None] * small[:, None, :]  # [B, p, p]
    errors = torch.linalg.vector_norm(block * shares, dim=(1, 2))  # [B]
    along, kept = (moved * vt).sum(2), s > CUT * eps * largest  # [B, p] each
    return (along * kept).sum(1), errors + (along.abs() * ~kept).sum(1)  # [B] each


def aligned_cosines(
    x: Sequence[Tensor], y: Sequence[Tensor], max_memory: int
) -> tuple[Tensor, Tensor]:
    narrow = any(layer.shape[1] < NARROW for layer in (*x, *y))
    dtype = torch.float64 if narrow else dtype_of([*x, *y])
    bound = memory_bound(max_memory, x[0])
    sides = _side(x, dtype), _side(y, dtype) if y else None
    grid = torch.empty((len(x), len(y or x)), dtype=torch.float64, device=x[0].device)
    errors = torch.zeros_like(grid)
    for a, b in _stack_pairs(*sides, bound // 2):
        k, l = a.values.shape[2], b.values.shape[2]
        most = _most_matrices(8 * (8 * k * l + 4 * min(k, l) ** 2), bound // 2)
        unit_a = _Stack(a.members, a.extra, a.extra)
        unit_b = unit_a if a is b else _Stack(b.members, b.extra, b.extra)
        both = zip(_products(a, b, most), _products(unit_a, unit_b, most), strict=True)
        counts = a.extra.any(2).double() @ b.extra.any(2).double().mT  # [Ba, Bb], rows in common
        for (rows, columns, products), (_, _, turned) in both:
            of_pairs = counts[rows, columns]
            along, moved = _along(products, turned)  # [pairs] each
            values = (along / of_pairs).clamp(-1.0, 1.0)  # nan: no common row
            for out, found in ((grid, values), (errors, moved / of_pairs)):
                out[a.members[rows], b.members[columns]] = found
                if not y:
                    out[b.members[columns], a.members[rows]] = found
    if not y:
        some = torch.stack([layer.any() for layer in x])  # [L]
        grid.diagonal().copy_(torch.where(some, 1.0, torch.nan))
        errors.diagonal().zero_()
    return grid, errors


# Registered for CUDA in simcore/_ops/spectral.py.
OPERATORS = {"aligned_cosines": in_full_float32(aligned_cosines)}
