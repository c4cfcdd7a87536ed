"""Layers compared as regressors (GULP) and as subspaces (eigenspace overlap)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real

import torch
from torch import Tensor

from simcore._decomposed import decomposed_sides, rotated_sides
from simcore._grid.basis import Basis
from simcore._grid.finish import warn_caller
from simcore._grid.inputs import Array, Layers, check_finite, row_blocks
from simcore._grid.one_operator import one_operator
from simcore._grid.progress import progress_bar
from simcore._grid.side import LayersOrBases, Side, read_sides
from simcore._ops.hsic import hsic_terms
from simcore.basis import decompose

ORDINARY = (1e-60, 1e60)  # magnitudes whose squares, and sums of them, float64 holds


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
    max_memory : int, optional
        Bytes that may be allocated beyond the inputs, a whitened copy of each layer included;
        default a quarter of the free memory.
    progress : bool
        Show a progress bar on stderr.

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
    Covariances and their Cholesky factors are float64. The error of a value of float32 layers is at
    most 1e-6 times the smaller number of rows and columns, beside the float64 twin with the same
    rule of rank: digits cancel between layers that are nearly equal.

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
    ridge = _check_ridge(ridge)
    if ridge == 0:
        return _gulp_of_bases(X, Y, max_memory, progress)
    rotated = rotated_sides(X, Y, max_memory=max_memory, progress=progress)
    sides, layers = rotated.sides, rotated.x + rotated.y
    held = sum(layer.nbytes for layer in layers)
    largest = max(_whitening_bytes(*layer.shape) for layer in layers)
    if 2 * held + largest > rotated.workspace:
        raise ValueError(
            f"max_memory: wanted at least {2 * held + largest} bytes for whitened copies of the "
            f"layers, got {rotated.workspace}"
        )
    with progress_bar("gulp_grid", progress):
        rows, variances = _whitened_layers(layers, ridge, rotated.workspace - held)
        count = len(rotated.x)
        left = rotated.workspace - held
        x, y = rows[:count], rows[count:]
        xy, xx, yy = hsic_terms(x, y, "linear", "biased", 1.0, "auto", left)
    grid = (xx[:, None] + yy - 2 * xy) * (sides.n - 1.0) ** 2
    none = variances == 0
    grid = sides.with_zeros(grid.clamp(min=0))
    return sides.finish(grid, "gulp_grid", none[:count], none[count:] if y else none)


def _check_ridge(ridge: float) -> float:
    real = isinstance(ridge, Real) and not isinstance(ridge, bool)
    if not real or not 0 <= ridge < math.inf:
        raise ValueError(f"ridge: wanted a number of at least 0, got {ridge!r}")
    return float(ridge)


def _gulp_of_bases(
    X: LayersOrBases, Y: LayersOrBases | None, max_memory: int | None, progress: bool
) -> Array:
    """Return ``r_x + r_y - 2 sum(rho^2)`` of all pairs."""
    decomposed = decomposed_sides("gulp_grid", X, Y, max_memory=max_memory, progress=progress)
    sides = decomposed.sides
    x, y = decomposed.vectors()
    with progress_bar("gulp_grid", progress):
        xy, _, _ = hsic_terms(x, y, "linear", "biased", 1.0, "auto", decomposed.workspace)
    ranks_x, ranks_y = decomposed.ranks()
    grid = ranks_x[:, None] + ranks_y - 2 * xy * (sides.n - 1.0) ** 2
    grid = sides.with_zeros(grid.clamp(min=0))
    return sides.finish(grid, "gulp_grid", ranks_x == 0, ranks_y == 0)


def _whitening_bytes(n: int, p: int) -> int:
    """Return the bytes of one layer's whitening: two float64 copies, and three square matrices."""
    return 8 * (2 * n * p + 3 * min(n, p) ** 2)


def _centred(layer: Tensor) -> tuple[Tensor, Tensor]:
    """Return the centred columns and the mean row, float64; constant columns become exactly 0."""
    centred = layer.double() - layer[0].double()
    mean = centred.mean(0)
    return centred.sub_(mean), mean.add_(layer[0])


def _dtype_of(layer: Tensor) -> torch.dtype:
    return torch.float64 if layer.dtype == torch.float64 else torch.float32


def _whitened_layers(layers: list[Tensor], ridge: float, bound: int) -> tuple[list[Tensor], Tensor]:
    """Return ``X (S + ridge)^(-1/2) / sqrt(n)`` of all layers, each up to a rotation.

    The second value is ``||Xc||_F^2``, ``[L]``.
    """
    rows, variances, failures = zip(*[_whitened(layer, ridge) for layer in layers], strict=True)
    whitened = list(rows)
    # One synchronisation with the device for all layers.
    for i, failed in enumerate(torch.stack(failures).tolist()):
        if failed:  # a ridge below rounding
            (basis,), _ = decompose(Side("X", [layers[i]]), [None], bound)
            shares = basis.singular_values.square() / basis.spectrum.square().sum()
            factors = torch.sqrt(shares / (shares + ridge))
            whitened[i] = basis.vectors * factors.to(basis.vectors.dtype)
    return whitened, torch.stack(variances)


