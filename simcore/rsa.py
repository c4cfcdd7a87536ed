"""Representational similarity analysis (RSA) of all layer pairs."""

from __future__ import annotations

from typing import Literal, cast

import torch
from torch import Tensor

from simcore._grid.accuracy import TOLERANCE, pairs_again, within
from simcore._grid.inputs import LEAST_ROWS, Array, Layers
from simcore._grid.matrices import Rdm, holds
from simcore._grid.one_operator import is_followed, is_traced, one_operator
from simcore._grid.options import check_choice
from simcore._grid.progress import progress_bar
from simcore._grid.rank import UNIT32
from simcore._grid.side import Sides, read_sides
from simcore._hsic import exact_near_one
from simcore._ops.rsa import LEAST_SPREAD, correlations_of_matrices, dtype_by_width, moments

SUMS_ROUND = 2  # units, of float32 sums over dissimilarities
Correlation = Literal["pearson", "spearman"]
WHY_UNDEFINED = "no variance in a row or between the dissimilarities beyond rounding"


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
        grid, defined = correlations_of_matrices(sides, correlation)
    else:
        with progress_bar("rsa_grid", progress):
            xy, xx, yy, spread, rounding = moments(sides, correlation)
        # A constant row gives nan, for which the comparisons are False.
        own = xx if sides.same else torch.cat([xx, yy])
        defined = (spread > LEAST_SPREAD * rounding) & (own > 0)
        # Gradients of the other layers would receive a nan as 0 * nan.
        xx = torch.where(defined[: len(sides.x)], xx, 1.0)
        yy = torch.where(defined[sides.columns], yy, 1.0)
        grid = within(xy / torch.sqrt(xx[:, None] * yy[None, :]), -1.0, 1.0, TOLERANCE)
        if correlation == "pearson":
            grid = _exact_where_alike(sides, grid, torch.where(defined, spread.detach(), torch.inf))
        grid = exact_near_one("rsa_grid", sides, grid, _again)
    undefined = ~defined[: len(sides.x)], ~defined[sides.columns]
    return sides.finish(grid, "rsa_grid", *undefined, WHY_UNDEFINED)


def _again(x: list[Tensor], y: list[Tensor], max_memory: int) -> Tensor:
    return cast(Tensor, rsa_grid(x, y, max_memory=max_memory))


def _exact_where_alike(sides: Sides, grid: Tensor, spread: Tensor) -> Tensor:
    """Return the grid, in float64 of layers whose dissimilarities are nearly one number."""
    # ``spread`` is their variance over the square of their mean, infinite of layers without a
    # value, and what float32 leaves of sums that are ``4 / n`` times the square of the mean.
    if is_traced(grid) or is_followed(sides.layers):
        return grid
    narrow = [dtype_by_width(layer) == torch.float32 for layer in sides.layers]
    alike = SUMS_ROUND * UNIT32 * 4 / sides.n > TOLERANCE * spread
    alike &= torch.tensor(narrow, device=spread.device)
    lost = alike[: len(sides.x), None] | alike[sides.columns]
    known = spread.isfinite()
    lost &= known[: len(sides.x), None] & known[sides.columns]
    half = max(sides.bound // 2, 1)
    return pairs_again(
        "rsa_grid", sides, grid, lost, lambda x, y: _again(x, y, half), symmetric=True
    )
