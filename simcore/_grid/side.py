"""Both arguments of a grid, read once: their layers or bases, names, n and device."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from simcore._grid.basis import Basis, columns_of
from simcore._grid.finish import as_given, masked, warn_caller, warn_undefined
from simcore._grid.inputs import (
    LEAST_ROWS,
    Array,
    Layers,
    as_layer,
    as_layers,
    check_alike,
    check_device,
    check_finite,
    check_rows,
    listed,
    records_among,
)
from simcore._grid.matrices import Matrix
from simcore._grid.memory import memory_bound, require_memory
from simcore._grid.neighbours import Neighbours
from simcore._grid.one_operator import is_traced
from simcore._grid.options import check_max_memory

LayersOrBases: TypeAlias = Layers | Sequence[Basis] | Mapping[str, Basis]
LayersOrNeighbours: TypeAlias = Layers | Sequence[Neighbours] | Mapping[str, Neighbours]
BESIDE = 8  # matrices [n, n] of float64 that are held while one layer is ranked or centred


@dataclass(frozen=True)
class Side:
    name: str  # of the argument in the signature of the caller
    # [n, p_i] each, in the caller's memory, or the vectors of the bases. Empty where the grid
    # compares the other side with itself.
    layers: list[Tensor]
    bases: list[Basis] | None = None  # if the argument holds bases
    from_numpy: bool = True  # whether all layers came as numpy arrays
    # If the argument holds neighbours; `layers` are theirs.
    neighbours: list[Neighbours] | None = None
    # If a layer is a matrix over examples: all layers. `layers` has an empty [n, 0] in its place.
    matrices: list[Tensor | Matrix] | None = None
    labels: Sequence[str] = ()  # the names of the layers for messages, if not `name[i]`

    def label(self, i: int) -> str:
        """Return the name of a layer for messages."""
        return self.labels[i] if self.labels else f"{self.name}[{i}]"

    def part(self, members: Sequence[int]) -> Side:
        """Return some of the layers or bases, which keep their names for messages."""
        layers = [self.layers[i] for i in members]
        bases = None if self.bases is None else [self.bases[i] for i in members]
        labels = [self.label(i) for i in members]
        return replace(self, layers=layers, bases=bases, labels=labels)

    def __len__(self) -> int:
        return len(self.layers)


@dataclass(frozen=True)
class Sides:
    """Both arguments of a grid, of one n and on one device; ``y`` is empty where Y is None."""

    x: Side
    y: Side
    max_memory: int = 0  # bytes; 0 stands for the default

    @property
    def n(self) -> int:
        return len(self.x.layers[0])

    @property
    def device(self) -> torch.device:
        return self.x.layers[0].device

    @property
    def same(self) -> bool:
        """Whether X is compared with itself."""
        return not self.y.layers

    @property
    def layers(self) -> list[Tensor]:
        """All layers, of X and then of Y."""
        return self.x.layers + self.y.layers

    @property
    def matrices(self) -> list[Tensor | Matrix]:
        """All layers, of X and then of Y, if one of them is a matrix over examples; else none."""
        if self.x.matrices is None and self.y.matrices is None:
            return []
        return [one for side in (self.x, self.y) for one in side.matrices or side.layers]

    @property
    def columns(self) -> slice:
        """The places of the layers of the grid's columns among those of X and then of Y."""
        return slice(0 if self.same else len(self.x), None)

    @property
    def labels(self) -> list[str]:
        """The names of all layers for messages, of X and then of Y."""
        return [side.label(i) for side in (self.x, self.y) for i in range(len(side))]

    @property
    def from_numpy(self) -> bool:
        return self.x.from_numpy and self.y.from_numpy

    @property
    def bound(self) -> int:
        """The bytes that ``max_memory`` allows; 0 means a quarter of the free memory."""
        return memory_bound(self.max_memory, self.x.layers[0])

    def check_finite(self) -> None:
        for side in (self.x, self.y):
            check_finite(side.layers, side.name)

    def warn_of_two_rows(self) -> None:
        """Warn that CKA of two rows is 1 for all layers; not while torch traces the layers."""
        # The centred Gram matrix of two rows is a multiple of ``[[1, -1], [-1, 1]]`` for every
        # layer.
        if not is_traced(self.x.layers[0]) and self.n == 2:
            warn_caller("cka_grid: CKA of two rows is 1 for all layers; it needs more rows")

    def selves(self) -> Tensor | None:
        """Return which pairs are a layer and itself, by `place`, ``[Lx, Ly]``; None without any."""
        if self.same:
            return torch.eye(len(self.x), dtype=torch.bool, device=self.device)
        places = [
            [place(one if isinstance(one, Tensor) else one.values) for one in layers]
            for layers in (side.matrices or side.layers for side in (self.x, self.y))
        ]
        if set(places[0]).isdisjoint(places[1]):
            return None
        pairs = [[x == y for y in places[1]] for x in places[0]]
        return torch.tensor(pairs, device=self.device)

    def with_selves(self, grid: Tensor, value: float) -> Tensor:
        """Return the grid with exactly this value of a layer and itself; ``nan`` stays ``nan``."""
        itself = self.selves()
        if itself is None:
            return grid
        return grid.masked_fill(itself.to(grid.device) & ~grid.isnan(), value)

    def finish(
        self,
        grid: Tensor,
        function: str,
        undefined_x: Tensor,
        undefined_y: Tensor,
        why: str = "no variance",
    ) -> Array:
        """Warn of undefined layers and return the grid with ``nan`` in their rows and columns."""
        warn_undefined(function, undefined_x, None if self.same else undefined_y, why)
        return as_given(masked(grid, undefined_x, undefined_y), self.from_numpy)


