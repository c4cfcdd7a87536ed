"""Layers compared row by row: cosines of rows, and predictions of classifiers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from simcore._grid.accuracy import TOLERANCE, within
from simcore._grid.derivative import with_gradients
from simcore._grid.finish import as_given, warn_left_out
from simcore._grid.inputs import Array, Layers
from simcore._grid.one_operator import always, one_operator
from simcore._grid.options import check_choice
from simcore._grid.progress import progress_bar
from simcore._grid.side import Sides, read_sides
from simcore._ops.declared import is_composed
from simcore._ops.hsic import row_pairs
from simcore._ops.rows_composed import blocks_of_rows, directions

Form = Literal["cosine", "angular"]
MEASURES = {"cosine": "cosine", "angular": "angle"}  # of the operator, by form
SQUARED_SINE = 2.0**-49  # of an angle: a smaller one is rounding


@one_operator(derivative=always)
def cosine_grid(
    X: Layers,
    Y: Layers | None = None,
    *,
    form: Form = "cosine",
    max_memory: int | None = None,
    progress: bool = False,
) -> Array:
    """Compute the mean cosine of the rows of two layers, of all layer pairs.

    ``mean_i cos(x_i, y_i)``: how much an example's vector changes its direction between two layers
    that share their coordinates, such as the layers of a residual stream. ``1 - cosine`` between
    neighbouring layers is the block influence of Men et al.

    Parameters
    ----------
    X, Y : sequence of ``[n, p]`` arrays, or one ``[L, n, p]`` array
        Representations as in `cka_grid`, all of the same width; they are not centred.
    form : {"cosine", "angular"}
        ``angular`` is ``mean_i arccos(cos(x_i, y_i)) / pi``, a distance: 0 for a layer with itself.
    max_memory, progress
        A bound in bytes and a bar on stderr, as in `cka_grid`. The backward pass holds float64
        gradients besides.

    Returns
    -------
    array ``[len(X), len(Y)]``, float64
        numpy if all inputs are numpy, else a torch tensor on the inputs' device. ``nan`` in the row
        and column of a layer of zeros, with one warning. Computed in float64. Angles near 0 are
        known to 1e-8. Differentiable in X and Y, once, in reverse mode. Where the gradient does not
        exist, it is 0: by rows of zeros, and of an angle between two rows that point in one
        direction or in opposite ones.

    Raises
    ------
    TypeError, ValueError
        As `cka_grid`; layers of different widths, the message naming two of them.

    Warns
    -----
    UserWarning
        Rows of zeros, which have no direction, are left out of the means.

    References
    ----------
    Men et al. 2024, *ShortGPT* (block influence); Gromov et al. 2024, *The unreasonable
    ineffectiveness of the deeper layers* (angular).

    Examples
    --------
    >>> import torch
    >>> from simcore import cosine_grid
    >>> x = torch.randn(3, 100, 8)
    >>> cosine_grid(x).diagonal().allclose(torch.ones(3, dtype=torch.float64))
    True
    """
    check_choice(form, "form", Form)
    sides = read_sides(X, Y, "cosines", least_rows=1, max_memory=max_memory, differentiable=True)
    _check_widths(sides, "columns")
    with torch.no_grad():
        sums, counts, left = _compared(sides, MEASURES[form], "cosine_grid", progress)
    gradients = functools.partial(_gradients, sides.max_memory, len(sides.x), form, counts)
    (grid,) = with_gradients("cosine_grid", (sums / counts,), sides.layers, gradients)
    labels, empty = sides.labels, left == sides.n
    zeros = left[: len(labels)]
    warn_left_out("cosine_grid", "rows of zeros", labels, zeros, [sides.n] * len(labels))
    if form == "angular":
        grid = sides.with_selves(grid, 0.0)
    else:
        grid = within(grid, -1.0, 1.0, TOLERANCE)
    of_x, of_y = empty[: len(sides.x)], empty[sides.columns]
    return sides.finish(grid, "cosine_grid", of_x, of_y, "no row but zeros")


def _compared(
    sides: Sides, measure: str, function: str, progress: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Call the operator, for a device after the check that it makes on the CPU."""
    if is_composed(sides.device):
        sides.check_finite()
    with progress_bar(function, progress) as report:
        compared = row_pairs(sides.x.layers, sides.y.layers, measure, sides.max_memory)
        report(1.0)
    return compared


def _check_widths(sides: Sides, what: str) -> None:
    wanted = sides.x.layers[0].shape[1]
    for side in (sides.x, sides.y):
        for i, layer in enumerate(side.layers):
            if layer.shape[1] != wanted:
                raise ValueError(
                    f"{side.name}[{i}]: wanted {wanted} {what} as in {sides.x.name}[0], got "
                    f"{layer.shape[1]}"
                )


