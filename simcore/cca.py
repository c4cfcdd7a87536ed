"""The canonical-correlation family, linear regression and Procrustes, as grids over layer pairs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from simcore._decomposed import decomposed_sides, explained_sides, rotated_sides, warn_tied
from simcore._grid.basis import Truncation
from simcore._grid.inputs import Array, row_blocks
from simcore._grid.one_operator import one_operator
from simcore._grid.options import check_choice
from simcore._grid.progress import progress_bar
from simcore._grid.side import LayersOrBases
from simcore._ops.hsic import hsic_terms
from simcore._ops.spectral import nuclear_norms, pwcca


def _mean_canonical(
    function: str,
    X: LayersOrBases,
    Y: LayersOrBases | None,
    *,
    max_memory: int | None,
    progress: bool,
    **truncation: Any,
) -> Array:
    decomposed = decomposed_sides(
        function, X, Y, max_memory=max_memory, progress=progress, **truncation
    )
    with progress_bar(function, progress):
        total, _, _ = nuclear_norms(*decomposed.vectors(), decomposed.workspace)
    return decomposed.finish(total / decomposed.smaller(), function)


@one_operator()
def cca_grid(
    X: LayersOrBases,
    Y: LayersOrBases | None = None,
    *,
    reduction: str = "mean",
    truncation: Truncation = None,
    max_memory: int | None = None,
    progress: bool = False,
) -> Array:
    """Mean (squared) canonical correlation of all layer pairs.

    ``sum(rho) / c`` or ``sum(rho^2) / c`` with ``c = min(k_x, k_y)``, rho being the singular values
    of ``U_x' U_y``. Every layer is decomposed once. The sum is a nuclear norm, the sum of squares a
    Frobenius norm: float32 layers need no singular value of a pair.

    Parameters
    ----------
    X, Y : sequence of ``[n, p_i]`` arrays, or one ``[L, n, p]`` array, or list of `Basis`
        Representations as in `cka_grid`, or their `bases`. ``Y=None`` compares X with itself at
        half the cost.
    reduction : {"mean", "r2"}
        Mean canonical correlation, or the mean of their squares (R2 CCA).
    truncation : float, int or sequence of int, optional
        Leading principal components to keep per layer; see `svcca_grid`.
    max_memory : int, optional
        Bytes that may be allocated beyond the inputs, bases included; default a quarter of the
        free memory.
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
        As `cka_grid`; fewer than 2 rows; a wrong truncation.

    Warns
    -----
    UserWarning
        A layer has as many independent columns as n allows (n <= p): its values are all 1.

    Notes
    -----
    The numerical rank rule is that of `Basis`. float32 inputs: within 1e-5 of the float64 twin with
    the same rule, at a common offset of 1000 standard deviations too. A direction of which a
    float32 layer has only rounding (the one that LayerNorm removes) counts if the same numbers come
    as float64, where it is no rounding.

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
    check_choice(reduction, "reduction", ("mean", "r2"))
    given: dict[str, Any] = {
        "truncation": truncation,
        "max_memory": max_memory,
        "progress": progress,
    }
    if reduction == "mean":
        return _mean_canonical("cca_grid", X, Y, **given)
    decomposed = decomposed_sides("cca_grid", X, Y, **given)
    with progress_bar("cca_grid", progress):
        squares = _squared_products(*decomposed.vectors(), decomposed.workspace)
    return decomposed.finish(squares / decomposed.smaller(), "cca_grid")


