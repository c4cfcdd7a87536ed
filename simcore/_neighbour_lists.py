"""The lists of neighbours of both sides of a grid, found or given, and their ties."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from simcore._grid.accuracy import warn_tied_neighbours
from simcore._grid.inputs import on_host
from simcore._grid.neighbours import Neighbours
from simcore._grid.scale import near_one
from simcore._grid.side import Side, Sides
from simcore._ops.neighbours import nearest_with_ties

LEAST_PRODUCT = 1e-60  # as in `scale.SQUARED_TWICE`
ENTRY_BYTES = 12  # of a list: the number of a row, and a value


@dataclass(frozen=True)
class Lists:
    """The neighbours of the layers of a side, as `Neighbours` describes them."""

    index: Tensor  # [L, n, k]; without layers, all are without entries
    values: Tensor  # [L, n, k]
    squares: Tensor  # [L, n]
    ties: Tensor | None = None  # [L], shares of rows; None for neighbours that the caller gave

    @property
    def undefined(self) -> Tensor:
        """Which layers have no neighbours, ``[L]`` bool."""
        return self.index[:, 0, 0] < 0


def check_neighbours(layer: Tensor, name: str, k: int) -> None:
    if k >= len(layer):
        raise ValueError(
            f"k: wanted at most n - 1 = {len(layer) - 1} neighbours, as {name} has n = "
            f"{len(layer)} rows, got {k}"
        )


def find(
    side: Side,
    k: int,
    metric: str,
    bound: int,
    any_unit: bool = False,
    with_values: bool = True,
    inside: bool = False,
) -> tuple[Lists, int]:
    """Return the neighbours of a side's layers, and the bytes of ``bound`` that the lists leave."""
    # With ``any_unit``, the values of a float64 layer may be in units of a power of two.
    # ``with_values=False`` leaves them and the squares out if the layers come without neighbours.
    # ``inside`` counts ties within the lists too.
    layers = side.layers
    check_neighbours(layers[0], f"{side.name}[0]", k)
    rows = len(layers) * len(layers[0])
    held = rows * (ENTRY_BYTES * k + 8)
    if side.neighbours is not None:
        names = ("index", "values", "squares")
        parts = [torch.stack([getattr(f, name) for f in side.neighbours]) for name in names]
        return Lists(*parts), max(bound - held, 1)
    # One neighbour more is sought; what is wanted is copied from these lists.
    sought = rows * (8 * k + 16 if with_values else ENTRY_BYTES)
    taken = held + sought
    if taken >= bound:
        raise ValueError(
            f"max_memory: wanted more than {taken} bytes for the neighbours in {side.name}, got "
            f"{bound}"
        )
    left = bound - held
    if any_unit:
        layers, copied = _squared_in_range(layers)
        left = max(left - copied, 1)
    room = max(left - sought, 1)
    found = nearest_with_ties(layers, k, metric, room, side.name, with_values, inside=inside)
    return Lists(*found), left


def warn_tied(function: str, sides: Sides, of_sides: Sequence[Lists], inside: bool) -> None:
    """Warn of ties of the layers; neighbours that the caller gave had their warning."""
    named = [
        (f"{side.name}[{i}]", share)
        for side, lists in zip((sides.x, sides.y), of_sides, strict=False)
        if lists.ties is not None
        for i, share in enumerate(lists.ties)
    ]
    warn_tied_neighbours(function, named, inside)


def _squared_in_range(layers: list[Tensor]) -> tuple[list[Tensor], int]:
    """Return layers times powers of two where float64 could not hold products of their products."""
    wide = [i for i, layer in enumerate(layers) if layer.dtype == torch.float64]
    sizes = on_host([layers[i].abs().max() for i in wide])
    result, copied = list(layers), 0
    for i, largest in zip(wide, map(float, sizes), strict=True):
        if LEAST_PRODUCT < largest < 1 / LEAST_PRODUCT or not 0 < largest < math.inf:
            continue
        result[i] = layers[i] * 2.0 ** -near_one(largest)
        copied += result[i].nbytes
    return result, copied


def given_neighbours(sides: Sides) -> Iterator[tuple[str, Neighbours]]:
    """Yield the neighbours that the caller gave in place of layers, with their names."""
    for side in (sides.x, sides.y):
        for i, one in enumerate(side.neighbours or []):
            yield f"{side.name}[{i}]", one


def settled(sides: Sides, k: int | None, metric: str | None) -> tuple[int, str]:
    """Return k and the metric of the given neighbours; without any, the caller's, or defaults."""
    named = list(given_neighbours(sides))
    if not named:
        return 10 if k is None else k, metric or "cosine"
    first, one = named[0]
    for option, asked, own in (("k", k, one.k), ("metric", metric, one.metric)):
        if asked not in (None, own):
            raise ValueError(f"{option}: wanted {own!r} as in {first}, got {asked!r}")
    for name, other in named:
        if (other.k, other.metric) != (one.k, one.metric):
            raise ValueError(
                f"{name}: wanted neighbours of k = {one.k} and metric {one.metric!r} like the "
                f"others, got k = {other.k} and metric {other.metric!r}"
            )
    return one.k, one.metric


def lists_of_both(
    sides: Sides,
    k: int | None,
    metric: str | None,
    any_unit: bool = False,
    with_values: bool = True,
    inside: bool = False,
) -> tuple[Lists, Lists, int]:
    """Return the neighbours of both sides, and the bytes that are left."""
    k, metric = settled(sides, k, metric)
    x, left = find(sides.x, k, metric, sides.bound, any_unit, with_values, inside)
    if sides.same:
        none = Lists(x.index[:0, :0, :0], x.values[:0, :0, :0], x.squares[:0])
        return x, none, left
    y, left = find(sides.y, k, metric, left, any_unit, with_values, inside)
    return x, y, left