def _gradients(
    max_memory: int,
    count_x: int,
    form: str,
    counts: Tensor,
    layers: list[Tensor],
    grads: Sequence[Tensor],
    wanted: Sequence[bool],
) -> list[Tensor]:
    """Return the gradients by all layers, given those by the grid."""
    # The cosine c of two rows has the derivative ``(y - c x) / |x|``, with x and y at length 1. An
    # angle has ``-1 / (pi sin)`` times as much, and 0 where the sine is rounding.
    x, y = layers[:count_x], layers[count_x:]
    weights = torch.where(counts > 0, grads[0] / counts, 0.0)
    if not y:
        weights = weights + weights.T
    gradients = [torch.empty_like(layer, dtype=torch.float64) for layer in layers]
    start = 0
    for block_x, block_y in blocks_of_rows(x, y, max_memory, pairs=6, copies=8, refuse=False):
        rows = slice(start, start + block_x.shape[1])
        unit_x, _ = directions(block_x)
        unit_y = directions(block_y)[0] if y else unit_x
        cosines = torch.bmm(unit_x.transpose(0, 1), unit_y.permute(1, 2, 0))  # [rows, Lx, Ly]
        slopes = weights.expand_as(cosines)
        if form == "angular":
            sines = 1 - cosines.square()
            known = sines > SQUARED_SINE
            slopes = torch.where(known, -slopes / torch.where(known, sines, 1.0).sqrt(), 0.0)
            slopes = slopes / torch.pi
        moved = _moved(slopes, cosines, unit_x, unit_y, block_x)
        if y:
            transposed = slopes.transpose(1, 2), cosines.transpose(1, 2)
            moved = [*moved, *_moved(*transposed, unit_y, unit_x, block_y)]
        for gradient, part in zip(gradients, moved, strict=True):
            gradient[rows] = part
        start = rows.stop
    return gradients


def _moved(
    slopes: Tensor, cosines: Tensor, unit_x: Tensor, unit_y: Tensor, x: Tensor
) -> Sequence[Tensor]:
    """Return ``sum_j slopes_ij (y_j - c_ij x_i) / |x_i|`` of some rows, for each layer i of X."""
    along = torch.bmm(slopes, unit_y.transpose(0, 1)).transpose(0, 1)  # [Lx, rows, p]
    back = (slopes * cosines).sum(2).T[..., None] * unit_x
    largest = x.abs().amax(-1, keepdim=True)  # squares of rows divided by it stay in range
    some = torch.where(largest > 0, largest, 1.0)
    lengths = largest * torch.linalg.vector_norm(x / some, dim=-1, keepdim=True)
    return torch.where(lengths > 0, (along - back) / lengths, 0.0).unbind()


@one_operator()
def disagreement_grid(
    X: Layers, Y: Layers | None = None, *, max_memory: int | None = None, progress: bool = False
) -> Array:
    """Compute the share of examples that two classifiers label differently, of all pairs.

    A distance: 0 for a model with itself, 1 if no example gets the same label. The label of an
    example is the place of its largest entry, the first such place if there are several.

    Parameters
    ----------
    X, Y : sequence of ``[n, classes]`` arrays, or one ``[L, n, classes]`` array
        Logits or probabilities of several models for the same examples in the same order.
        ``Y=None`` compares X with itself.
    max_memory, progress
        A bound in bytes and a bar on stderr, as in `cka_grid`.

    Returns
    -------
    array ``[len(X), len(Y)]``, float64
        numpy if all inputs are numpy, else a torch tensor on the inputs' device. Not
        differentiable.

    Raises
    ------
    TypeError, ValueError
        As `cka_grid`; different numbers of classes, the message naming two layers.

    References
    ----------
    Klabunde et al. 2024; Madani et al. 2004.

    Examples
    --------
    >>> import numpy as np
    >>> from simcore import disagreement_grid
    >>> a, b = np.eye(4), np.eye(4)[[0, 1, 3, 2]]
    >>> disagreement_grid([a], [b])
    array([[0.5]])
    """
    sides = read_sides(X, Y, "predictions", least_rows=1, max_memory=max_memory)
    _check_widths(sides, "classes")
    sums, counts, _ = _compared(sides, "labels", "disagreement_grid", progress)
    return as_given(sums / counts, sides.from_numpy)


@one_operator()
def output_divergence_grid(
    X: Layers, Y: Layers | None = None, *, max_memory: int | None = None, progress: bool = False
) -> Array:
    """Compute the mean Jensen-Shannon divergence of two classifiers' probabilities, of all pairs.

    ``mean_i JSD(softmax(x_i), softmax(y_i))`` with logarithms of base 2: a distance in [0, 1], 0
    for a model with itself. Unlike `disagreement_grid` it sees how sure the models are.

    Parameters, return value and errors are as for `disagreement_grid`; X and Y hold logits. All
    is computed in float64.

    References
    ----------
    Klabunde et al. 2024; Lin 1991, *Divergence measures based on the Shannon entropy*.

    Examples
    --------
    >>> import numpy as np
    >>> from simcore import output_divergence_grid
    >>> sure, opposite = np.array([[99.0, 0.0]]), np.array([[0.0, 99.0]])
    >>> output_divergence_grid([sure], [opposite]).round(6)
    array([[1.]])
    """
    sides = read_sides(X, Y, "predictions", least_rows=1, max_memory=max_memory)
    _check_widths(sides, "classes")
    sums, counts, _ = _compared(sides, "divergence", "output_divergence_grid", progress)
    grid = within(sums / counts, 0.0, 1.0, TOLERANCE)
    return as_given(sides.with_selves(grid, 0.0), sides.from_numpy)