def _squared_products(x: list[Tensor], y: list[Tensor], workspace: int) -> Tensor:
    """``||Xc_i' Yc_j||_F^2`` of all pairs: HSIC without its scale; ``[Lx, Ly]``."""
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
    max_memory: int | None = None,
    progress: bool = False,
) -> Array:
    """Mean canonical correlation of the layers' leading principal components (SVCCA).

    Parameters, returns and errors as `cca_grid`, and:

    Parameters
    ----------
    truncation : float, int or sequence of int
        A float keeps the fewest components whose squared singular values sum to at least that share
        of the total; an int keeps that many; a sequence gives one count for every layer of X, then
        of Y.
    standardize : bool
        Divide the columns by their standard deviation first. The code of Wu et al. does so, their
        text does not.

    Returns
    -------
    array ``[len(X), len(Y)]``, float64

    References
    ----------
    Raghu et al. 2017; Wu et al. 2020, appendix A.3 (svsim); Ren et al. 2023, section 3.3.

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
        max_memory=max_memory,
        progress=progress,
    )


@one_operator()
def pwcca_grid(
    X: LayersOrBases,
    Y: LayersOrBases | None = None,
    *,
    truncation: Truncation = None,
    max_memory: int | None = None,
    progress: bool = False,
) -> Array:
    """Projection-weighted CCA of all layer pairs; asymmetric, the weights come from X.

    ``sum(a_i rho_i) / sum(a_i)`` with ``a_i = sum_j |<h_i, x_j>|`` over the centred columns x_j of
    the first layer and its canonical variates ``h_i = U_x u_i``. Both directions of a pair come
    from one decomposition.

    Parameters, returns and errors as `cca_grid`; ``truncation`` as in `svcca_grid`.

    Warns
    -----
    UserWarning
        As `cca_grid`; and once, with their number, if pairs of layers keep ``k_x + k_y > n``
        components together (Notes).

    Notes
    -----
    Equal canonical correlations leave their variates undetermined, and with them the weights. The
    centred columns of all layers lie in n - 1 dimensions, so that a pair of layers shares at least
    ``k_x + k_y - (n - 1)`` of them, each with a correlation of exactly 1. From two on these
    correlations tie, and the value depends on rounding: turning a basis within its own space moved
    values by 1e-2 and more where n was below 30, in float64 too. The warning says how many pairs
    are concerned, and from how many rows on none of them shares a dimension for want of rows: of a
    layer that is truncated to a share of its variance, or not at all, all columns count, because it
    may keep more components of more rows. With ``Y=None`` the pairs (i, j) and (j, i) are one.

    Where all correlations are 1 the value is 1 whatever the weights are, so that such pairs do not
    count: a layer with itself or with one that it contains, and a layer of n - 1 components, which
    has a warning of its own. Ties that only the values cause (two layers that have some columns in
    common) are not looked for.

    float32 inputs: within 1e-5 of float64's values; 1e-4, rarely a few of it, where correlations
    are small and close, as a float32 singular value decomposition has it.

    References
    ----------
    Morcos et al. 2018; Wu et al. 2020, appendix A.3 (pwsim); Ren et al. 2023, equations 7 to 9.

    Examples
    --------
    >>> import torch
    >>> from simcore import pwcca_grid
    >>> pwcca_grid(torch.randn(2, 100, 8), torch.randn(3, 100, 6)).shape
    torch.Size([2, 3])
    """
    decomposed = decomposed_sides(
        "pwcca_grid", X, Y, truncation=truncation, max_memory=max_memory, progress=progress
    )
    x, y = decomposed.vectors()
    weighted = decomposed.weighted_components()
    left = max(decomposed.workspace - sum(components.nbytes for components in weighted), 1)
    with progress_bar("pwcca_grid", progress):
        grid = pwcca(x, weighted, y, left)
    warn_tied("pwcca_grid", decomposed, grid)
    return decomposed.finish(grid, "pwcca_grid")


@one_operator()
def linreg_grid(
    X: LayersOrBases,
    Y: LayersOrBases | None = None,
    *,
    max_memory: int | None = None,
    progress: bool = False,
) -> Array:
    """Share of X's variance that the best linear map of Y explains; asymmetric.

    ``||U_y' Xc||_F^2 / ||Xc||_F^2``. Parameters, returns and errors as `cca_grid`. With `bases`,
    the layers are what the bases hold: truncated ones stand for truncated layers.

    References
    ----------
    Ren et al. 2023, table 2; Kornblith et al. 2019, section 3.

    Examples
    --------
    >>> import torch
    >>> from simcore import linreg_grid
    >>> linreg_grid(torch.randn(2, 100, 8)).diagonal()
    tensor([1., 1.], dtype=torch.float64)
    """
    explained = explained_sides("linreg_grid", X, Y, max_memory=max_memory, progress=progress)
    with progress_bar("linreg_grid", progress):
        squares = _squared_products(explained.layers, explained.vectors, explained.workspace)
    total = torch.stack([_total_variance(layer) for layer in explained.layers])
    return explained.finish(squares / total[:, None], "linreg_grid")


def _total_variance(layer: Tensor) -> Tensor:
    """``||Xc||_F^2`` in float64, some rows at a time: no copy of the layer."""
    first = layer[0].double()  # constant columns become exactly 0
    blocks = row_blocks(layer)
    mean = sum((block.double() - first).sum(0) for block in blocks) / len(layer)
    parts = [((block.double() - first) - mean).square().sum() for block in blocks]
    return torch.stack(parts).sum()


@one_operator()
def procrustes_grid(
    X: LayersOrBases,
    Y: LayersOrBases | None = None,
    *,
    max_memory: int | None = None,
    progress: bool = False,
) -> Array:
    """Orthogonal Procrustes similarity of all layer pairs.

    ``||Xc' Yc||_*`` after scaling both layers to unit Frobenius norm: 1 if and only if they agree
    up to rotation and scale. The Procrustes distance is ``2 - 2 * procrustes_grid(...)``.

    Parameters, returns and errors as `cca_grid`. With `bases`, the layers are what the bases hold:
    truncated ones stand for truncated layers.

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
    sides, layers_x, layers_y, workspace = rotated_sides(
        X, Y, max_memory=max_memory, progress=progress
    )
    with progress_bar("procrustes_grid", progress):
        total, norm_x, norm_y = nuclear_norms(layers_x, layers_y, workspace)
    grid = (total / norm_x[:, None] / norm_y[None, :]).clamp(max=1.0)
    return sides.finish(grid, "procrustes_grid", norm_x == 0, norm_y == 0)