def _whitened(layer: Tensor, ridge: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return `_whitened_layers` of one layer, and whether its covariance has no Cholesky factor."""
    centred, _ = _centred(layer)
    variance = centred.square().sum()
    unit = torch.where(variance > 0, variance, 1.0)
    covariance = centred.mT @ centred
    covariance.div_(unit).diagonal().add_(ridge)
    factor, failed = torch.linalg.cholesky_ex(covariance)
    rows = torch.linalg.solve_triangular(factor.mT, centred, upper=True, left=False)
    return rows.div_(unit.sqrt()).to(_dtype_of(layer)), variance, failed


@one_operator()
def eigenspace_overlap_grid(
    X: Layers,
    Y: Layers | None = None,
    *,
    max_memory: int | None = None,
    progress: bool = False,
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
    max_memory : int, optional
        Bytes that may be allocated beyond the inputs, bases included; default a quarter of the free
        memory.
    progress : bool
        Show a progress bar on stderr.

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
    with dependent columns has less than 1 with itself. The numerical rank is that of the centred
    columns, counted as `Basis` says, and 1 more if the mean row lies outside their row space by
    more than rounding. Values of float32 layers are within 1e-5 of those of the float64 twin with
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
    sides = read_sides(X, Y, "a basis", max_memory=max_memory)
    for side in (sides.x, sides.y):
        check_finite(side.layers, side.name)
    with progress_bar("eigenspace_overlap_grid", progress) as report:
        spaces, left = _spaces(sides.x.layers + sides.y.layers, sides.bound, report)
        count = len(sides.x)
        rows = [space.vectors for space in spaces]
        terms = hsic_terms(rows[:count], rows[count:], "linear", "biased", 1.0, "auto", left)
    if any(space.rank == sides.n for space in spaces):
        warn_caller(
            f"eigenspace_overlap_grid: a layer has n = {sides.n} independent columns, so that it "
            "spans every other; take more rows than columns"
        )
    x, y = spaces[:count], spaces[count:] or spaces
    grid = _overlaps(x, y, terms[0] * (sides.n - 1.0) ** 2)
    none_x, none_y = (
        torch.tensor([space.rank == 0 for space in side], device=grid.device) for side in (x, y)
    )
    why = "no entry but zeros"
    return sides.finish(grid.clamp(0.0, 1.0), "eigenspace_overlap_grid", none_x, none_y, why)


@dataclass(frozen=True)
class _Space:
    """An orthonormal basis of the columns of a layer ``[n, width]``, which are not centred.

    ``vectors`` holds a column of zeros if the rank is 0. ``mean`` is their mean row, float64, and
    ``along`` the centred vectors times their mean row.
    """

    vectors: Tensor
    rank: int
    width: int
    mean: Tensor
    along: Tensor


def _overlaps(x: list[_Space], y: list[_Space], centred: Tensor) -> Tensor:
    """Return ``||U' V||_F^2 / max(p, q)`` of all pairs from ``||Uc' Vc||_F^2``.

    ``U' V = Uc' Vc + n u v'`` with the mean rows u and v.
    """
    n = len(x[0].along)
    along_x, along_y = (torch.stack([space.along for space in side]) for side in (x, y))
    means_x, means_y = (torch.stack([s.mean.square().sum() for s in side]) for side in (x, y))
    products = centred + 2 * n * along_x @ along_y.T + n**2 * means_x[:, None] * means_y
    widths = [centred.new_tensor([float(space.width) for space in side]) for side in (x, y)]
    return products / torch.maximum(widths[0][:, None], widths[1])


def _spaces(
    layers: list[Tensor], bound: int, report: Callable[[float], None]
) -> tuple[list[_Space], int]:
    """Return the spaces of the layers, and the bytes that they leave.

    Raises
    ------
    ValueError
        The spaces do not fit into ``bound``.
    """
    found: dict[int, _Space] = {}
    layers = [_in_range(layer) for layer in layers]
    held = sum(t.numel() * _dtype_of(t).itemsize for t in layers)
    needed = held + max(_whitening_bytes(*layer.shape) for layer in layers)
    if needed > bound:
        raise ValueError(
            f"max_memory: wanted at least {needed} bytes for bases of {len(layers)} layers, got "
            f"{bound}"
        )
    for i, layer in enumerate(layers):
        tall = layer.shape[1] <= len(layer) and layer.dtype != torch.float64
        if tall and layer.device.type == "cpu":
            space = _by_cholesky(layer)
            if space is not None:
                found[i] = space
        report((i + 1) / (2 * len(layers)))
    others = [i for i in range(len(layers)) if i not in found]
    if others:
        side = Side("X", [layers[i] for i in others])
        bases, _ = decompose(side, [None] * len(others), bound - held)
        means = [_mean_row(layer) for layer in side.layers]
        limits = [_outside(b, m, t) for b, m, t in zip(bases, means, side.layers, strict=True)]
        outside = torch.stack(limits).tolist()
        for i, basis, mean, beyond in zip(others, bases, means, outside, strict=True):
            found[i] = _by_basis(basis, mean, beyond)
    return [found[i] for i in range(len(layers))], max(bound - held, 1)


def _in_range(layer: Tensor) -> Tensor:
    """Return a float64 layer times a power of two that brings its largest entry near 1.

    The space does not depend on the scale. Layers of ordinary scale and other dtypes are returned
    as they are.
    """
    if layer.dtype != torch.float64 or layer.device.type != "cpu":
        return layer
    largest = float(layer.abs().max())
    if largest == 0 or ORDINARY[0] < largest < ORDINARY[1]:
        return layer
    return layer * 2.0 ** -max(-1000, min(1000, math.frexp(largest)[1]))


def _mean_row(layer: Tensor) -> Tensor:
    first = layer[0].double()
    return first + torch.stack([(t.double() - first).sum(0) for t in row_blocks(layer)]).sum(
        0
    ) / len(layer)


def _by_cholesky(layer: Tensor) -> _Space | None:
    """Return the space of a layer whose centred columns are certainly independent, else None."""
    n, p = layer.shape
    centred, mean = _centred(layer)
    gram = centred.mT @ centred
    length = gram.trace().sqrt()
    factor, failed = torch.linalg.cholesky_ex(gram)
    if failed:
        return None
    inverse = torch.linalg.solve_triangular(factor, torch.eye(p, dtype=gram.dtype), upper=False)
    smallest = 1 / torch.linalg.vector_norm(inverse)  # a lower bound, as `length` is an upper one
    if not smallest > torch.finfo(torch.float32).eps * max(n, p) * length:
        return None
    vectors = torch.linalg.solve_triangular(factor.mT, centred, upper=True, left=False)
    return _uncentred(vectors, inverse @ mean, p, torch.float32)


def _uncentred(vectors: Tensor, mean: Tensor, width: int, dtype: torch.dtype) -> _Space:
    """Return the space of ``A + 1 m'``: A an orthonormal basis of centred columns, m ``mean``.

    Its columns have the Gram matrix ``I + n m m'``. Times the inverse root of it they are
    ``A + (1 / r - c A m) m'`` with ``r^2 = 1 + n |m|^2`` and ``c = n / (r (r + 1))``.
    """
    n = len(vectors)
    root = torch.sqrt(1 + n * mean.square().sum())
    along = vectors.double() @ mean
    turned = torch.addr(vectors.double(), 1 / root - n / (root * (root + 1)) * along, mean)
    return _Space(turned.to(dtype), vectors.shape[1], width, mean / root, along / root.square())


def _outside(basis: Basis, mean: Tensor, layer: Tensor) -> Tensor:
    """Return whether the mean row lies outside the row space of the centred columns."""
    n, p = layer.shape
    rows = basis.components.double()
    largest = mean.new_zeros(()) if not basis.kept else basis.spectrum[0] * 2.0**basis.exponent
    size = torch.maximum(largest / n**0.5, torch.linalg.vector_norm(mean))
    rounding = torch.finfo(_dtype_of(layer)).eps * max(n, p)
    return torch.linalg.vector_norm(mean - (rows @ mean) @ rows) > rounding * size


def _by_basis(basis: Basis, mean: Tensor, outside: bool) -> _Space:
    """Return the space of a layer from the basis of its centred columns and its mean row."""
    vectors, (n, kept), width = basis.vectors, basis.vectors.shape, basis.components.shape[1]
    if outside:  # then a column of ones lies in the space, and the centred columns with it
        ones = vectors.new_full((n, 1), n**-0.5)
        at_ones = torch.zeros(kept + 1, dtype=torch.float64, device=vectors.device)
        at_ones[-1] = n**-0.5
        return _Space(torch.cat([vectors, ones], 1), kept + 1, width, at_ones, mean.new_zeros(n))
    if not kept:
        return _Space(vectors.new_zeros(n, 1), 0, width, mean.new_zeros(1), mean.new_zeros(n))
    scale = basis.singular_values * 2.0**basis.exponent
    return _uncentred(vectors, (basis.components.double() @ mean) / scale, width, vectors.dtype)
