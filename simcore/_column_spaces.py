"""Orthonormal columns where no spectrum is needed, and bases of columns that are not centred.

Batched products, a Cholesky factor and triangular solutions are fast on every device, and nothing
waits for the device before all layers are factored. Decompositions are slow on CUDA devices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from simcore._grid.basis import Basis, Columns, Factored
from simcore._grid.inputs import row_blocks
from simcore._grid.memory import require_memory
from simcore._grid.progress import progress_bar
from simcore._grid.rank import COVARIANCE_GIVES, floor, rounding_unit
from simcore._grid.side import Side
from simcore.basis import decompose

# Types of devices where grids take columns by factors. On the CPU they decompose all layers: a
# grid of layers then has the bits of the grid of their stored bases.
BY_FACTORS = ("cuda",)
ORDINARY = (1e-60, 1e60)  # magnitudes whose squares, and sums of them, float64 holds


def whitening_bytes(n: int, p: int) -> int:
    """Return the bytes of one layer's whitening: two float64 copies, and three square matrices."""
    return 8 * (2 * n * p + 3 * min(n, p) ** 2)


def centred_columns(layer: Tensor) -> tuple[Tensor, Tensor]:
    """Return the centred columns and the mean row, float64; constant columns become exactly 0."""
    centred = layer.double() - layer[0].double()
    mean = centred.mean(0)
    return centred.sub_(mean), mean.add_(layer[0])


@dataclass(frozen=True)
class Whitened:
    """A layer whose centred columns are ``vectors @ factor.T``, all float64."""

    vectors: Tensor  # [n, p], orthonormal columns
    factor: Tensor  # [p, p], the lower Cholesky factor of `Xc' Xc`
    inverse: Tensor  # [p, p], of the factor
    mean: Tensor  # [p], the mean row of the layer
    # bool: whether the rule of `simcore.bases` certainly counts every component, and the factor has
    # the digits: the columns, over their lengths before they are centred, have all singular values
    # above the rounding of the layer. Otherwise the rest has no meaning.
    certain: Tensor


def is_for_whitening(layer: Tensor) -> bool:
    """Whether `whiten` may find the columns of a layer to be certainly independent."""
    # Squares of float64 layers do not tell the singular values that count from rounding.
    return layer.shape[1] < layer.shape[0] and layer.dtype != torch.float64


def whiten(layer: Tensor) -> Whitened:
    """Whiten the centred columns of a layer of at most 32 bits and fewer columns than rows."""
    n, p = layer.shape
    centred, mean = centred_columns(layer)
    gram = centred.mT @ centred
    # Powers of two, which round nothing, make the columns, not centred, of length .5 to 1.
    squares = gram.diagonal() + n * mean.square()
    scale = torch.exp2(torch.frexp(squares.sqrt()).exponent.double())
    factor, failed = torch.linalg.cholesky_ex(gram / scale / scale[:, None])
    identity = torch.eye(p, dtype=gram.dtype, device=gram.device)
    inverse = torch.linalg.solve_triangular(factor, identity, upper=False)
    smallest = 1 / torch.linalg.vector_norm(inverse)  # at most the least singular value
    unit = rounding_unit(layer)
    certain = (smallest > unit.clamp(min=COVARIANCE_GIVES)).logical_and(failed == 0)
    inverse /= scale
    length = gram.trace().sqrt()  # at least the largest singular value
    certain &= 1 / torch.linalg.vector_norm(inverse) > floor(n, p, unit) * length
    vectors = torch.linalg.solve_triangular(factor.mT, centred / scale, upper=True, left=False)
    return Whitened(vectors, scale[:, None] * factor, inverse, mean, certain)


def orthonormal(
    function: str, side: Side, bound: int, *, progress: bool = False
) -> tuple[list[Columns], int]:
    """Return orthonormal columns of the side's centred layers, and the bytes that they leave."""
    # Layers of the CPU, layers whose columns are not certainly independent, float64 layers and
    # layers of more columns than rows are decomposed; bases that the side holds are returned.
    factored: dict[int, Factored] = {}
    if side.bases is None and side.layers and side.layers[0].device.type in BY_FACTORS:
        with progress_bar(f"columns of {side.name}", progress) as report:
            factored = _factored(side.layers, bound, report)
    others = [i for i in range(len(side)) if i not in factored]
    left = max(bound - sum(columns.nbytes for columns in factored.values()), 1)
    if not others:
        return [factored[i] for i in range(len(side))], left
    rest = side.part(others)
    bases, left = decompose(function, rest, [None] * len(others), left, progress=progress)
    columns_of: dict[int, Columns] = {**factored, **dict(zip(others, bases, strict=True))}
    return [columns_of[i] for i in range(len(side))], left


def _factored(
    layers: Sequence[Tensor], bound: int, report: Callable[[float], None]
) -> dict[int, Factored]:
    """Return the columns of the layers that are certainly independent, by the layers' numbers."""
    tried = [i for i, layer in enumerate(layers) if is_for_whitening(layer)]
    shapes = [tuple(layers[i].shape) for i in tried]
    held = sum(4 * (n * p + p * p) for n, p in shapes)
    if not tried or held + max(whitening_bytes(n, p) for n, p in shapes) > bound:
        return {}
    factored: dict[int, tuple[Factored, Tensor]] = {}
    for done, i in enumerate(tried, 1):
        whitened = whiten(layers[i].detach())
        largest = whitened.factor.abs().max()
        coordinates = (whitened.factor.mT / torch.where(largest > 0, largest, 1.0)).float()
        factored[i] = Factored(whitened.vectors.float(), coordinates), whitened.certain
        report(done / len(layers))
    # One wait for the device, however many layers there are.
    sure = torch.stack([certain for _, certain in factored.values()]).tolist()
    return {i: columns for (i, (columns, _)), ok in zip(factored.items(), sure, strict=True) if ok}


def compute_dtype(layer: Tensor) -> torch.dtype:
    return torch.float64 if layer.dtype == torch.float64 else torch.float32


@dataclass(frozen=True)
class Space:
    """An orthonormal basis of the columns of a layer ``[n, width]``, which are not centred."""

    vectors: Tensor  # a column of zeros if the rank is 0
    rank: int
    width: int
    mean: Tensor  # the mean row of the vectors, float64
    along: Tensor  # the centred vectors times their mean row


def overlaps(x: list[Space], y: list[Space], centred: Tensor) -> Tensor:
    """Return ``||U' V||_F^2 / max(p, q)`` of all pairs from ``||Uc' Vc||_F^2``."""
    # ``U' V = Uc' Vc + n u v'`` with the mean rows u and v.
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
    """Return the space of ``A + 1 m'``: A an orthonormal basis of centred columns, m ``mean``."""
    # Its columns have the Gram matrix ``I + n m m'``. Times the inverse root of it they are ``A +
    # (1 / r - c A m) m'`` with ``r^2 = 1 + n |m|^2`` and ``c = n / (r (r + 1))``.
    n = len(vectors)
    root = torch.sqrt(1 + n * mean.square().sum())
    along = vectors.double() @ mean
    turned = torch.addr(vectors.double(), 1 / root - n / (root * (root + 1)) * along, mean)
    return Space(turned.to(dtype), vectors.shape[1], width, mean / root, along / root.square())


def _outside(basis: Basis, mean: Tensor, layer: Tensor) -> Tensor:
    """Return whether the mean row lies outside the row space of the centred columns."""
    # Along its part outside, r, the layer has the singular value ``sqrt(n) |r|``, which counts by
    # the rule of `Basis`.
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
