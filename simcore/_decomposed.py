"""Both sides of a grid in the form that the CCA family needs: bases, or layers and bases.

Bases take memory of their own. Every function here therefore also returns the number of bytes of
`max_memory` that its bases leave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from simcore._column_spaces import orthonormal
from simcore._grid.accuracy import TOLERANCE, computed_again, rows_are_hidden, within
from simcore._grid.basis import (
    Basis,
    Columns,
    Truncation,
    check_truncation,
    columns_of,
    per_layer_truncation,
    scores,
    warn_unclear_cuts,
)
from simcore._grid.finish import warn_caller
from simcore._grid.inputs import Array, on_host, row_blocks
from simcore._grid.options import check_flag
from simcore._grid.scale import in_range
from simcore._grid.side import LayersOrBases, Sides, read_sides
from simcore._truncated import truncated


@dataclass(frozen=True)
class DecomposedSides:
    """Orthonormal columns of both sides; ``y`` is empty where X is compared with itself."""

    sides: Sides
    x: list[Columns]
    y: list[Columns]
    cuts: list[float | int | None]  # the truncation of every layer of X, then of Y
    workspace: int  # bytes that the columns leave

    def vectors(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return the columns of the layers of X and of Y, at least one each."""
        return [columns_of(basis) for basis in self.x], [columns_of(basis) for basis in self.y]

    def weighted_components(self) -> list[Tensor]:
        """Return ``diag(s) V'`` of each layer of X over its largest s; zeros without variance."""
        # `vectors` times it is the centred layer, up to a factor.
        return [_weighted_components(basis) for basis in self.x]

    def ranks(self) -> tuple[Tensor, Tensor]:
        """Return the numbers of components of the layers of X and of Y, float64."""
        return _kept(self.x), _kept(self.y or self.x)

    def smaller(self) -> Tensor:
        """Return ``c = min(k_x, k_y)`` of every pair, ``[Lx, Ly]`` float64."""
        return torch.minimum(_kept(self.x)[:, None], _kept(self.y or self.x)[None, :])

    def finish(self, grid: Tensor, function: str) -> Array:
        x, y = _kept(self.x), _kept(self.y or self.x)  # [Lx], [Ly]
        return self.sides.finish(within(grid, 0.0, 1.0, TOLERANCE), function, x == 0, y == 0)


@dataclass(frozen=True)
class ExplainedSides:
    """The layers of X and the orthonormal columns that explain them: of Y, or of X itself."""

    sides: Sides
    layers: list[Tensor]
    explaining: list[Columns]
    vectors: list[Tensor]  # the columns of `explaining`, at least one for each layer
    workspace: int  # bytes that the scaled layers and the columns leave

    @cached_property
    def row_variances(self) -> list[Tensor]:
        """The squared lengths of the centred rows of each layer."""
        return [row_variances(layer) for layer in self.layers]

    def compute(self, function: str, grid_of: Callable[[list[Tensor], int], Tensor]) -> Tensor:
        """Return the grid of the layers, that of float64 where their longest rows hide others."""
        grid = grid_of(self.layers, self.workspace)  # [Lx, Ly]
        (lost,) = on_host([torch.stack([rows_are_hidden(s) for s in self.row_variances])])
        for i in lost.nonzero().flatten().tolist():
            if self.layers[i].dtype != torch.float64:
                computed_again(function, f"{self.sides.x.name}[{i}]")
                wide = self.layers[i].double()
                again = grid_of([wide], max(self.workspace - wide.nbytes, 1))  # [1, Ly]
                grid = grid.index_copy(0, torch.tensor([i], device=grid.device), again)
        return grid

    def finish(self, grid: Tensor, function: str) -> Array:
        constant = torch.stack([(layer == layer[0]).all() for layer in self.layers])  # [Lx]
        empty = _kept(self.explaining) == 0  # [Ly]
        return self.sides.finish(within(grid, 0.0, 1.0, TOLERANCE), function, constant, empty)


