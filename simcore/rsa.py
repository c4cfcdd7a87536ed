"""Representational similarity analysis (RSA) of all layer pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

import torch
from torch import Tensor

from simcore._grid.accuracy import (
    TOLERANCE,
    computed_again,
    pairs_again,
    ranks_are_lost,
    within,
)
from simcore._grid.derivative import with_gradients
from simcore._grid.inputs import LEAST_ROWS, Array, Layers, check_finite
from simcore._grid.matrices import Rdm, holds
from simcore._grid.memory import require_memory
from simcore._grid.one_operator import is_followed, is_traced, one_operator
from simcore._grid.options import check_choice
from simcore._grid.progress import progress_bar
from simcore._grid.rank import UNIT32
from simcore._grid.side import Sides, read_sides
from simcore._hsic import exact_near_one
from simcore._ops.declared import is_composed
from simcore._ops.hsic_derivatives import differentiable_hsic_terms
from simcore._ops.rsa import rank_moments, standardised_rows
from simcore._ops.rsa_composed import TIE, centred_ranks, dissimilarities, distances, unit_rows
from simcore._ops.rsa_composed import rank_moments as composed_moments
from simcore._ops.rsa_composed import standardised_rows as composed_rows
from simcore._ops.tied_rows import tied_pairs

# Dissimilarities of random rows vary by 1 / sqrt(p): for larger p float32 keeps few of its digits.
WIDEST_FLOAT32 = 4096
# Dissimilarities count only if their variance is this many times the variance that rounding gives
# them. At the limit, rounding lowers a correlation by up to 1 / 32.
LEAST_SPREAD = 16
SUMS_ROUND = 2  # units, of float32 sums over dissimilarities
Correlation = Literal["pearson", "spearman"]
WHY_UNDEFINED = "no variance in a row or between the dissimilarities beyond rounding"
# Covariances [Lx, Ly]; variances [Lx] and [Ly]; then for all layers (x, then y) the variance of the
# dissimilarities and the part of it that rounding explains.
Moments = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def _is_differentiable(
    X: object, Y: object = None, *, correlation: str = "pearson", **_: object
) -> bool:
    return correlation == "pearson" and not holds(Rdm, X, Y)


@one_operator(derivative=_is_differentiable)
def rsa_grid(
    X: Layers,
    Y: Layers | None = None,
    *,
    correlation: Correlation = "pearson",
    max_memory: int | None = None,
    progress: bool = False,
) -> Array:
    """Compute the correlation of the representational dissimilarity matrices of all layer pairs.

    A dissimilarity is 1 minus the Pearson correlation of two rows (examples). The upper triangles
    of two dissimilarity matrices are correlated. With ``correlation="pearson"`` no n x n matrix is
    formed: the correlations of rows are a Gram matrix, so that HSIC gives the sums over its
    entries.

    Parameters
    ----------
    X, Y : sequence of ``[n, p_i]`` arrays, or one ``[L, n, p]`` array
        Representations as in `cka_grid`, with p_i >= 2. A layer may be an `Rdm`, dissimilarities of
        the same examples that were made elsewhere: all are then compared in float64, without a
        derivative, and the matrices of all layers are held.
    correlation : {"pearson", "spearman"}
        ``spearman`` ranks the n (n - 1) / 2 dissimilarities of every layer, computed in float64,
        and holds the ranks of all layers. Equal dissimilarities share their mean rank. Those of
        layers whose rows are nearly equal within classes come from differences of rows, which takes
        several times as long, as on a CUDA device.
    max_memory, progress
        A bound in bytes and a bar on stderr, as in `cka_grid`. ``pearson`` holds a standardised
        copy of every layer; its backward pass besides, beyond the bound, the gradients of these and
        some float64 copies of a layer. ``spearman`` holds 2 n^2 bytes of ranks for every layer, and
        12 n^2 bytes more for every layer that is being ranked (on a CUDA device 32 n^2 for one
        layer).

    Returns
    -------
    array ``[len(X), len(Y)]``, float64
        numpy if all inputs are numpy, else a torch tensor. ``nan`` in the row and column of a layer
        that has a row without variance, or whose dissimilarities are equal up to rounding, with one
        warning. ``pearson`` is differentiable in X and Y, in reverse mode, once. ``spearman`` is
        not: ranks are constant almost everywhere.

    Raises
    ------
    TypeError, ValueError
        As `cka_grid`; fewer than 3 rows; layers or ranks that do not fit into `max_memory`.

    Notes
    -----
    An entry of a layer is taken to be known to half the ``eps`` of the layer's dtype, relative to
    its magnitude. Dissimilarities are equal up to rounding if their variance is below 16 times the
    variance that such errors give them. This holds for rows that all point in one direction: rows
    that are positive multiples of one row, or two columns of which the first is always larger. It
    nearly holds if columns have offsets that differ: the dissimilarities are known as long as these
    offsets are below about 4e6 (float32), 500 (float16) or 60 (bfloat16) standard deviations. Data
    that was rounded to half precision should be passed in that dtype: in float32 it would count as
    known to digits that it has lost.

    References
    ----------
    Kriegeskorte et al. 2008.

    Examples
    --------
    >>> import torch
    >>> from simcore import rsa_grid
    >>> x = torch.randn(30, 8)
    >>> float(rsa_grid([x], [2 * x + 1], correlation="spearman"))
    1.0
    """
    check_choice(correlation, "correlation", Correlation)
    sides = read_sides(
        X,
        Y,
        "a dissimilarity matrix",
        least_rows=LEAST_ROWS["dissimilarities"],
        max_memory=max_memory,
        differentiable=correlation == "pearson",
        matrices=Rdm,
    )
    if sides.matrices:
        return _of_matrices(sides, correlation)
    for side in (sides.x, sides.y):
        for i, layer in enumerate(side.layers):
            _check_columns(layer, side.label(i))
    x, y = sides.x.layers, sides.y.layers
    with progress_bar("rsa_grid", progress):
        if correlation == "pearson":
            xy, xx, yy, spread, rounding = _pearson_moments(x, y, sides.bound)
        else:
            xy, xx, yy, spread, rounding = _rank_moments(sides)
    # A constant row gives nan, for which the comparisons are False.
    defined = (spread > LEAST_SPREAD * rounding) & ((torch.cat([xx, yy]) if y else xx) > 0)
    defined_x, defined_y = defined[: len(x)], defined[len(x) :] if y else defined
    # Gradients of the other layers would receive a nan as 0 * nan.
    xx, yy = torch.where(defined_x, xx, 1.0), torch.where(defined_y, yy, 1.0)
    grid = within(xy / torch.sqrt(xx[:, None] * yy[None, :]), -1.0, 1.0, TOLERANCE)
    if correlation == "pearson":
        grid = _exact_where_alike(sides, grid, torch.where(defined, spread.detach(), torch.inf))
    grid = exact_near_one("rsa_grid", sides, grid, _again)
    return sides.finish(grid, "rsa_grid", ~defined_x, ~defined_y, WHY_UNDEFINED)


def _again(x: list[Tensor], y: list[Tensor], max_memory: int) -> Tensor:
    return cast(Tensor, rsa_grid(x, y, max_memory=max_memory))


def _exact_where_alike(sides: Sides, grid: Tensor, spread: Tensor) -> Tensor:
    """Return the grid, in float64 of layers whose dissimilarities are nearly one number.

    ``spread`` is their variance over the square of their mean, and what float32 leaves of sums that
    are ``4 / n`` times the square of the mean.
    """
    if is_traced(grid) or is_followed(sides.layers):
        return grid
    narrow = [_dtype_by_width(layer) == torch.float32 for layer in sides.layers]
    alike = SUMS_ROUND * UNIT32 * 4 / sides.n > TOLERANCE * spread
    alike &= torch.tensor(narrow, device=spread.device)
    lost = alike[: len(sides.x), None] | alike[sides.columns]
    half = max(sides.bound // 2, 1)
    return pairs_again(
        "rsa_grid", sides, grid, lost, lambda x, y: _again(x, y, half), symmetric=True
    )


def _rank_moments(sides: Sides) -> Moments:
    """Return the moments of the ranks, of nearly equal rows by their distances."""
    x, y = sides.x.layers, sides.y.layers
    moments = rank_moments(x, y, sides.bound)
    variances = torch.cat(moments[1:3]) if y else moments[1]
    pairs = sides.n * (sides.n - 1) // 2
    lost = [
        i
        for i in ranks_are_lost(variances, pairs).nonzero().flatten().tolist()
        if ranks_are_lost(variances[i], pairs, tied_pairs((x + y)[i]))
    ]
    for i in lost:
        computed_again("rsa_grid", sides.labels[i])
    return cast(Moments, composed_moments(x, y, sides.bound, lost) if lost else moments)


def _of_matrices(sides: Sides, correlation: str) -> Array:
    """Return `rsa_grid` of layers among which there are matrices, in float64."""
    stacked, known = standardised_triangles(sides, correlation)
    rows, columns = slice(len(sides.x)), sides.columns
    grid = within(stacked[rows] @ stacked[columns].T, -1.0, 1.0, TOLERANCE)
    if sides.same:
        grid.fill_diagonal_(1.0)
    return sides.finish(grid, "rsa_grid", ~known[rows], ~known[columns], WHY_UNDEFINED)


def standardised_triangles(sides: Sides, correlation: str) -> tuple[Tensor, Tensor]:
    """Return all layers' dissimilarities, or ranks, with mean 0 and length 1, and if they vary."""
    triangles, defined = [], []
    for name, layer in zip(sides.labels, sides.matrices, strict=True):
        values, ties, known = (
            _computed(layer, name, correlation)
            if isinstance(layer, Tensor)
            else _given(layer.values)
        )
        if correlation == "spearman":
            values = centred_ranks(values, ties)
        values = values - values.mean()
        triangles.append(values / torch.where(known, torch.linalg.vector_norm(values), 1.0))
        defined.append(known)
    return torch.stack(triangles), torch.stack(defined)


