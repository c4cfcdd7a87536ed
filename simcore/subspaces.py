"""Layers compared as regressors (GULP) and as subspaces (eigenspace overlap)."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import torch
from torch import Tensor

from simcore._column_spaces import (
    centred_columns,
    column_spaces,
    compute_dtype,
    overlaps,
    whitening_bytes,
)
from simcore._decomposed import decomposed_sides
from simcore._grid.accuracy import OF_WHITENED, TOLERANCE, differences_lost, places_again, within
from simcore._grid.basis import Basis, Columns, columns_of
from simcore._grid.finish import warn_caller
from simcore._grid.inputs import Array, Layers
from simcore._grid.memory import require_memory
from simcore._grid.one_operator import one_operator
from simcore._grid.options import check_ridge
from simcore._grid.progress import progress_bar
from simcore._grid.rank import UNIT32
from simcore._grid.side import LayersOrBases, Side, read_sides
from simcore._ops.hsic import hsic_terms
from simcore._procrustes import RotatedSides, rotate
from simcore.basis import decompose


@one_operator()
def gulp_grid(
    X: LayersOrBases,
    Y: LayersOrBases | None = None,
    *,
    ridge: float = 0.0,
    max_memory: int | None = None,
    progress: bool = False,
) -> Array:
    """Compute the GULP distance of all layer pairs: how far predictions from X and Y are apart.

    The squared differences between the predictions of ridge regressions on X and on Y, summed over
    an orthonormal basis of all targets that the examples may have. With layers that are centred and
    scaled to Frobenius norm ``sqrt(n)``, ``S_xy = X' Y / n`` and ``P_x = (S_xx + ridge)^-1``::

        tr(P_x S_xx P_x S_xx) + tr(P_y S_yy P_y S_yy) - 2 tr(P_x S_xy P_y S_yx)

    0 for layers that agree up to rotation, shift and scale; with ``ridge=0`` up to any invertible
    linear map. As in the authors' code no root is taken.

    Parameters
    ----------
    X, Y : sequence of ``[n, p_i]`` arrays, or one ``[L, n, p]`` array, or list of `Basis`
        Representations as in `cka_grid`, or their `bases`: a truncated basis stands for a truncated
        layer. ``Y=None`` compares X with itself at half the cost.
    ridge : float
        Strength of the ridge regression, in units of the layers' total variance: directions with
        less than ``ridge`` of it count little. 0 takes pseudo-inverses: the distance is then
        ``r_x + r_y - 2 sum(rho^2)`` with the ranks and canonical correlations of the layers, and
        layers with as many columns as rows are all 0 apart.
    max_memory, progress
        A bound in bytes and a bar on stderr, as in `cka_grid`. A whitened copy of each layer counts
        in the bound.

    Returns
    -------
    array ``[len(X), len(Y)]``, float64
        numpy if all inputs are numpy, else a torch tensor on the inputs' device. ``nan`` in the row
        and column of a layer without variance, with one warning. Not differentiable.

    Raises
    ------
    TypeError, ValueError
        As `cka_grid`; a ridge that is no number of at least 0; copies that do not fit into
        `max_memory`.

    Warns
    -----
    UserWarning
        With ``ridge=0``, a layer that has as many independent columns as n rows allow.

    Notes
    -----
    Covariances and their Cholesky factors are float64. Digits cancel between layers that are nearly
    equal: with a ridge, pairs of float32 layers whose distance is small beside the two terms that
    it is the difference of are computed again in float64. With ``ridge=0`` the error of a value of
    float32 layers is at most 1e-6 times the smaller number of rows and columns, beside the float64
    twin with the same rule of rank.

    References
    ----------
    Boix-Adsera et al. 2022, *GULP: a prediction-based metric between representations*.

    Examples
    --------
    >>> import torch
    >>> from simcore import gulp_grid
    >>> x = torch.randn(100, 8)
    >>> bool(gulp_grid([x], [3 * x + 1], ridge=0.1) < 1e-5)
    True
    """
    ridge = check_ridge(ridge)
    if ridge == 0:
        return _gulp_of_bases(X, Y, max_memory, progress)
    sides = read_sides(X, Y, "a basis", max_memory=max_memory, with_bases=True)
    rotated = rotate(sides, progress=progress)
    layers = rotated.x + rotated.y
    held = sum(layer.nbytes for layer in layers)
    largest = max(whitening_bytes(*layer.shape) for layer in layers)
    require_memory(2 * held + largest, rotated.workspace, "whitened copies of the layers")
    with progress_bar("gulp_grid", progress):
        grid, sums, none = _ridge_differences(rotated, ridge)
        lost = differences_lost(grid, OF_WHITENED * UNIT32 * sums)
        grid = rotated.again(
            "gulp_grid", grid, lost, lambda other: _ridge_differences(other, ridge)[0]
        )
    count = len(rotated.x)
    grid = sides.with_selves(grid, 0.0)
    return sides.finish(grid, "gulp_grid", none[:count], none[-len(rotated.y or rotated.x) :])


def _ridge_differences(rotated: RotatedSides, ridge: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the grid, the sums that it is the difference of, and which layers do not vary."""
    layers, count = rotated.x + rotated.y, len(rotated.x)
    left = max(rotated.workspace - sum(layer.nbytes for layer in layers), 1)
    rows, variances = _whitened_layers(layers, ridge, left)
    xy, xx, yy = hsic_terms(rows[:count], rows[count:], "linear", "biased", 1.0, "auto", left)
    xy, sums = ((rotated.sides.n - 1.0) ** 2 * terms for terms in (xy, xx[:, None] + yy))
    return (sums - 2 * xy).clamp(min=0), sums, variances == 0


