"""Canonical correlations, linear regression and Procrustes comparisons of all layer pairs."""

from __future__ import annotations

import functools
from typing import Any, Literal

import torch
from torch import Tensor

from simcore._decomposed import decomposed_sides, explained_sides
from simcore._grid.basis import Truncation
from simcore._grid.derivative import with_gradients
from simcore._grid.finish import as_given
from simcore._grid.inputs import Array
from simcore._grid.one_operator import one_operator
from simcore._grid.options import check_choice
from simcore._grid.progress import progress_bar
from simcore._grid.side import LayersOrBases, read_sides
from simcore._ops.hsic import hsic_terms
from simcore._ops.nuclear_gradients import procrustes_gradients
from simcore._ops.spectral import nuclear_norms
from simcore._procrustes import holds_no_basis, procrustes_form
from simcore._top import TopK, check_top_k, top_canonical, weighted_grid

Reduction = Literal["mean", "r2"]
Form = Literal["similarity", "distance", "angular", "size-and-shape"]


def _mean_canonical(
    function: str,
    X: LayersOrBases,
    Y: LayersOrBases | None,
    *,
    power: int = 1,
    top_k: TopK,
    max_memory: int | None,
    progress: bool,
    **truncation: Any,
) -> Array:
    """Compute the mean of the canonical correlations, or of their squares (``power`` 2)."""
    top_k = check_top_k(top_k)
    decomposed = decomposed_sides(
        function, X, Y, max_memory=max_memory, progress=progress, **truncation
    )
    x, y = decomposed.vectors()
    smaller = decomposed.smaller()
    with progress_bar(function, progress) as report:
        if top_k is not None:
            grid = top_canonical(x, y, top_k, power, smaller.clamp(min=1), report)
        elif power == 1:
            grid = nuclear_norms(x, y, decomposed.workspace)[0] / smaller
        else:
            grid = _squared_products(x, y, decomposed.workspace) / smaller
    return decomposed.finish(grid, function)


@one_operator()
def cca_grid(
    X: LayersOrBases,
    Y: LayersOrBases | None = None,
    *,
    reduction: Reduction = "mean",
    truncation: Truncation = None,
    top_k: TopK = None,
    max_memory: int | None = None,
    progress: bool = False,
) -> Array:
    """Compute the mean (squared) canonical correlation of all layer pairs.

    ``sum(rho) / c`` or ``sum(rho^2) / c`` with ``c = min(k_x, k_y)``, where rho are the singular
    values of ``U_x' U_y`` and U_x, of k_x columns, is the orthonormal basis of a layer. Every layer
    is decomposed once. ``sum(rho)`` is a nuclear norm and ``sum(rho^2)`` a squared Frobenius norm:
    for float32 layers no singular value of a pair is computed.

    Parameters
    ----------
    X, Y : sequence of ``[n, p_i]`` arrays, or one ``[L, n, p]`` array, or list of `Basis`
        Representations as in `cka_grid`, or their `bases`. ``Y=None`` compares X with itself at
        half the cost.
    reduction : {"mean", "r2"}
        Mean of the canonical correlations, or of their squares (R2 CCA).
    truncation : float, int or sequence of int, optional
        Leading principal components to keep per layer; see `svcca_grid`.
    top_k : int or float, optional
        Average only the largest canonical correlations of a pair: that many, or that share of them
        (rounded down). Default: all. Every pair is then decomposed in float64, which takes longer.
    max_memory, progress
        A bound in bytes and a bar on stderr, as in `cka_grid`. Bases count in the bound.

    Returns
    -------
    array ``[len(X), len(Y)]``, float64
        numpy if all inputs are numpy, else a torch tensor on the inputs' device. ``nan`` in the row
        and column of a layer without variance, with one warning. Not differentiable.

    Raises
    ------
    TypeError, ValueError
        As `cka_grid`; fewer than 2 rows; an invalid truncation.

    Warns
    -----
    UserWarning
        A layer has as many independent columns as n rows allow (n <= p): all its values are 1.

    Notes
    -----
    The numerical rank is counted as `Basis` says. Values of float32 layers are within 1e-5 of those
    of the float64 twin with the same rank rule, also at a common offset of 1000 standard
    deviations. A dimension that holds nothing but float32 rounding error (LayerNorm leaves one) is
    not counted; it is counted if the same numbers are passed as float64.

    References
    ----------
    Ren et al. 2023, equations 3 to 6 and table 2; Raghu et al. 2017.

    Examples
    --------
    >>> import torch
    >>> from simcore import cca_grid
    >>> x = torch.randn(3, 100, 8)
    >>> cca_grid(x).diagonal().allclose(torch.ones(3, dtype=torch.float64))
    True
    """
    check_choice(reduction, "reduction", Reduction)
    return _mean_canonical(
        "cca_grid",
        X,
        Y,
        power=1 if reduction == "mean" else 2,
        truncation=truncation,
        top_k=top_k,
        max_memory=max_memory,
        progress=progress,
    )


