"""Similarity of single neurons of all layer pairs (Wu et al. 2020, section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from simcore._decomposed import explained_sides
from simcore._grid.finish import as_given, warn_left_out
from simcore._grid.inputs import Array, Layers, as_tensor
from simcore._grid.one_operator import empty_grid, one_operator
from simcore._grid.options import check_flag
from simcore._grid.progress import progress_bar
from simcore._grid.scale import in_range
from simcore._grid.side import LayersOrBases, read_sides
from simcore._ops.columns import varying
from simcore._ops.neurons import best_partners, multiple_correlations
from simcore._top import TopK, check_top_k, top_multiple, top_partners


def _warn_constant(function: str, layers: list[Tensor]) -> Tensor:
    """Warn once of neurons without variance; return which layers have no others, ``[Lx]`` bool."""
    constant = [~varying(layer) for layer in layers]
    labels = [f"X[{i}]" for i in range(len(layers))]
    counts = torch.stack([flags.sum() for flags in constant])
    widths = [len(flags) for flags in constant]
    warn_left_out(function, "neurons without variance", labels, counts, widths)
    return torch.stack([flags.all() for flags in constant])


class Partners(NamedTuple):
    """The best partners of neurons, as `neuron_partners` finds them."""

    values: Array  # [len(X), len(Y)]
    best: Sequence[Array]  # [p_i, len(Y)] for each layer of X
    partner: Sequence[Array]  # the same


def _empty_partners(
    like: Tensor, X: Sequence[Array], Y: Sequence[Array] | None = None, **_: Any
) -> list[Tensor]:
    grids = empty_grid(like, X, Y)
    shapes = [(layer.shape[1], grids[0].shape[1]) for layer in X]
    for dtype in (torch.float64, torch.int64):
        grids += [like.new_empty(shape, dtype=dtype) for shape in shapes]
    return grids


def _as_partners(outputs: list[Tensor], X: Layers, *_: Any, **__: Any) -> Partners:
    return Partners(outputs[0], outputs[1 : 1 + len(X)], outputs[1 + len(X) :])


@one_operator()
def neuronsim_grid(
    X: Layers,
    Y: Layers | None = None,
    *,
    top_k: TopK = None,
    max_memory: int | None = None,
    progress: bool = False,
) -> Array:
    """Compute how well neurons correlate with their best partners in the other layer; asymmetric.

    ``mean_k max_k' |pearson(x_k, y_k')|`` over the neurons k of a layer of X and k' of a layer of
    Y. Correlations are reduced to their maxima as they are formed; no matrix of correlations is
    held.

    Parameters
    ----------
    X, Y : sequence of ``[n, p_i]`` arrays, or one ``[L, n, p]`` array
        Representations and errors as in `cka_grid`. ``Y=None`` compares X with itself at half the
        cost: one product gives both directions of a pair.
    top_k : int or float, optional
        Average only the neurons of X with the best values of the pair: that many, or that share of
        the neurons with variance (rounded down). Default: all.
    max_memory, progress
        A bound in bytes and a bar on stderr, as in `cka_grid`.

    Returns
    -------
    array ``[len(X), len(Y)]``, float64
        numpy if all inputs are numpy, else a torch tensor. ``nan`` for layers without variance,
        with one warning; single neurons without variance are left out and counted in a warning.
        Not differentiable.

    References
    ----------
    Wu et al. 2020, section 3.1, footnote 3 and appendix A.1.

    Examples
    --------
    >>> import torch
    >>> from simcore import neuronsim_grid
    >>> x = torch.randn(50, 4)
    >>> neuronsim_grid([x], [-2 * x[:, [2, 0, 1, 3]]]).round(decimals=4)
    tensor([[1.]], dtype=torch.float64)
    """
    top_k = check_top_k(top_k)
    return _partners("neuronsim_grid", X, Y, top_k, max_memory, progress, keep=False).values


@one_operator(_empty_partners, _as_partners)
def neuron_partners(
    X: Layers, Y: Layers | None = None, *, max_memory: int | None = None, progress: bool = False
) -> Partners:
    """Find the neuron of each layer of Y that correlates best with each neuron of X.

    Parameters and errors are as for `neuronsim_grid`.

    Returns
    -------
    values : array ``[len(X), len(Y)]``, float64
        `neuronsim_grid`. All three are the fields of a named tuple.
    best : list of arrays ``[p_i, len(Y)]``, float64
        ``max_k' |pearson|`` for every neuron of every layer of X; ``nan`` where undefined.
    partner : list of arrays ``[p_i, len(Y)]``, int64
        The first k' that reaches the best value, up to rounding; -1 where undefined. Where a layer
        is compared with itself, every neuron is its own partner.

    Examples
    --------
    >>> import torch
    >>> from simcore import neuron_partners
    >>> x = torch.randn(50, 4)
    >>> neuron_partners([x], [-2 * x[:, [2, 0, 1, 3]]]).partner[0].flatten()
    tensor([1, 2, 0, 3])
    """
    return _partners("neuron_partners", X, Y, None, max_memory, progress, keep=True)


def _partners(
    function: str,
    X: Layers,
    Y: Layers | None,
    top_k: TopK,
    max_memory: int | None,
    progress: bool,
    *,
    keep: bool,
) -> Partners:
    """Return the partners; without ``keep`` the values alone, and no tables."""
    sides = read_sides(X, Y, "a correlation", max_memory=max_memory)
    count = len(sides.x)
    scaled = in_range(sides.layers, columns=True)
    x, y = scaled.layers[:count], scaled.layers[count:]
    workspace = scaled.workspace(sides.max_memory)
    tables: list[Tensor] = []
    with progress_bar(function, progress) as report:
        if top_k is None:
            values, *tables = best_partners(x, y, keep, workspace)
        else:
            values = top_partners(x, y, top_k, workspace, report)
    constant_x = _warn_constant(function, sides.x.layers)
    constant_y = constant_x
    if not sides.same:
        constant_y = torch.stack([~varying(layer).any() for layer in sides.y.layers])
    grid = sides.finish(values, function, constant_x, constant_y)
    if not keep:
        return Partners(grid, [], [])
    of_layers = [table.split([layer.shape[1] for layer in x]) for table in tables]
    return Partners(grid, *([as_given(t, sides.from_numpy) for t in parts] for parts in of_layers))


@one_operator()
def mixedsim_grid(
    X: LayersOrBases,
    Y: LayersOrBases | None = None,
    *,
    top_k: TopK = None,
    max_memory: int | None = None,
    progress: bool = False,
) -> Array:
    """Compute how well each neuron of X is a linear function of all neurons of Y; asymmetric.

    ``mean_k ||U_y' x_k|| / ||x_k||`` over the centred neurons x_k: the mean multiple correlation of
    x_k with Y. No singular value of a pair is computed.

    Parameters, return value and errors are as for `cca_grid`; ``top_k`` is as in
    `neuronsim_grid`. Single neurons without variance are left out and counted in a warning. A basis
    stands for the layer that its components span: a truncated basis for a truncated layer.

    References
    ----------
    Wu et al. 2020, section 3.2, footnote 3 and appendix A.2.

    Examples
    --------
    >>> import torch
    >>> from simcore import mixedsim_grid
    >>> mixedsim_grid(torch.randn(2, 100, 8), torch.randn(3, 100, 16)).shape
    torch.Size([2, 3])
    """
    top_k = check_top_k(top_k)
    explained = explained_sides(
        "mixedsim_grid", X, Y, max_memory=max_memory, progress=progress, columns=True
    )
    with progress_bar("mixedsim_grid", progress) as report:

        def correlations(layers: list[Tensor], workspace: int) -> Tensor:
            if top_k is None:
                return multiple_correlations(layers, explained.vectors, workspace)
            return top_multiple(layers, explained.vectors, top_k, report)

        grid = explained.compute("mixedsim_grid", correlations)
    _warn_constant("mixedsim_grid", explained.layers)
    return explained.finish(grid, "mixedsim_grid")


def _standardized(means: Tensor) -> Tensor:
    """Return means of mean 0 and standard deviation 1; layers without a mean are left out."""
    centred = means - means.nanmean()
    spread = ((centred**2).nansum() / (centred.isfinite().sum() - 1)).sqrt()
    rounding = 16 * torch.finfo(means.dtype).eps * torch.linalg.vector_norm(means.nan_to_num())
    return torch.where(spread > rounding, centred / spread, float("nan"))


def localization_score(
    neuronsim: Array, svsim: Array, *, same: bool = True, standardize: bool = False
) -> Array:
    """Compute the localization score of every layer: mean neuronsim minus mean svsim.

    A high score means that the layer's similarity to other layers lies in single neurons.

    Parameters
    ----------
    neuronsim, svsim : array ``[layers compared with, layers]``
        `neuronsim_grid` and `svcca_grid` of the same layers.
    same : bool
        Whether rows and columns are the same layers; the comparison of a layer with itself is then
        left out.
    standardize : bool
        False: the difference of the means, as in the text of Wu et al. 2020. True: both series of
        means are standardised over the layers before the difference is taken, as in the notebooks
        that drew figures 3 and 7 of the paper; the standard deviation divides by ``layers - 1``.

    Returns
    -------
    array ``[layers]``, float64
        Means over the rows, without undefined (``nan``) entries; ``nan`` for a layer that has no
        entries left. With `standardize`, ``nan`` if all means of a grid are equal. Differentiable.

    Raises
    ------
    TypeError
        A grid is no array, or its dtype is not floating point.
    ValueError
        The grids differ in shape, or are not square with ``same``.

    References
    ----------
    Wu et al. 2020, section 5.1.

    Examples
    --------
    >>> import numpy as np
    >>> from simcore import localization_score
    >>> localization_score(np.array([[1.0, 0.6], [0.8, 1.0]]), np.full((2, 2), 0.5))
    array([0.3, 0.1])
    """
    named = (("neuronsim", neuronsim), ("svsim", svsim))
    grids = [as_tensor(grid, name).double() for name, grid in named]
    if grids[0].ndim != 2 or grids[0].shape != grids[1].shape:
        shapes = " and ".join(str(tuple(grid.shape)) for grid in grids)
        raise ValueError(f"neuronsim, svsim: wanted two grids of the same shape, got {shapes}")
    if same and grids[0].shape[0] != grids[0].shape[1]:
        raise ValueError(
            f"neuronsim: wanted a square grid for same=True, got shape {tuple(grids[0].shape)}"
        )
    undefined = (grids[0] - grids[1]).isnan()
    if same:
        undefined = undefined | torch.eye(len(undefined), dtype=torch.bool, device=undefined.device)
    series = [grid.masked_fill(undefined, float("nan")).nanmean(0) for grid in grids]
    if check_flag(standardize, "standardize"):
        series = [_standardized(means) for means in series]
    score = series[0] - series[1]
    return score if isinstance(neuronsim, Tensor) else score.detach().numpy()
