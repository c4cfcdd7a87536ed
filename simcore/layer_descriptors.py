"""Descriptors of single layers, and their differences."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import torch
from torch import Tensor

from simcore._grid.accuracy import RELATIVE, computed_again, uniformity_error
from simcore._grid.finish import as_given, warn_caller
from simcore._grid.inputs import Array, Layers
from simcore._grid.memory import memory_bound
from simcore._grid.one_operator import one_operator
from simcore._grid.options import check_choice, check_max_memory
from simcore._grid.progress import progress_bar
from simcore._grid.scale import row_lengths
from simcore._grid.side import Side, Sides, read_side, read_sides
from simcore._ops.declared import is_composed
from simcore._ops.hsic import mean_rows, uniformity

Descriptor = Literal["magnitude", "concentricity", "uniformity"]
DESCRIPTORS: tuple[Descriptor, ...] = get_args(Descriptor)


def _empty(like: Tensor, layers: Layers, **_: object) -> list[Tensor]:
    return [like.new_empty(len(layers), dtype=torch.float64) for _ in DESCRIPTORS]


def _named(outputs: list[Tensor], *_: object, **__: object) -> dict[str, Array]:
    return dict(zip(DESCRIPTORS, outputs, strict=True))


@one_operator(_empty, _named)
def descriptors(
    layers: Layers, *, max_memory: int | None = None, progress: bool = False
) -> dict[str, Array]:
    """Describe the shape of each layer by three numbers, which need no other layer.

    * ``magnitude``: the length of the mean row. Large where all rows share an offset.
    * ``concentricity``: the mean cosine of the rows to the mean row, in [-1, 1]. Near 1 where rows
      point in one direction, as in the narrow cones of many encoders.
    * ``uniformity``: ``log mean exp(-2 ||x_i - x_j||^2)`` over all ordered pairs of rows, the
      diagonal included, in ``[-log n, 0]``. Low where rows are spread out; it is made for rows of
      length 1, and is at its lowest value where all rows are more than a few units apart.

    Parameters
    ----------
    layers : sequence of ``[n, p_i]`` arrays, or one ``[L, n, p]`` array
        Representations and errors as in `cka_grid`; n may differ between layers.
    max_memory, progress
        A bound in bytes and a bar on stderr, as in `cka_grid`.

    Returns
    -------
    dict of str to array ``[L]``, float64
        numpy if all inputs are numpy, else torch tensors on the inputs' device. The concentricity
        of a layer whose mean row is zero up to rounding (shorter than ``eps`` of the layer's dtype
        times the root mean square of the rows' lengths) is ``nan``, with one warning. Not
        differentiable.

    Warns
    -----
    UserWarning
        Rows of zeros, which have no direction, are left out of the mean cosine.

    Notes
    -----
    Magnitude reads a layer once, concentricity twice; both compute in float64. Uniformity is one
    pass over its distances, formed in float32 from centred float32 layers: the error of a distance
    is a few 1e-7 of the squared lengths of the two centred rows. Where this would move a value, or
    a difference of two values, by more than 1e-4 of it, the layers are computed in float64.

    References
    ----------
    Klabunde et al. 2024; Wang and Isola 2020 (uniformity); Wang et al. 2022 (magnitude and
    concentricity).

    Examples
    --------
    >>> import numpy as np
    >>> from simcore import descriptors
    >>> values = descriptors([np.array([[1.0, 1.0], [1.0, -1.0]])])
    >>> values["magnitude"], values["concentricity"].round(6)
    (array([1.]), array([0.707107]))
    """
    side = read_side(layers, "layers", "a descriptor", least_rows=1)
    side = replace(side, layers=[layer.detach() for layer in side.layers])
    values = _described(side, DESCRIPTORS, check_max_memory(max_memory), "descriptors", progress)
    _warn_of_directions("descriptors", [(side, values)])
    return {name: as_given(values[name], side.from_numpy) for name in DESCRIPTORS}


@one_operator()
def descriptor_grid(
    X: Layers,
    Y: Layers | None = None,
    *,
    descriptor: Descriptor,
    max_memory: int | None = None,
    progress: bool = False,
) -> Array:
    """Compute the absolute difference of a descriptor of two layers, of all pairs.

    A distance: 0 for a layer with itself. It ignores which rows of the two layers belong together,
    so that permutation tests refuse it, and distances of 0 say little.

    Parameters
    ----------
    X, Y : sequence of ``[n, p_i]`` arrays, or one ``[L, n, p]`` array
        As in `cka_grid`.
    descriptor : {"magnitude", "concentricity", "uniformity"}
        As in `descriptors`, whose notes and warnings hold here too.
    max_memory, progress
        A bound in bytes and a bar on stderr, as in `cka_grid`.

    Returns
    -------
    array ``[len(X), len(Y)]``, float64
        numpy if all inputs are numpy, else a torch tensor on the inputs' device. ``nan`` in the row
        and column of a layer without concentricity, with one warning. Not differentiable.

    Raises
    ------
    TypeError, ValueError
        As `descriptors`; layers of different n; an unknown descriptor.

    References
    ----------
    Klabunde et al. 2024.

    Examples
    --------
    >>> import torch
    >>> from simcore import descriptor_grid
    >>> x = torch.randn(3, 100, 8)
    >>> descriptor_grid(x, descriptor="uniformity").diagonal()
    tensor([0., 0., 0.], dtype=torch.float64)
    """
    check_choice(descriptor, "descriptor", Descriptor)
    sides = read_sides(X, Y, "a descriptor", least_rows=1, max_memory=max_memory)
    return _differences(sides, descriptor, progress)


def _differences(sides: Sides, descriptor: str, progress: bool) -> Array:
    if descriptor == "uniformity" or is_composed(sides.device):
        sides.check_finite()  # in other cases the operator does it
    described = [
        (side, _described(side, (descriptor,), sides.max_memory, "descriptor_grid", progress))
        for side in (sides.x, sides.y)
        if side.layers
    ]
    _warn_of_directions("descriptor_grid", described)
    x, y = described[0][1][descriptor], described[-1][1][descriptor]
    if descriptor == "uniformity":
        x, y = _exact_differences(sides, x, y)
    return as_given((x[:, None] - y[None, :]).abs(), sides.from_numpy)


def _described(
    side: Side, wanted: tuple[str, ...], max_memory: int, function: str, progress: bool
) -> dict[str, Tensor]:
    """Return the wanted descriptors, and ``zeros``, the numbers of rows of zeros, if counted."""
    bound = memory_bound(max_memory, side.layers[0])
    values: dict[str, Tensor] = {}
    with progress_bar(function, progress) as report:
        if "uniformity" in wanted:
            values["uniformity"] = _uniformity(side.layers, bound)
            if function == "descriptors":
                found = values["uniformity"]
                doubtful = RELATIVE * found.abs() < _uniformity_errors(side, found)
                values["uniformity"] = _exact_uniformity(function, side, found, doubtful, bound)
        with_cosines = "concentricity" in wanted
        if with_cosines or "magnitude" in wanted:
            parts = mean_rows(side.layers, with_cosines, bound, side.name)
            names = ("magnitude", "concentricity", "zeros") if with_cosines else ("magnitude",)
            values.update(zip(names, parts, strict=False))
        report(1.0)
    return values


def _uniformity(layers: list[Tensor], bound: int) -> Tensor:
    """Call the operator for all layers together, or one by one if they differ in n."""
    if all(len(layer) == len(layers[0]) for layer in layers):
        return uniformity(layers, bound)
    return torch.cat([uniformity([layer], bound) for layer in layers])


def _uniformity_errors(side: Side, values: Tensor) -> Tensor:
    """Return bounds ``[L]`` on the rounding of uniformities, 0 for float64 layers."""
    alike = all(len(layer) == len(side.layers[0]) for layer in side.layers)
    groups = [side.layers] if alike else [[layer] for layer in side.layers]
    lengths = torch.cat([row_lengths(group) for group in groups])
    n = torch.tensor([len(layer) for layer in side.layers], dtype=torch.float64)
    narrow = torch.tensor([layer.dtype != torch.float64 for layer in side.layers])
    return (uniformity_error(values.cpu(), lengths, n) * narrow).to(values.device)


def _exact_differences(sides: Sides, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return uniformities, in float64 of layers whose difference float32 would lose."""
    errors_x = _uniformity_errors(sides.x, x)
    errors_y = errors_x if sides.same else _uniformity_errors(sides.y, y)
    lost = RELATIVE * (x[:, None] - y).abs() < errors_x[:, None] + errors_y
    itself = sides.selves()
    if itself is not None:
        lost &= ~itself
    if sides.same:
        x = _exact_uniformity("descriptor_grid", sides.x, x, lost.any(1), sides.bound)
        return x, x
    x = _exact_uniformity("descriptor_grid", sides.x, x, lost.any(1), sides.bound)
    return x, _exact_uniformity("descriptor_grid", sides.y, y, lost.any(0), sides.bound)


def _exact_uniformity(
    function: str, side: Side, values: Tensor, doubtful: Tensor, bound: int
) -> Tensor:
    """Return uniformities, computed again from one float64 copy at a time where doubtful."""
    values = values.clone()
    for i in doubtful.nonzero().flatten().tolist():
        layer = side.layers[i]
        if layer.dtype != torch.float64:
            computed_again(function, f"{side.name}[{i}]")
            wide = layer.double()
            values[i] = uniformity([wide], max(bound - wide.nbytes, 1))[0]
    return values


def _warn_of_directions(function: str, described: list[tuple[Side, dict[str, Tensor]]]) -> None:
    """Warn of rows of zeros, and of layers whose mean row has no direction."""
    zeros, undefined = [], []
    for side, values in described:
        if "zeros" not in values:
            continue
        counts = torch.stack([values["zeros"].double(), values["concentricity"]]).T.tolist()
        for i, (count, value) in enumerate(counts):
            if value != value:
                undefined.append(f"{side.name}[{i}]")
            elif count > 0:
                zeros.append(f"{int(count)} of {side.name}[{i}]")
    if zeros:
        warn_caller(f"{function}: rows of zeros are left out: {', '.join(zeros)}")
    if undefined:
        warn_caller(
            f"{function}: nan for {', '.join(undefined)}: a mean row of zero up to rounding"
        )