def _gulp_of_bases(
    X: LayersOrBases, Y: LayersOrBases | None, max_memory: int | None, progress: bool
) -> Array:
    """Return ``r_x + r_y - 2 sum(rho^2)`` of all pairs."""
    decomposed = decomposed_sides("gulp_grid", X, Y, max_memory=max_memory, progress=progress)
    sides = decomposed.sides
    with progress_bar("gulp_grid", progress):
        grid = _unshared(decomposed.x, decomposed.y, decomposed.workspace)
    ranks_x, ranks_y = decomposed.ranks()
    if sides.x.bases is None and sides.y.bases is None:
        lost = differences_lost(grid, OF_WHITENED * UNIT32 * (ranks_x[:, None] + ranks_y))

        def bases_of(side: Side, given: Sequence[Columns], places: list[int]) -> list[Basis]:
            copies = Side(side.name, [side.layers[i].double() for i in places])
            # A copy may not show that its entries were rounded to bfloat16.
            kept = [max(given[i].kept, 1) for i in places]
            return decompose(None, copies, kept, sys.maxsize)[0]

        def exact(rows: list[int], columns: list[int]) -> Tensor:
            own = bases_of(sides.x, decomposed.x, rows)
            return _unshared(own, bases_of(other, decomposed.y or decomposed.x, columns), 0)

        other = sides.x if sides.same else sides.y
        grid = places_again("gulp_grid", sides, grid, lost, exact, symmetric=True)
    grid = sides.with_selves(within(grid, 0.0, math.inf, TOLERANCE), 0.0)
    return sides.finish(grid, "gulp_grid", ranks_x == 0, ranks_y == 0)


def _unshared(x: Sequence[Columns], y: Sequence[Columns], workspace: int) -> Tensor:
    """Return the numbers of columns of both sides less twice the squared correlations."""
    rows, columns = ([columns_of(one) for one in side] for side in (x, y))
    xy, _, _ = hsic_terms(rows, columns, "linear", "biased", 1.0, "auto", workspace)
    n = len(rows[0])
    ranks_x, ranks_y = (xy.new_tensor([one.kept for one in side]) for side in (x, y or x))
    return ranks_x[:, None] + ranks_y - 2 * xy * (n - 1.0) ** 2


def _whitened_layers(layers: list[Tensor], ridge: float, bound: int) -> tuple[list[Tensor], Tensor]:
    """Return ``X (S + ridge)^(-1/2) / sqrt(n)`` of all layers, each up to a rotation."""
    # The second value is ``||Xc||_F^2``, ``[L]``.
    rows, variances, failures = zip(*[_whitened(layer, ridge) for layer in layers], strict=True)
    whitened = list(rows)
    # One synchronisation with the device for all layers.
    for i, failed in enumerate(torch.stack(failures).tolist()):
        if failed:  # a ridge below rounding
            (basis,), _ = decompose(None, Side("X", [layers[i]]), [None], bound)
            shares = basis.singular_values.square() / basis.spectrum.square().sum()
            factors = torch.sqrt(shares / (shares + ridge))
            whitened[i] = basis.vectors * factors.to(basis.vectors.dtype)
    return whitened, torch.stack(variances)


