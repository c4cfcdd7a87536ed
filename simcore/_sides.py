"""The two sides of a grid of the CCA family: arrays or bases, checked, decomposed, and finished."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from simcore._devices import memory_bound
from simcore._inputs import (
    Array,
    Layers,
    as_layer_pair,
    as_layers,
    check_finite,
    check_max_memory,
    warn_caller,
)
from simcore._range import in_range
from simcore.basis import Basis, Truncation, as_basis_list, decompose, per_layer_truncation

LayersOrBases = Layers | Sequence[Basis]


def columns_of(basis: Basis) -> Tensor:
    """The vectors, or one column of zeros: the operators take no layer without columns."""
    return basis.vectors if basis.kept else basis.vectors.new_zeros(len(basis.vectors), 1)


def warn_undefined(
    name: str, undefined_x: Tensor, undefined_y: Tensor | None, why: str = "no variance"
) -> None:
    """One warning that lists the layers whose row or column is ``nan``."""
    layers = [f"X[{i}]" for i in undefined_x.nonzero().flatten().tolist()]
    if undefined_y is not None:
        layers += [f"Y[{i}]" for i in undefined_y.nonzero().flatten().tolist()]
    if layers:
        warn_caller(f"{name}: nan for {', '.join(layers)}: {why}")


def _finish(grid: Tensor, undefined_x: Tensor, undefined_y: Tensor, from_numpy: bool) -> Array:
    grid = grid.masked_fill(undefined_x[:, None] | undefined_y[None, :], float("nan"))
    grid = grid.clamp(max=1.0)
    return grid.numpy() if from_numpy else grid


def _kept(bases: Sequence[Basis]) -> Tensor:
    kept = [basis.kept for basis in bases]
    return torch.tensor(kept, dtype=torch.float64, device=bases[0].vectors.device)


@dataclass(frozen=True)
class BasisSides:
    """Bases of both sides; ``y`` empty: x with itself. ``workspace``: bytes that they leave."""

    x: list[Basis]
    y: list[Basis]
    from_numpy: bool
    workspace: int

    def kept(self) -> tuple[Tensor, Tensor]:
        """Components of every layer of either side, ``[Lx]`` and ``[Ly]`` float64."""
        return _kept(self.x), _kept(self.y or self.x)

    def smaller(self) -> Tensor:
        """``c = min(k_x, k_y)`` of every pair, ``[Lx, Ly]`` float64."""
        x, y = self.kept()
        return torch.minimum(x[:, None], y[None, :])

    def vectors(self) -> tuple[list[Tensor], list[Tensor]]:
        """What the operators take of either side."""
        return [columns_of(basis) for basis in self.x], [columns_of(basis) for basis in self.y]

    def finish(self, grid: Tensor, name: str) -> Array:
        """At most 1, ``nan`` with a warning for layers without variance, numpy if that came in."""
        x, y = self.kept()
        warn_undefined(name, x == 0, y == 0 if self.y else None)
        return _finish(grid, x == 0, y == 0, self.from_numpy)


@dataclass(frozen=True)
class ExplainedSides:
    """Layers, and the bases that explain them: those of Y, or of X itself.

    ``workspace``: bytes that they leave.
    """

    x: list[Tensor]
    explaining: list[Basis]
    same: bool
    from_numpy: bool
    workspace: int

    def vectors(self) -> list[Tensor]:
        """What the operators take of the bases."""
        return [columns_of(basis) for basis in self.explaining]

    def finish(self, grid: Tensor, name: str) -> Array:
        """As `BasisSides.finish`."""
        constant = torch.stack([(layer == layer[0]).all() for layer in self.x])
        empty = _kept(self.explaining) == 0
        warn_undefined(name, constant, None if self.same else empty)
        return _finish(grid, constant, empty, self.from_numpy)


def _check(x: LayersOrBases, y: LayersOrBases | None) -> bool:
    """Same n and device on both sides, whatever they hold; whether all layers are numpy arrays."""
    _, _, from_numpy = as_layer_pair(
        _as_shapes(x, "X"), None if y is None else _as_shapes(y, "Y"), 2, "a basis"
    )
    return from_numpy


def _as_shapes(layers: LayersOrBases, name: str) -> Layers:
    """Bases as tensors of their shape, so that they pass the checks of layers."""
    held = as_basis_list(layers, name)
    return cast(Layers, layers) if held is None else [columns_of(basis) for basis in held]


def _tensors(layers: LayersOrBases, name: str) -> list[Tensor]:
    """Layers that are no bases, without their graph: nothing of this family is differentiable."""
    return [layer.detach() for layer in as_layers(cast(Layers, layers), name)[0]]


def _as_bases(
    layers: LayersOrBases,
    name: str,
    cuts: list[float | int | None],
    standardize: bool,
    bound: int,
    progress: bool,
) -> list[Basis]:
    held = as_basis_list(layers, name)
    if held is None:
        return decompose(_tensors(layers, name), name, cuts, standardize, bound, progress)
    if standardize:
        raise ValueError(
            f"standardize: wanted False, {name} holds bases, which are computed already"
        )
    return [basis.truncate(cut) for basis, cut in zip(held, cuts, strict=True)]


def basis_sides(
    x: LayersOrBases,
    y: LayersOrBases | None,
    *,
    truncation: Truncation = None,
    standardize: bool = False,
    max_memory: int | None = None,
    progress: bool = False,
) -> BasisSides:
    """Bases of both sides; a sequence of counts goes over the layers of X, then of Y."""
    from_numpy = _check(x, y)
    cuts = per_layer_truncation(truncation, len(x) + (0 if y is None else len(y)))
    left = _bound(x, max_memory)
    rows = _as_bases(x, "X", cuts[: len(x)], standardize, left, progress)
    left -= _new_bytes(x, "X", rows)
    if y is None:
        return BasisSides(rows, [], from_numpy, _workspace(left))
    columns = _as_bases(y, "Y", cuts[len(x) :], standardize, _workspace(left), progress)
    left -= _new_bytes(y, "Y", columns)
    return BasisSides(rows, columns, from_numpy, _workspace(left))


def _new_bytes(layers: LayersOrBases, name: str, bases: list[Basis]) -> int:
    """What bases take beyond the inputs: nothing where they are the input."""
    held: Sequence[Basis | None] = as_basis_list(layers, name) or [None] * len(bases)
    pairs = zip(held, bases, strict=True)
    return sum(basis.nbytes for given, basis in pairs if basis is not given)


def _bound(x: LayersOrBases, max_memory: int | None) -> int:
    """The bytes in force; `x` has passed `_check`."""
    first = as_layers(_as_shapes(x, "X"), "X")[0][0]
    return memory_bound(check_max_memory(max_memory), first)


def _workspace(left: int) -> int:
    """At least one byte: the operators refuse too little, and 0 would mean their default."""
    return max(left, 1)


def explained_sides(
    x: LayersOrBases,
    y: LayersOrBases | None,
    *,
    max_memory: int | None,
    progress: bool,
    columns: bool = False,
) -> ExplainedSides:
    """The layers of X, from their bases where it holds such, and bases of Y (or of X).

    ``columns`` as in `in_range`: whether the measure does not feel the scale of a single neuron.
    """
    from_numpy = _check(x, y)
    left = _bound(x, max_memory)
    other, name = (x, "X") if y is None else (y, "Y")
    explaining = _as_bases(other, name, [None] * len(other), False, left, progress)
    left -= _new_bytes(other, name, explaining)
    held = as_basis_list(x, "X")
    if held is None:
        given = _tensors(x, "X")
        check_finite(given, "X")
        scaled = in_range(given, columns=columns)
        layers = scaled.layers
        left -= scaled.nbytes
    else:
        layers = [_layer(basis) for basis in held]
        left -= sum(layer.nbytes for layer in layers)
    return ExplainedSides(layers, explaining, y is None, from_numpy, _workspace(left))


def _layer(basis: Basis) -> Tensor:
    """``vectors diag(s) components`` over the largest s."""
    if not basis.kept:
        return basis.vectors @ basis.components  # zeros, as wide as the layer
    return _scores(basis) @ basis.components


def rotated_layers(
    x: LayersOrBases, y: LayersOrBases | None, *, max_memory: int | None, progress: bool
) -> tuple[list[Tensor], list[Tensor], bool, int]:
    """Layers up to a rotation of their neurons, with at most n columns each, and what they leave.

    A layer wider than n, and a basis, becomes ``vectors diag(s)``, whose cross-products have the
    same singular values.
    """
    from_numpy = _check(x, y)
    left = _bound(x, max_memory)

    def rotate(layers: LayersOrBases, name: str) -> list[Tensor]:
        nonlocal left
        held = as_basis_list(layers, name)
        tensors = [] if held is not None else _tensors(layers, name)
        check_finite(tensors, name)
        result = [_scores(basis) for basis in held or []]
        left -= sum(scores.nbytes for scores in result)
        scaled = in_range(tensors)
        left -= scaled.nbytes
        for layer in scaled.layers:
            if layer.shape[1] > layer.shape[0]:
                parts = decompose([layer], name, [None], False, _workspace(left), progress)
                result.append(_scores(parts[0]))
                left -= result[-1].nbytes
            else:
                result.append(layer)
        return result

    return rotate(x, "X"), [] if y is None else rotate(y, "Y"), from_numpy, _workspace(left)


def _scores(basis: Basis) -> Tensor:
    """``vectors diag(s)`` over the largest s: scale is not felt, and float32 may not hold it."""
    if not basis.kept:
        return columns_of(basis)
    return basis.vectors * (basis.singular_values / basis.spectrum[0]).to(basis.vectors.dtype)


def warn_saturated(name: str, bases: Sequence[Basis], consequence: str) -> None:
    """A basis that spans all n - 1 dimensions holds whatever the other layer is.

    Of two rows every layer has one dimension: nothing that a truncation could change.
    """
    n = len(bases[0].vectors)
    if n > 2 and any(basis.kept >= n - 1 for basis in bases):
        warn_caller(
            f"{name}: a layer of n = {n} rows has n - 1 independent columns, so that "
            f"{consequence}; truncate, or take more rows than columns"
        )