def place(layer: Tensor) -> tuple[Hashable, ...]:
    """Return where a layer is in memory, and how it is read."""
    storage = layer.untyped_storage()
    # Two tensors of one numpy array have a storage each, at one address.
    address = storage.data_ptr() if layer.device.type == "cpu" else storage._cdata
    return address, layer.storage_offset(), layer.shape, layer.stride(), layer.dtype


def _read(
    layers: Any,
    name: str,
    with_bases: bool = False,
    with_neighbours: bool = False,
    matrices: type[Matrix] | None = None,
) -> Side:
    layers = listed(layers)
    bases = records_among(layers, name, Basis) if with_bases else None
    if bases is not None:
        return Side(name, [columns_of(basis) for basis in bases], bases, from_numpy=False)
    records = records_among(layers, name, Neighbours) if with_neighbours else None
    if records is not None:
        tensors, _ = as_layers([one.layer for one in records], name)
        return Side(name, tensors, from_numpy=False, neighbours=records)
    kind = matrices or ()
    some = isinstance(layers, Sequence) and any(isinstance(layer, kind) for layer in layers)
    if not some:
        tensors, from_numpy = as_layers(layers, name)
        return Side(name, tensors, None, from_numpy)
    mixed = [
        layer if isinstance(layer, kind) else as_layer(layer, f"{name}[{i}]")
        for i, layer in enumerate(layers)
    ]
    from_numpy = all(
        layer.from_numpy if isinstance(layer, kind) else not isinstance(layer, Tensor)
        for layer in layers
    )
    tensors = [one if isinstance(one, Tensor) else one.values.new_empty(one.n, 0) for one in mixed]
    return Side(name, tensors, None, from_numpy, matrices=mixed)


def read_side(
    layers: Layers, name: str, purpose: str, least_rows: int = LEAST_ROWS["variance"]
) -> Side:
    """Read the argument of a function of one side; its layers may differ in n."""
    side = _read(layers, name)
    check_device(side.layers[0], f"{name}[0]")
    for i, layer in enumerate(side.layers):
        check_rows(layer, f"{name}[{i}]", least_rows, purpose)
    check_finite(side.layers, name)
    return side


def read_sides(
    x: LayersOrBases | LayersOrNeighbours,
    y: LayersOrBases | LayersOrNeighbours | None,
    purpose: str,  # the reason for `least_rows`, for the message
    *,
    least_rows: int = LEAST_ROWS["variance"],
    max_memory: int | None = None,  # the option of the grid; default a quarter of the free memory
    differentiable: bool = False,  # whether layers keep their graph of derivatives, or are detached
    # Whether layers are checked for NaN and infinity here, as they are beside matrices and where
    # bases may stand for layers, because no operator sees them first; in other grids operators do.
    finite: bool = False,
    with_bases: bool = False,  # whether bases may stand for layers
    with_neighbours: bool = False,  # whether neighbours may stand for layers
    # Matrices over examples that may stand for layers. All then have to fit into `max_memory`.
    matrices: type[Matrix] | None = None,
    names: tuple[str, str] = ("X", "Y"),  # of the arguments in the signature of the caller
) -> Sides:
    """Read both arguments of a grid; ``y=None`` gives an empty second side."""
    bound = check_max_memory(max_memory)  # options before layers: see `check_options`
    kinds = (with_bases, with_neighbours, matrices)
    side_x = _read(x, names[0], *kinds)
    side_y = Side(names[1], []) if y is None else _read(y, names[1], *kinds)
    first = side_x.layers[0]
    for side in (side_x, side_y):
        for i, layer in enumerate(side.layers):
            check_alike(layer, f"{side.name}[{i}]", first, f"{names[0]}[0]")
    check_device(first, f"{names[0]}[0]")
    check_rows(first, f"{names[0]}[0]", least_rows, purpose)
    sides = Sides(side_x, side_y, bound)
    for side in (side_x, side_y):
        if finite or (with_bases and side.bases is None) or sides.matrices:
            check_finite(side.layers, side.name)
    if sides.matrices:
        count = len(sides.matrices)  # of all layers, one by one and then together
        needed = 8 * sides.n**2 * (2 * count + BESIDE)
        require_memory(needed, sides.bound, f"the matrices of {count} layers")
    if differentiable:
        return sides
    x, y = (replace(s, layers=[layer.detach() for layer in s.layers]) for s in (side_x, side_y))
    return replace(sides, x=x, y=y)
