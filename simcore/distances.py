"""Layers compared by the Euclidean distances between their rows."""

from __future__ import annotations

import functools
from typing import Literal

import torch
from torch import Tensor

from simcore._grid.accuracy import (
    OF_SPECTRA,
    computed_again,
    differences_lost,
    loses_distances,
    pairs_again,
    rounding_of_distances,
)
from simcore._grid.derivative import root
from simcore._grid.finish import as_given
from simcore._grid.inputs import Array, Layers
from simcore._grid.one_operator import always, one_operator
from simcore._grid.options import check_choice
from simcore._grid.progress import progress_bar
from simcore._grid.rank import UNIT32
from simcore._grid.scale import InRange, in_range
from simcore._grid.side import Sides, read_sides
from simcore._hsic import normalise
from simcore._ops.composed import full_float32
from simcore._ops.hsic_derivatives import Terms, differentiable_hsic_terms
from simcore._ops.univariate import distance_terms as univariate_terms
from simcore._ops.univariate import univariate_bytes
from simcore._spectral_norms import exact_differences, spectral_differences

Norm = Literal["frobenius", "spectral"]


@one_operator(derivative=always)
def distance_correlation_grid(
    X: Layers, Y: Layers | None = None, *, max_memory: int | None = None, progress: bool = False
) -> Array:
    """Compute the distance correlation of all layer pairs.

    ``sqrt(dCov^2 / sqrt(dVar_x^2 dVar_y^2))`` with ``dCov^2 = mean(A * B)`` of the double-centred
    Euclidean distance matrices A and B: the root of biased CKA whose kernel is the distance. In
    [0, 1]: 1 for layers that agree up to rotation, shift and scale; in the limit of many examples 0
    only for independent layers. Few examples of wide layers give high values to unrelated layers
    too: see `simcore.stats.permutation_test`.

    Parameters
    ----------
    X, Y : sequence of ``[n, p_i]`` arrays, or one ``[L, n, p]`` array
        Representations and errors as in `cka_grid`. ``Y=None`` compares X with itself at half the
        cost. Where all layers have one column, a pair takes n log n operations, not n^2 (on the
        CPU, and without a gradient).
    max_memory, progress
        A bound in bytes and a bar on stderr, as in `cka_grid`. The backward pass obeys the same
        bound, apart from float64 gradients and four float64 copies of a layer; its smallest blocks
        are single rows of the distances of all layers.

    Returns
    -------
    array ``[len(X), len(Y)]``, float64
        numpy if all inputs are numpy, else a torch tensor on the inputs' device. ``nan`` in the row
        and column of a layer without variance, with one warning. Differentiable in X and Y, once,
        in reverse mode; the gradient is computed in float64. Where it does not exist, it is 0:
        through the distance of two equal rows, and where the value is 0.

    Notes
    -----
    Distances come from row lengths and dot products of centred rows: in float32 the square of a
    distance is known to a few 1e-7 of the squared lengths of the two rows, and equal rows are 0
    apart. Where few rows of a layer are so long that they make most of its variance, or many
    are nearly equal, all is computed in float64. Values of float32 layers are within 1e-5 of the
    float64 twin's. Layers of one column are computed in float64.

    References
    ----------
    Szekely, Rizzo and Bakirov 2007, *Measuring and testing dependence by correlation of distances*;
    one column: Huo and Szekely 2016, *Fast computing for distance covariance*.

    Examples
    --------
    >>> import torch
    >>> from simcore import distance_correlation_grid
    >>> x = torch.randn(100, 8)
    >>> bool((1 - distance_correlation_grid([x], [3 * x + 1])).abs() < 1e-5)
    True
    """
    sides = read_sides(X, Y, "distances", max_memory=max_memory, differentiable=True)
    scaled = _wide_where_lost(sides, in_range(sides.layers))
    with progress_bar("distance_correlation_grid", progress):
        xy, xx, yy = _biased_terms(sides, scaled)
    # The covariance of distances is not negative; rounding may make it so.
    values = root(normalise(xy.clamp(min=0), xx, yy).clamp(max=1))
    return sides.finish(values, "distance_correlation_grid", xx <= 0, yy <= 0)


def _biased_terms(sides: Sides, scaled: InRange) -> Terms:
    """Return the terms of layers of one column in n log n operations, where nothing forbids it."""
    layers, room = scaled.layers, max(sides.bound - scaled.nbytes, 1)
    follows = torch.is_grad_enabled() and any(layer.requires_grad for layer in layers)
    one = all(layer.shape[1] == 1 for layer in layers) and sides.device.type == "cpu"
    if not one or follows or univariate_bytes(sides.n, len(layers)) > room:
        return _distance_terms(sides, scaled, "biased")
    sides.check_finite()
    return univariate_terms(layers[: len(sides.x)], layers[len(sides.x) :], room)


def _wide_where_lost(sides: Sides, scaled: InRange) -> InRange:
    """Return the layers, one as float64 where float32 loses distances: all sums then are."""
    # A gradient may be a small difference of terms that are divided by these sums.
    if sides.device.type != "cpu" or not _in_float32(sides):
        return scaled
    layers = list(scaled.layers)
    lost = [i for i, layer in enumerate(layers) if loses_distances(layer.detach())]
    followed = torch.is_grad_enabled() and any(layer.requires_grad for layer in layers)
    if not lost and not followed:
        return scaled
    for i in lost:
        computed_again("distance_correlation_grid", sides.labels[i])
    least = min(range(len(layers)), key=lambda i: layers[i].numel())
    layers[least] = layers[least].double()
    return InRange(layers, scaled.exponents, scaled.nbytes + layers[least].nbytes)