def _given(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return dissimilarities, how near equal ones are, and whether they vary."""
    rounding = torch.finfo(torch.float64).eps * values.abs().max()
    known = values.var(correction=0) > LEAST_SPREAD * rounding.square()
    return values, values.new_zeros(()), known


def _computed(layer: Tensor, name: str, correlation: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return the same as `_given` of a layer ``[n, p]``; for ranks, the rows' distances."""
    _check_columns(layer, name)
    c, halves, rounding = composed_rows(layer, torch.float64)
    n, unit = len(layer), halves.mean()  # nan for a layer with a constant row
    values = dissimilarities(c, halves, n)
    spread = (values - 2 * n / (n - 1) * unit).square().mean()
    known = (spread > LEAST_SPREAD * rounding) & (unit > 0)
    values, tie = (values, TIE * 2 * unit) if correlation == "pearson" else distances(c)
    return torch.where(known, values, 0.0), tie, known


def _dtype_by_width(layer: Tensor) -> torch.dtype:
    """Return the dtype that a layer is computed in: float64 also for wide float32 layers."""
    wide = layer.shape[1] > WIDEST_FLOAT32
    return torch.float64 if wide or layer.dtype == torch.float64 else torch.float32


def _check_columns(layer: Tensor, name: str) -> None:
    if layer.shape[1] < 2:
        raise ValueError(f"{name}: wanted at least 2 columns to correlate rows, got 1")


def _pearson_moments(x: list[Tensor], y: list[Tensor], bound: int) -> Moments:
    """Return the moments of the dissimilarities, in units of the mean of the layer's a_i.

    With c_i and ``a_i = |c_i|^2 / 2`` of `standardised_rows`, dissimilarities are
    ``a_i + a_j - c_i'c_j``. The rows of ``c c'`` sum to 0. The sum over i, j of the products of two
    layers' dissimilarities is therefore the sum of the products of their ``c c'``, which is HSIC,
    plus terms that depend on the a_i alone.
    """
    layers = x + y
    n, count = len(x[0]), len(x)
    held = sum(layer.numel() * _dtype_by_width(layer).itemsize for layer in layers)
    # The products take as much again.
    require_memory(2 * held, bound, "standardised copies of the layers")
    if is_composed(layers[0].device):  # the operator of the CPU checks its layer itself
        check_finite(x, "X")
        check_finite(y, "Y")
    names = [f"X[{i}]" for i in range(count)] + [f"Y[{i}]" for i in range(len(y))]
    standardised = [_standardised(layer, name) for layer, name in zip(layers, names, strict=True)]
    rows, halves, rounding = zip(*standardised, strict=True)
    xy, xx, yy = differentiable_hsic_terms(
        list(rows[:count]), list(rows[count:]), "linear", "biased", 1.0, "auto", bound - held
    )
    a = torch.stack(halves)
    constant = a.isnan().any(1)  # a row has no variance
    a = torch.where(constant[:, None], 1.0, a)
    unit = a.mean(1)
    v = a - unit[:, None]
    first = slice(count)
    second = slice(count, None) if y else first

    def moment(hsic: Tensor, products: Tensor, units: Tensor) -> Tensor:
        total = (n - 1.0) ** 2 * hsic + 2.0 * n * products
        return (total / units - 4.0 * n * n / (n - 1.0)) / (n * (n - 1.0))

    xx = moment(xx, v[first].square().sum(1), unit[first].square())
    yy = moment(yy, v[second].square().sum(1), unit[second].square())
    # The sums hold products as large as the squared mean, whose rounding is no variance.
    eps = xy.new_tensor([torch.finfo(_dtype_by_width(layer)).eps for layer in layers])
    return (
        moment(xy, v[first] @ v[second].T, unit[first][:, None] * unit[second]),
        xx,
        yy,
        torch.cat([xx, yy]) if y else xx,
        (torch.stack(rounding) / unit.square() + eps).masked_fill(constant, torch.nan),
    )


def _standardised(layer: Tensor, name: str) -> tuple[Tensor, ...]:
    """Return `standardised_rows` of a layer, with the derivatives of its rows and their lengths."""
    rows, halves, rounding = standardised_rows(layer.detach(), _dtype_by_width(layer), name)
    rows, halves = with_gradients("rsa_grid", (rows, halves), [layer], _standardised_gradients)
    return rows, halves, rounding


def _standardised_gradients(
    layers: list[Tensor], grads: Sequence[Tensor], wanted: Sequence[bool]
) -> list[Tensor]:
    """Return the gradient by a layer, given those by its standardised rows c and by |c|^2 / 2."""
    z, inverse, exponents = unit_rows(layers[0])
    constant = (layers[0] == layers[0][:, :1]).all(1, keepdim=True)
    z = torch.where(constant, 0.0, z)
    grad = grads[0].double() + grads[1][:, None] * (z - z.mean(0))
    grad = grad - grad.mean(0)  # c are the rows z less their mean
    grad = inverse * (grad - z * (z * grad).sum(1, keepdim=True))
    grad = torch.ldexp(grad - grad.mean(1, keepdim=True), -exponents)
    return [torch.where(constant, 0.0, grad)]
