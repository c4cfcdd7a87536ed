"""Layers that are compared up to a rotation, and the forms of Procrustes comparisons of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from simcore._grid.accuracy import ROTATED_APART, pairs_again
from simcore._grid.basis import Basis, largest, scores
from simcore._grid.progress import progress_bar
from simcore._grid.scale import in_range
from simcore._grid.side import Side, Sides
from simcore._ops.spectral import nuclear_norms
from simcore.basis import decompose


@dataclass(frozen=True)
class RotatedSides:
    """Layers of at most n columns, each equal to the given layer up to a rotation and a scale."""

    sides: Sides
    x: list[Tensor]
    y: list[Tensor]
    unit_x: Tensor  # the lengths, in the given layers, of a length of 1 in these
    unit_y: Tensor
    workspace: int  # bytes that the layers leave

    def again(
        self,
        function: str,
        grid: Tensor,
        doubtful: Tensor,
        compare: Callable[[RotatedSides], Tensor],
    ) -> Tensor:
        """Return the symmetric grid with the doubtful pairs by ``compare`` of float64 layers."""
        given = [_of_layers(side) for side in (self.sides.x, self.sides.y)]
        sides = replace(self.sides, x=given[0], y=given[1])

        def exact(x: list[Tensor], y: list[Tensor]) -> Tensor:
            both = Sides(Side("X", x), Side("Y", y), sides.bound)
            return compare(rotate(both, progress=False))

        return pairs_again(function, sides, grid, doubtful, exact, symmetric=True)


def rotate(sides: Sides, *, progress: bool) -> RotatedSides:
    """Return layers of at most n columns, each equal to the given layer up to a rotation."""
    # A layer wider than n, and a basis, becomes ``vectors diag(s) / max(s)``: its products with
    # other layers have the same singular values, up to the scale.
    left = sides.bound
    of_x, units_x, left = _rotated(sides.x, left, progress)
    of_y, units_y, left = _rotated(sides.y, left, progress)
    unit_x = torch.stack(units_x)  # [Lx]
    return RotatedSides(sides, of_x, of_y, unit_x, torch.stack(units_y or units_x), left)


def _of_layers(side: Side) -> Side:
    """Return the side with layers, each up to a rotation, in place of its bases."""
    if side.bases is None:
        return side
    layers = [
        vectors * basis.singular_values.to(vectors.dtype) if basis.kept else vectors
        for basis, vectors in zip(side.bases, side.layers, strict=True)
    ]
    return Side(side.name, layers)


def _rotated(side: Side, left: int, progress: bool) -> tuple[list[Tensor], list[Tensor], int]:
    rotated, units = [], []
    if side.bases is None:
        scaled = in_range(side.layers)
        left = max(left - scaled.nbytes, 1)
        for layer, exponent in zip(scaled.layers, scaled.exponents, strict=True):
            unit = torch.full((), 2.0**exponent, dtype=torch.float64, device=layer.device)
            if layer.shape[1] > layer.shape[0]:
                one = Side(side.name, [layer])
                (basis,), _ = decompose(None, one, [None], left, progress=progress)
                layer, unit = scores(basis), unit * largest(basis)  # [n, k], []
                left = max(left - layer.nbytes, 1)
            rotated.append(layer)
            units.append(unit)
    for basis in side.bases or []:
        rotated.append(scores(basis))
        units.append(largest(basis))
        left = max(left - rotated[-1].nbytes, 1)
    return rotated, units, left


def procrustes_form(form: str, sides: Sides, progress: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return the grid of a form, and the norms of the layers of X and of Y; not differentiable."""
    # Pairs that are nearly equal are computed again: the small distance loses what the similarity
    # has. So are products so close to rank 1, as two equal sinks make, that float32 finds no norm.
    rotated = rotate(sides, progress=progress)
    with progress_bar("procrustes_grid", progress):
        grid, squares, norm_x, norm_y = _compared(form, rotated)
    lost = squares.isnan() & (norm_x[:, None] > 0) & (norm_y > 0)  # [Lx, Ly]
    if form != "similarity":
        lost |= squares < ROTATED_APART
    grid = rotated.again("procrustes_grid", grid, lost, lambda other: _compared(form, other)[0])
    return grid, norm_x, norm_y


def _compared(form: str, rotated: RotatedSides) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the grid, its squares over the product of the norms compared, and the norms."""
    total, norm_x, norm_y = nuclear_norms(rotated.x, rotated.y, rotated.workspace)
    s = (total / norm_x[:, None] / norm_y).clamp(max=1.0)  # [Lx, Ly]
    squares = 2 - 2 * s
    if form == "similarity":
        return s, squares, norm_x, norm_y
    if form == "distance":
        return squares.sqrt(), squares, norm_x, norm_y
    if form == "angular":
        return s.arccos(), squares, norm_x, norm_y
    a, b = (norm_x * rotated.unit_x)[:, None], norm_y * rotated.unit_y  # [Lx, 1], [Ly]
    ratio = a / b
    # sqrt(a^2 + b^2 - 2 a b s) for norms of any size: the larger is divided out.
    larger = torch.maximum(a, b)
    unit = torch.where(larger > 0, larger, 1.0)
    left, right = a / unit, b / unit
    squares = (left - right).square() + 2 * left * right * (1 - s.nan_to_num(0.0))
    return unit * squares.sqrt(), ratio + 1 / ratio - 2 * s, norm_x, norm_y


def holds_no_basis(X: object, Y: object = None, **_: object) -> bool:
    """Whether no side holds bases, which have no derivative."""
    sides = [side for side in (X, Y) if isinstance(side, list | tuple)]
    return not any(isinstance(layer, Basis) for side in sides for layer in side)