def _squared_products(x: list[Tensor], y: list[Tensor], workspace: int) -> Tensor:
    """Return ``||Xc_i' Yc_j||_F^2`` of all pairs, ``[Lx, Ly]``: HSIC without its divisor."""
    xy, _, _ = hsic_terms(x, y, "linear", "biased", 1.0, "auto", workspace)
    scaled: Tensor = xy * (len(x[0]) - 1.0) ** 2
    return scaled


@one_operator()
def svcca_grid(
    X: LayersOrBases,
    Y: LayersOrBases | None = None,
    *,
    truncation: Truncation = 0.99,
    standardize: bool = False,
    top_k: TopK = None,
    max_memory: int | None = None,
    progress: bool = False,
) -> Array:
    """Compute the mean canonical correlation of the layers' leading principal components (SVCCA).

    Parameters, return value and errors are as for `cca_grid`, and:

    Parameters
    ----------
    truncation : float, int or sequence of int
        A float keeps the fewest components whose squared singular values sum to at least that share
        of the total; an int keeps that many; a sequence gives one count for every layer of X, then
        of Y. Large layers (2,048 rows and columns, not float64) that keep a twelfth of the
        components or fewer are not decomposed completely; the kept space is proven to lie within an
        angle of 1e-7 of the exact one, or within float64's rounding error.
    standardize : bool
        Divide the columns by their standard deviation first. The code of Wu et al. does so; their
        text does not say it.

    Returns
    -------
    array ``[len(X), len(Y)]``, float64

    References
    ----------
    Raghu et al. 2017; Wu et al. 2020, footnote 3 and appendix A.3 (svsim); Ren et al. 2023, section
    3.3.

    Examples
    --------
    >>> import torch
    >>> from simcore import svcca_grid
    >>> svcca_grid(torch.randn(3, 100, 8), truncation=0.9).shape
    torch.Size([3, 3])
    """
    return _mean_canonical(
        "svcca_grid",
        X,
        Y,
        truncation=truncation,
        standardize=standardize,
        top_k=top_k,
        max_memory=max_memory,
        progress=progress,
    )


@one_operator()
def pwcca_grid(
    X: LayersOrBases,
    Y: LayersOrBases | None = None,
    *,
    truncation: Truncation = None,
    standardize: bool = False,
    top_k: TopK = None,
    max_memory: int | None = None,
    progress: bool = False,
) -> Array:
    """Compute the projection-weighted CCA of all layer pairs; asymmetric, the weights come from X.

    ``sum(a_i rho_i) / sum(a_i)`` with ``a_i = sum_j |<h_i, x_j>|`` over the centred columns x_j of
    the first layer and its canonical variates ``h_i = U_x u_i``. One decomposition of a pair gives
    both of its directions.

    Parameters, return value and errors are as for `cca_grid`; ``truncation`` and ``standardize``
    are as for `svcca_grid`. Where columns are standardised, the weights come from the
    standardised columns too. With ``top_k``, the weights of the largest correlations are scaled to
    sum to 1.

    Warns
    -----
    UserWarning
        As `cca_grid`; and once if canonical correlations of a pair are equal and the value follows
        rounding (see Notes), with the number of these pairs.

    Notes
    -----
    Canonical correlations that are equal leave their variates undetermined, and with the variates
    the weights: two layers with some columns in common, or rows that repeat. An estimate says by
    how much rounding may mix the variates and move the value: where this is more than 1e-5, pairs
    of float32 layers are computed in float64, and a warning counts the pairs for which it is not
    enough, and the pairs of bases. With ``Y=None`` the pairs (i, j) and (j, i) count as one. If all
    correlations of a pair are equal, the value does not depend on the weights.

    The centred columns of all layers lie in n - 1 dimensions, so that a pair of layers shares at
    least ``k_x + k_y - (n - 1)`` dimensions, each with a correlation of exactly 1. If there are two
    or more, turning a basis within its own space moved values by 1e-2 and more where n was below
    30. The warning says how many rows would be enough. This number takes a layer to keep all its
    columns unless its truncation is a count, because a layer may keep more components if there are
    more rows.

    References
    ----------
    Morcos et al. 2018; Wu et al. 2020, footnote 3 and appendix A.3 (pwsim); Ren et al. 2023,
    equations 7 to 9.

    Examples
    --------
    >>> import torch
    >>> from simcore import pwcca_grid
    >>> pwcca_grid(torch.randn(2, 100, 8), torch.randn(3, 100, 6)).shape
    torch.Size([2, 3])
    """
    top_k = check_top_k(top_k)
    decomposed = decomposed_sides(
        "pwcca_grid",
        X,
        Y,
        truncation=truncation,
        standardize=standardize,
        max_memory=max_memory,
        progress=progress,
    )
    with progress_bar("pwcca_grid", progress) as report:
        grid = weighted_grid("pwcca_grid", decomposed, top_k, standardize, report)
    return decomposed.finish(grid, "pwcca_grid")


