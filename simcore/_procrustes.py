"""The forms of Procrustes comparisons, from the nuclear norms of the layers' products."""

from __future__ import annotations

from torch import Tensor

from simcore._decomposed import RotatedSides, size_and_shape
from simcore._grid.accuracy import ROTATED_APART
from simcore._ops.spectral import nuclear_norms


def procrustes_form(form: str, rotated: RotatedSides) -> tuple[Tensor, Tensor, Tensor]:
    """Return the grid of a form, and the norms of the layers of X and of Y.

    Pairs that are nearly equal are computed again: the small distance loses what the similarity
    has. So are products so close to rank 1, as two equal sinks make, that float32 finds no norm.
    """
    grid, squares, norm_x, norm_y = _compared(form, rotated)
    lost = squares.isnan() & (norm_x[:, None] > 0) & (norm_y > 0)
    if form != "similarity":
        lost |= squares < ROTATED_APART
    grid = rotated.again("procrustes_grid", grid, lost, lambda other: _compared(form, other)[0])
    return grid, norm_x, norm_y


def _compared(form: str, rotated: RotatedSides) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the grid, its squares over the product of the norms compared, and the norms."""
    total, norm_x, norm_y = nuclear_norms(rotated.x, rotated.y, rotated.workspace)
    s = (total / norm_x[:, None] / norm_y).clamp(max=1.0)
    squares = 2 - 2 * s
    if form == "similarity":
        return s, squares, norm_x, norm_y
    if form == "distance":
        return squares.sqrt(), squares, norm_x, norm_y
    if form == "angular":
        return s.arccos(), squares, norm_x, norm_y
    a, b = norm_x * rotated.unit_x, norm_y * rotated.unit_y
    grid = size_and_shape(s.nan_to_num(0.0), a, b)
    ratio = a[:, None] / b
    return grid, ratio + 1 / ratio - 2 * s, norm_x, norm_y
