"""Orthonormal columns of layers by a Cholesky factor, where no spectrum is needed.

Batched products, a Cholesky factor and triangular solutions are fast on every device, and nothing
waits for the device before all layers are factored. Decompositions are slow on CUDA devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from simcore._grid.basis import Columns, Factored
from simcore._grid.progress import progress_bar
from simcore._grid.rank import COVARIANCE_GIVES, floor, rounding_unit
from simcore._grid.side import Side
from simcore.basis import decompose

# Types of devices where grids take columns by factors. On the CPU they decompose all layers: a
# grid of layers then has the bits of the grid of their stored bases.
BY_FACTORS = ("cuda",)


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
    """Whether `whiten` may find the columns of a layer to be certainly independent.

    Squares of float64 layers do not tell the singular values that count from rounding.
    """
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
    """Return orthonormal columns of the side's centred layers, and the bytes that they leave.

    Layers of the CPU, layers whose columns are not certainly independent, float64 layers and layers
    of more columns than rows are decomposed; bases that the side holds are returned.
    """
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