@one_operator()
def linreg_grid(
    X: LayersOrBases,
    Y: LayersOrBases | None = None,
    *,
    max_memory: int | None = None,
    progress: bool = False,
) -> Array:
    """Compute the share of X's variance that the best linear map of Y explains; asymmetric.

    ``||U_y' Xc||_F^2 / ||Xc||_F^2``. Parameters, return value and errors are as for `cca_grid`. A
    basis stands for the layer that its components span: a truncated basis for a truncated layer.

    References
    ----------
    Ren et al. 2023, table 2; Kornblith et al. 2019, section 3.

    Examples
    --------
    >>> import torch
    >>> from simcore import linreg_grid
    >>> linreg_grid(torch.randn(2, 100, 8)).diagonal().allclose(torch.ones(2, dtype=torch.float64))
    True
    """
    explained = explained_sides("linreg_grid", X, Y, max_memory=max_memory, progress=progress)

    def squares(layers: list[Tensor], workspace: int) -> Tensor:
        return _squared_products(layers, explained.vectors, workspace)

    with progress_bar("linreg_grid", progress):
        grid = explained.compute("linreg_grid", squares)
    total = torch.stack([rows.sum() for rows in explained.row_variances])
    return explained.finish(grid / total[:, None], "linreg_grid")


@one_operator(derivative=holds_no_basis)
def procrustes_grid(
    X: LayersOrBases,
    Y: LayersOrBases | None = None,
    *,
    form: Form = "similarity",
    max_memory: int | None = None,
    progress: bool = False,
) -> Array:
    """Compare all layer pairs after the best rotation (orthogonal Procrustes).

    ``s = ||Xc' Yc||_*`` (nuclear norm) after scaling both centred layers to unit Frobenius norm: 1
    if and only if the layers agree up to rotation and scale.

    Parameters, return value and errors are as for `cca_grid`, and:

    Parameters
    ----------
    X, Y
        As in `cca_grid`. A basis stands for the layer that its components span: a truncated basis
        for a truncated layer.
    form : {"similarity", "distance", "angular", "size-and-shape"}
        ``similarity`` is s. The others are distances, 0 for a layer with itself: ``distance`` is
        ``sqrt(2 - 2 s)``, ``angular`` is ``arccos s``, and ``size-and-shape``, which does not scale
        the layers, ``sqrt(||Xc||_F^2 + ||Yc||_F^2 - 2 ||Xc' Yc||_*)``, the Bures distance of their
        Gram matrices. A layer without variance has a size-and-shape distance, and no other form.

    Returns
    -------
    array ``[len(X), len(Y)]``, float64
        Of layers, and not of bases, differentiable in X and Y, once, in reverse mode. Where the
        gradient does not exist, it is the smallest subgradient: 0 where a distance is 0 in
        float64, and 0 by directions that the other layer does not have.

    Notes
    -----
    The backward pass decomposes the product of each pair in float64, and holds two float64 copies
    of every layer and the products of one pair, which `max_memory` does not bound.

    s of float32 layers is within 1e-5 of the float64 twin's, and usually within 1e-7. Near 0 a
    distance is the root of a small difference: pairs of float32 layers whose distance is below .2
    are computed again in float64. Equal layers in two different places of the grid may be 1e-7
    apart; a layer and itself are exactly 0 apart.

    References
    ----------
    Ding et al. 2021; Williams et al. 2021.

    Examples
    --------
    >>> import torch
    >>> from simcore import procrustes_grid
    >>> x = torch.randn(100, 8)
    >>> rotation, _ = torch.linalg.qr(torch.randn(8, 8))
    >>> bool((1 - procrustes_grid([x], [3 * x @ rotation])).abs() < 1e-5)
    True
    """
    check_choice(form, "form", Form)
    sides = read_sides(X, Y, "a basis", max_memory=max_memory, with_bases=True, differentiable=True)
    with torch.no_grad():
        grid, norm_x, norm_y = procrustes_form(form, sides, progress)
    gradients = functools.partial(procrustes_gradients, len(sides.x), form)
    (grid,) = with_gradients("procrustes_grid", (grid,), sides.layers, gradients)
    if form != "similarity":
        grid = sides.with_selves(grid, 0.0)
    if form == "size-and-shape":
        return as_given(grid, sides.from_numpy)
    return sides.finish(grid, "procrustes_grid", norm_x == 0, norm_y == 0)