def _whitened(layer: Tensor, ridge: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return `_whitened_layers` of one layer, and whether its covariance has no Cholesky factor."""
    centred, _ = centred_columns(layer)
    variance = centred.square().sum()
    unit = torch.where(variance > 0, variance, 1.0)
    covariance = centred.mT @ centred
    covariance.div_(unit).diagonal().add_(ridge)
    factor, failed = torch.linalg.cholesky_ex(covariance)
    rows = torch.linalg.solve_triangular(factor.mT, centred, upper=True, left=False)
    return rows.div_(unit.sqrt()).to(compute_dtype(layer)), variance, failed


@one_operator()
def eigenspace_overlap_grid(
    X: Layers, Y: Layers | None = None, *, max_memory: int | None = None, progress: bool = False
) -> Array:
    """Compute how far the columns of two layers span the same space, of all layer pairs.

    ``||U' V||_F^2 / max(p, q)`` with orthonormal bases U and V of the columns of two layers ``[n,
    p]`` and ``[n, q]``, which are not centred. In [0, 1]: 1 for a layer with itself or with any
    invertible linear map of it, if its columns are independent; the share of the wider layer's
    dimensions that the narrower spans, if its columns are among them. Two unrelated layers have
    ``min(p, q) / n``.

    Parameters
    ----------
    X, Y : sequence of ``[n, p_i]`` arrays, or one ``[L, n, p]`` array
        Representations as in `cka_grid`. ``Y=None`` compares X with itself at half the cost.
    max_memory, progress
        A bound in bytes and a bar on stderr, as in `cka_grid`. Bases count in the bound.

    Returns
    -------
    array ``[len(X), len(Y)]``, float64
        numpy if all inputs are numpy, else a torch tensor on the inputs' device. ``nan`` in the row
        and column of a layer of zeros, with one warning. Not differentiable.

    Raises
    ------
    TypeError, ValueError
        As `cka_grid`; bases that do not fit into `max_memory`.

    Warns
    -----
    UserWarning
        A layer has n independent columns, and spans every other layer.

    Notes
    -----
    p and q are the numbers of columns, as in the authors' code, whatever the ranks are: a layer
    with dependent columns has less than 1 with itself. The numerical rank is the rank of the
    centred columns, counted as `Basis` says, and 1 more if the mean row lies outside their row
    space by more than rounding. Values of float32 layers are within 1e-5 of the float64 twin's with
    the same rule.

    References
    ----------
    May et al. 2019, *On the downstream performance of compressed word embeddings*; Klabunde et al.
    2024.

    Examples
    --------
    >>> import torch
    >>> from simcore import eigenspace_overlap_grid
    >>> x = torch.randn(100, 8)
    >>> bool((0.5 - eigenspace_overlap_grid([x], [x[:, :4]])).abs() < 1e-5)
    True
    """
    sides = read_sides(X, Y, "a basis", max_memory=max_memory, finite=True)
    with progress_bar("eigenspace_overlap_grid", progress) as report:
        layers = Side("X", sides.layers, labels=sides.labels)
        spaces, left = column_spaces("eigenspace_overlap_grid", layers, sides.bound, report)
        count = len(sides.x)
        rows = [space.vectors for space in spaces]
        terms = hsic_terms(rows[:count], rows[count:], "linear", "biased", 1.0, "auto", left)
    full = [name for name, s in zip(sides.labels, spaces, strict=True) if s.rank == sides.n]
    if full:
        warn_caller(
            f"eigenspace_overlap_grid: n = {sides.n} rows, and n independent columns of "
            f"{', '.join(full)}: they span every other layer; take more rows than columns"
        )
    x, y = spaces[:count], spaces[count:] or spaces
    grid = overlaps(x, y, terms[0] * (sides.n - 1.0) ** 2)
    none_x, none_y = (
        torch.tensor([space.rank == 0 for space in side], device=grid.device) for side in (x, y)
    )
    why = "no entry but zeros"
    return sides.finish(grid.clamp(0.0, 1.0), "eigenspace_overlap_grid", none_x, none_y, why)