def _distance_terms(sides: Sides, scaled: InRange, estimator: str) -> Terms:
    """Return ``hsic_terms`` of the distance kernel."""
    count = len(sides.x)
    x, y = scaled.layers[:count], scaled.layers[count:]
    left = scaled.workspace(sides.max_memory)
    xy, xx, yy = differentiable_hsic_terms(x, y, "distance", estimator, 1.0, "auto", left)
    return xy, xx, yy


@one_operator()
def rsm_difference_grid(
    X: Layers,
    Y: Layers | None = None,
    *,
    norm: Norm = "frobenius",
    max_memory: int | None = None,
    progress: bool = False,
) -> Array:
    """Compute the norm of the difference of two layers' distance matrices, of all layer pairs.

    ``||D_x - D_y||`` of the Euclidean distance matrices ``[n, n]`` (representational similarity
    matrices, RSM): a distance, 0 for layers that agree up to rotation and shift. It depends on the
    scale of the layers, and grows with n.

    Parameters
    ----------
    X, Y : sequence of ``[n, p_i]`` arrays, or one ``[L, n, p]`` array
        Representations as in `cka_grid`. ``Y=None`` compares X with itself at half the cost.
    norm : {"frobenius", "spectral"}
        ``spectral`` is the largest singular value, by Lanczos iterations for many pairs at once; it
        holds the distance matrices of several layers.
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
        As `cka_grid`; a `max_memory` below what two distance matrices take (``spectral``).

    Notes
    -----
    ``frobenius`` is the root of ``||D_x||^2 + ||D_y||^2 - 2 <D_x, D_y>``: no n x n matrix is held,
    and digits cancel between layers that are nearly equal. ``spectral`` forms the difference, whose
    digits cancel too. Pairs of float32 layers whose distance is small beside the error of either
    are computed again in float64, from the differences of the distances. A layer and itself are
    exactly 0 apart. Between float64 layers the square of a Frobenius norm is within 1e-13 of
    ``||D_x||^2 + ||D_y||^2``, and a spectral norm within 1e-10 of the larger of the two norms.

    References
    ----------
    Klabunde et al. 2024, whose code takes the spectral norm.

    Examples
    --------
    >>> import numpy as np
    >>> from simcore import rsm_difference_grid
    >>> x = np.array([[0.0], [1.0]])
    >>> rsm_difference_grid([x], [3 * x], norm="spectral").round(6)
    array([[2.]])
    """
    check_choice(norm, "norm", Norm)
    of_spectra = norm == "spectral"
    sides = read_sides(X, Y, "distances", max_memory=max_memory, finite=of_spectra)
    scaled = in_range(sides.layers)
    name = "rsm_difference_grid"
    with progress_bar(name, progress) as report:
        if of_spectra:
            bound = scaled.workspace(sides.bound)
            with full_float32():
                grid, errors = spectral_differences(scaled, len(sides.x), bound, report)
                lost = differences_lost(grid, OF_SPECTRA * errors) & _in_float32(sides)
                exact = functools.partial(_exact_spectral, bound=bound)
                grid = pairs_again(name, sides, grid, lost, exact, symmetric=True)
        else:
            terms = _distance_terms(sides, scaled, "product")
            grid = _frobenius_differences(*terms, scaled)
            lost = _lost_differences(grid, *terms[1:], sides)
            exact = functools.partial(exact_differences, bound=sides.bound // 2)
            grid = pairs_again(name, sides, grid, lost, exact, symmetric=True)
    return as_given(sides.with_selves(grid, 0.0), sides.from_numpy)


def _frobenius_differences(xy: Tensor, xx: Tensor, yy: Tensor, scaled: InRange) -> Tensor:
    """Return ``||D_x - D_y||_F`` from the inner products of the scaled layers' distances."""
    if not any(scaled.exponents):
        return (xx[:, None] + yy - 2 * xy).clamp(min=0).sqrt()
    exponents = torch.tensor(scaled.exponents, dtype=torch.float64, device=xy.device)
    of_x, of_y = exponents[: len(xx)][:, None], exponents[-len(yy) :]
    largest = torch.maximum(of_x, of_y)
    a, b = (of_x - largest).exp2(), (of_y - largest).exp2()
    squares = a.square() * xx[:, None] + b.square() * yy - 2 * a * b * xy
    return squares.clamp(min=0).sqrt() * largest.exp2()


def _lost_differences(grid: Tensor, xx: Tensor, yy: Tensor, sides: Sides) -> Tensor:
    """Return which values the sums do not give: none where the sums are float64."""
    layers, n = sides.layers, sides.n
    if sides.device.type != "cpu" or not _in_float32(sides):
        return torch.zeros_like(grid, dtype=torch.bool)
    own = xx if sides.same else torch.cat([xx, yy])
    means = own / (n * (n - 1.0))
    found = [rounding_of_distances(*one) for one in zip(layers, means, strict=True)]
    units, near = map(torch.stack, zip(*found, strict=True))
    of_sums, near = UNIT32 * own * units, n * near
    errors = of_sums[: len(xx), None] + of_sums[-len(yy) :]
    lost = differences_lost(2 * grid.square(), errors)
    return lost | differences_lost(grid, near[: len(xx), None] + near[-len(yy) :])


def _in_float32(sides: Sides) -> bool:
    """Whether no layer is float64, which would make all sums float64."""
    return all(layer.dtype != torch.float64 for layer in sides.layers)


def _exact_spectral(x: list[Tensor], y: list[Tensor], bound: int) -> Tensor:
    scaled = in_range([*x, *y])
    return spectral_differences(scaled, len(x), bound, lambda _: None)[0]
