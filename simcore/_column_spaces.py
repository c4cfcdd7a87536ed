"""Orthonormal bases of the columns of layers that are not centred, and their overlaps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from simcore._grid.basis import Basis
from simcore._grid.inputs import row_blocks
from simcore._grid.memory import require_memory
from simcore._grid.rank import floor, rounding_unit
from simcore._grid.side import Side
from simcore._whitened import is_for_whitening, whiten, whitening_bytes
from simcore.basis import decompose

ORDINARY = (1e-60, 1e60)  # magnitudes whose squares, and sums of them, float64 holds


def compute_dtype(layer: Tensor) -> torch.dtype:
    return torch.float64 if layer.dtype == torch.float64 else torch.float32


@dataclass(frozen=True)
class Space:
    """An orthonormal basis of the columns of a layer ``[n, width]``, which are not centred.

    ``vectors`` holds a column of zeros if the rank is 0. ``mean`` is their mean row, float64, and
    ``along`` the centred vectors times their mean row.
    """

    vectors: Tensor
    rank: int
    width: int
    mean: Tensor
    along: Tensor


def overlaps(x: list[Space], y: list[Space], centred: Tensor) -> Tensor:
    """Return ``||U' V||_F^2 / max(p, q)`` of all pairs from ``||Uc' Vc||_F^2``.

    ``U' V = Uc' Vc + n u v'`` with the mean rows u and v.
    """
    n = len(x[0].along)
    along_x, along_y = (torch.stack([space.along for space in side]) for side in (x, y))
    means_x, means_y = (torch.stack([s.mean.square().sum() for s in side]) for side in (x, y))
    products = centred + 2 * n * along_x @ along_y.T + n**2 * means_x[:, None] * means_y
    widths = [centred.new_tensor([float(space.width) for space in side]) for side in (x, y)]
    return products / torch.maximum(widths[0][:, None], widths[1])


def column_spaces(
    function: str, side: Side, bound: int, report: Callable[[float], None]
) -> tuple[list[Space], int]:
    """Return the spaces of the side's layers, and the bytes that they leave."""
    whitened: dict[int, tuple[Space, Tensor]] = {}
    layers = [_in_range(layer) for layer in side.layers]
    held = sum(t.numel() * compute_dtype(t).itemsize for t in layers)
    needed = held + max(whitening_bytes(*layer.shape) for layer in layers)
    require_memory(needed, bound, f"bases of {len(layers)} layers")
    for i, layer in enumerate(layers):
        if is_for_whitening(layer):
            whitened[i] = _by_cholesky(layer)
        report((i + 1) / (2 * len(layers)))
    # One wait for the device, however many layers there are.
    sure = torch.stack([certain for _, certain in whitened.values()]).tolist() if whitened else []
    spaces = {i: space for (i, (space, _)), ok in zip(whitened.items(), sure, strict=True) if ok}
    whitened.clear()  # the spaces that are not certain are made again
    others = [i for i in range(len(layers)) if i not in spaces]
    if others:
        rest = replace(side, layers=layers).part(others)
        bases, _ = decompose(function, rest, [None] * len(others), bound - held)
        means = [_mean_row(layer) for layer in rest.layers]
        limits = [_outside(b, m, t) for b, m, t in zip(bases, means, rest.layers, strict=True)]
        outside = torch.stack(limits).tolist()
        # Each basis goes as its space comes: both of all layers would be twice what is counted.
        for i, mean, beyond in zip(others, means, outside, strict=True):
            spaces[i] = _by_basis(bases.pop(0), mean, beyond)
    return [spaces[i] for i in range(len(layers))], max(bound - held, 1)


def _in_range(layer: Tensor) -> Tensor:
    """Return a float64 layer times a power of two that brings its largest entry near 1."""
    # The space does not depend on the scale.
    if layer.dtype != torch.float64 or layer.device.type != "cpu":
        return layer
    largest = float(layer.abs().max())
    if largest == 0 or ORDINARY[0] < largest < ORDINARY[1]:
        return layer
    return layer * 2.0 ** -max(-1000, min(1000, math.frexp(largest)[1]))


def _mean_row(layer: Tensor) -> Tensor:
    first = layer[0].double()
    return first + torch.stack([(t.double() - first).sum(0) for t in row_blocks(layer)]).sum(
        0
    ) / len(layer)


def _by_cholesky(layer: Tensor) -> tuple[Space, Tensor]:
    """Return the space of a layer of independent centred columns, and if they certainly are."""
    whitened = whiten(layer)
    along = whitened.inverse @ whitened.mean
    return _uncentred(whitened.vectors, along, layer.shape[1], torch.float32), whitened.certain


def _uncentred(vectors: Tensor, mean: Tensor, width: int, dtype: torch.dtype) -> Space:
    """Return the space of ``A + 1 m'``: A an orthonormal basis of centred columns, m ``mean``.

    Its columns have the Gram matrix ``I + n m m'``. Times the inverse root of it they are
    ``A + (1 / r - c A m) m'`` with ``r^2 = 1 + n |m|^2`` and ``c = n / (r (r + 1))``.
    """
    n = len(vectors)
    root = torch.sqrt(1 + n * mean.square().sum())
    along = vectors.double() @ mean
    turned = torch.addr(vectors.double(), 1 / root - n / (root * (root + 1)) * along, mean)
    return Space(turned.to(dtype), vectors.shape[1], width, mean / root, along / root.square())


def _outside(basis: Basis, mean: Tensor, layer: Tensor) -> Tensor:
    """Return whether the mean row lies outside the row space of the centred columns.

    Along its part outside, r, the layer has the singular value ``sqrt(n) |r|``, which counts by the
    rule of `Basis`.
    """
    n, p = layer.shape
    rows = basis.components.double()
    outside = mean - (rows @ mean) @ rows
    if basis.kept == p:
        return torch.zeros_like(mean[0], dtype=torch.bool)
    size = torch.linalg.vector_norm(outside)
    unit = torch.where(size > 0, size, 1.0)
    # [p]: squared lengths of the columns, not centred, over n
    spread = (basis.singular_values * 2.0**basis.exponent)[:, None] * rows
    squares = spread.square().sum(0) / n + mean.square()
    entries = rounding_unit(layer)
    rounding = ((outside / unit).square() @ squares).sqrt() * entries
    return size > torch.maximum(rounding, floor(n, p, entries) * squares.sum().sqrt())


def _by_basis(basis: Basis, mean: Tensor, outside: bool) -> Space:
    """Return the space of a layer from the basis of its centred columns and its mean row."""
    vectors, (n, kept), width = basis.vectors, basis.vectors.shape, basis.components.shape[1]
    if outside:  # then a column of ones lies in the space, and the centred columns with it
        ones = vectors.new_full((n, 1), n**-0.5)
        at_ones = torch.zeros(kept + 1, dtype=torch.float64, device=vectors.device)
        at_ones[-1] = n**-0.5
        return Space(torch.cat([vectors, ones], 1), kept + 1, width, at_ones, mean.new_zeros(n))
    if not kept:
        return Space(vectors.new_zeros(n, 1), 0, width, mean.new_zeros(1), mean.new_zeros(n))
    scale = basis.singular_values * 2.0**basis.exponent
    return _uncentred(vectors, (basis.components.double() @ mean) / scale, width, vectors.dtype)