def decomposed_sides(
    function: str,
    x: LayersOrBases,
    y: LayersOrBases | None,
    *,
    truncation: Truncation = None,
    standardize: bool = False,
    max_memory: int | None = None,
    progress: bool = False,
) -> DecomposedSides:
    """Decompose both sides of a grid."""
    # A truncation that is a sequence holds one count for every layer of X, then of Y. Warn of
    # layers with as many independent columns as n rows allow: all their pairs have the value 1, and
    # rounding decides which components a truncation keeps.
    check_truncation(truncation)
    check_flag(standardize, "standardize")
    sides = read_sides(x, y, "a basis", max_memory=max_memory, with_bases=True)
    count, left = len(sides.x), sides.bound
    cuts = per_layer_truncation(truncation, count + len(sides.y))
    both: list[list[Columns]] = []
    for side, cuts_of_side in ((sides.x, cuts[:count]), (sides.y, cuts[count:])):
        if truncation is None and not standardize:
            columns, left = orthonormal(function, side, left, progress=progress)
        else:
            columns, left = truncated(
                function, side, cuts_of_side, left, standardize=standardize, progress=progress
            )
        both.append(columns)
    _warn_unclear_cuts(function, sides, both, cuts)
    _warn_saturated(
        function, sides.labels, both[0] + both[1], "their canonical correlations are all 1"
    )
    return DecomposedSides(sides, both[0], both[1], cuts, left)


def _warn_unclear_cuts(
    function: str,
    sides: Sides,
    both: Sequence[Sequence[Columns]],
    cuts: Sequence[float | int | None],
) -> None:
    """Warn of truncations of both sides that rounding decides; given bases had their warning."""
    columns = [*both[0], *both[1]]
    given = {id(basis) for side in (sides.x, sides.y) for basis in side.bases or []}
    made = [
        (name, basis, cut)
        for name, basis, cut in zip(sides.labels, columns, cuts, strict=True)
        if isinstance(basis, Basis) and id(basis) not in given
    ]
    warn_unclear_cuts(function, made)


def explained_sides(
    function: str,
    x: LayersOrBases,
    y: LayersOrBases | None,
    *,
    max_memory: int | None,
    progress: bool,
    columns: bool = False,
) -> ExplainedSides:
    """Return the layers of X and the columns that explain them: of Y, or of X where Y is None."""
    # If X holds bases, a layer is the product of its basis; ``columns`` is the option of
    # `in_range`. Warn of a layer of Y with as many independent columns as n rows allow, because it
    # explains every layer.
    sides = read_sides(x, y, "a basis", max_memory=max_memory, with_bases=True)
    other = sides.x if sides.same else sides.y
    explaining, left = orthonormal(function, other, sides.bound, progress=progress)
    if sides.x.bases is None:
        scaled = in_range(sides.x.layers, columns=columns)
        layers, new = scaled.layers, scaled.nbytes
    else:
        layers = [_layer(basis) for basis in sides.x.bases]
        new = sum(layer.nbytes for layer in layers)
    labels = [other.label(i) for i in range(len(other))]
    _warn_saturated(function, labels, explaining, "they explain everything")
    vectors = [columns_of(columns) for columns in explaining]
    return ExplainedSides(sides, layers, explaining, vectors, max(left - new, 1))


def _warn_saturated(
    function: str, labels: Sequence[str], bases: Sequence[Columns], consequence: str
) -> None:
    """Warn of bases that span all n - 1 dimensions, and with them every other layer."""
    n = len(bases[0].vectors)
    full = [name for name, basis in zip(labels, bases, strict=True) if basis.kept >= n - 1]
    if n > 2 and full:  # every layer of 2 rows has one dimension, and no truncation helps
        warn_caller(
            f"{function}: n = {n} rows, and n - 1 independent columns of {', '.join(full)}: "
            f"{consequence}; truncate, or take more rows than columns"
        )


def _kept(bases: Sequence[Columns]) -> Tensor:
    kept = [basis.kept for basis in bases]
    return torch.tensor(kept, dtype=torch.float64, device=bases[0].vectors.device)


def _layer(basis: Basis) -> Tensor:
    """Return ``vectors diag(s) components / max(s)``."""
    if not basis.kept:
        return basis.vectors @ basis.components  # zeros, as wide as the layer
    return scores(basis) @ basis.components


def _weighted_components(basis: Columns) -> Tensor:
    if not isinstance(basis, Basis):
        return basis.coordinates
    if not basis.kept:
        return basis.components.new_zeros(1, basis.components.shape[1])
    s = basis.singular_values / basis.spectrum[0]  # [k]
    return s.to(basis.components.dtype)[:, None] * basis.components


def row_variances(layer: Tensor) -> Tensor:
    """Return the squared lengths ``[n]`` of centred rows, float64, without a copy of the layer."""
    first = layer[0].double()  # constant columns become exactly 0
    blocks = row_blocks(layer)
    mean = sum((block.double() - first).sum(0) for block in blocks) / len(layer)  # [p]
    return torch.cat([((block.double() - first) - mean).square().sum(1) for block in blocks])
