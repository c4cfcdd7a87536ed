"""Agreement of the nearest neighbours of all layer pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from simcore._grid.finish import as_given
from simcore._grid.inputs import LEAST_ROWS, Array, Layers, listed
from simcore._grid.neighbours import Metric, Neighbours
from simcore._grid.one_operator import one_operator
from simcore._grid.options import check_choice, check_count
from simcore._grid.progress import progress_bar
from simcore._grid.side import LayersOrNeighbours, Sides, read_sides
from simcore._hsic import Estimator, HsicTerms
from simcore._neighbour_lists import find, given_neighbours, lists_of_both, warn_tied
from simcore._ops.neighbours import cknna_terms, list_similarity, second_order_similarity

Measure = Literal["mutual", "jaccard", "rank", "second-order"]
NO_VARIANCE = "no variance between the rows, or between their directions for metric 'cosine'"


def _empty_lists(
    like: Tensor, layers: Sequence[Array], k: int = 10, metric: Metric = "cosine", **_: Any
) -> list[Tensor]:
    shapes = [(len(layers[0]), k), (len(layers[0]), k), (len(layers[0]),)]
    dtypes = (torch.int32, torch.float64, torch.float64)
    kinds = list(zip(shapes, dtypes, strict=True))
    return [like.new_empty(shape, dtype=dtype) for _ in layers for shape, dtype in kinds]


def _as_neighbours(
    outputs: list[Tensor], layers: Layers, k: int = 10, metric: Metric = "cosine", **_: Any
) -> list[list[Tensor]]:
    return [outputs[3 * i : 3 * i + 3] for i in range(len(layers))]


@one_operator(_empty_lists, _as_neighbours, name="neighbours")
def _neighbours(
    layers: Layers,
    k: int = 10,
    metric: Metric = "cosine",
    *,
    max_memory: int | None = None,
    progress: bool = False,
) -> list[list[Tensor]]:
    sides = read_sides(layers, None, "neighbours", max_memory=max_memory, names=("layers", "none"))
    with progress_bar("neighbours", progress):
        nearest, _ = find(sides.x, k, metric, sides.bound)
    warn_tied("neighbours", sides, [nearest], False)
    triples = zip(nearest.index, nearest.values, nearest.squares, strict=True)
    return [[part.clone() for part in triple] for triple in triples]


def neighbours(
    layers: Layers,
    k: int = 10,
    metric: Metric = "cosine",
    *,
    max_memory: int | None = None,
    progress: bool = False,
) -> list[Neighbours]:
    """Find the k nearest other rows of every row of each layer.

    Parameters
    ----------
    layers : sequence of ``[n, p_i]`` arrays, or one ``[L, n, p]`` array
        Representations; see `simcore.cka_grid`.
    k : int
        The number of neighbours, at most n - 1.
    metric : {"cosine", "euclidean", "inner"}
        What is near: a small angle between the rows as they are, not centred; a small distance; or
        a large inner product of the rows as they are. A row of zeros is at the cosine distance 1
        from all others.
    max_memory, progress
        A bound in bytes and a bar on stderr, as in `cka_grid`. Lists count in the bound. A copy of
        one layer in float32 is held at a time (on a CUDA device: five copies in float64).

    Returns
    -------
    list of Neighbours
        Equally near rows are in the order of their numbers. Not differentiable.

    Notes
    -----
    Products in float32, of rows that are centred first (the unit rows, for ``cosine``), find the
    rows that may be among the k nearest given the rounding error of a product. These rows are then
    compared by their distances in float64. On CUDA devices the products are float64 too. The lists
    are therefore the same for layers of all dtypes that hold the same numbers, on every processor
    and device, and for any number of threads. Rows whose distances differ by less than about 1e-14
    of their magnitude may change places, unless they are equal, entry by entry.

    Raises
    ------
    TypeError, ValueError
        As `simcore.cka_grid`; a k that is no integer from 1 to n - 1; an unknown metric; lists that
        do not fit into `max_memory`.

    Examples
    --------
    >>> import torch
    >>> from simcore import knn_grid, neighbours
    >>> nearest = neighbours(torch.randn(3, 100, 16), k=5)
    >>> nearest[0].index.shape, knn_grid(nearest, measure="jaccard").shape
    (torch.Size([100, 5]), torch.Size([3, 3]))
    """
    k, metric = check_count(k, "k"), check_choice(metric, "metric", Metric)
    nearest = _neighbours(layers, k, metric, max_memory=max_memory, progress=progress)
    return [
        Neighbours(index, values, squares, layer, metric)
        for (index, values, squares), layer in zip(nearest, listed(layers), strict=True)
    ]


@one_operator()
def knn_grid(
    X: LayersOrNeighbours,
    Y: LayersOrNeighbours | None = None,
    *,
    measure: Measure = "mutual",
    k: int | None = None,
    metric: Metric | None = None,
    max_memory: int | None = None,
    progress: bool = False,
) -> Array:
    """Compute how well the rows' k nearest neighbours agree, for all layer pairs.

    With N_X(i) and N_Y(i) the k nearest other rows of row i in either layer, the mean over i of

    * mutual: ``|N_X & N_Y| / k``
    * jaccard: ``|N_X & N_Y| / |N_X or N_Y|``
    * rank: ``1 / H_m sum 2 / ((1 + |r_X - r_Y|) (r_X + r_Y))`` over the m common neighbours, of
      ranks r from 1; ``H_m = 1 + 1/2 + ... + 1/m``; 0 where m = 0
    * second-order: the cosine between the two vectors of cosine distances from row i to
      ``N_X or N_Y``. Where all of a vector is 0, the value is 1 if the other is 0 too, else 0.

    All are 1 for a layer with itself. Neighbours are found once for each layer, and no n x n matrix
    is held. For unrelated layers mutual is near ``k / (n - 1)``.

    Parameters
    ----------
    X, Y : sequence of ``[n, p_i]`` arrays, or one ``[L, n, p]`` array, or list of `Neighbours`
        Representations as in `cka_grid`, or their `neighbours`, all of one k and metric.
    measure : {"mutual", "jaccard", "rank", "second-order"}
    k : int
        The number of neighbours, at most n - 1. Default: 10, or the one of the `Neighbours`.
    metric : {"cosine", "euclidean", "inner"}
        What is near; see `neighbours`. Default: ``cosine``, or the one of the `Neighbours`. Only
        ``euclidean`` ignores a common offset. ``second-order`` takes ``cosine`` alone.
    max_memory, progress
        A bound in bytes and a bar on stderr, as in `cka_grid`.

    Returns
    -------
    array ``[len(X), len(Y)]``, float64
        numpy if all inputs are numpy, else a torch tensor. ``nan``, with one warning, for a layer
        whose rows are all equal or, for ``cosine``, point in one direction up to rounding. Not
        differentiable.

    Raises
    ------
    TypeError, ValueError
        As `neighbours`; layers and neighbours on one side; neighbours of different k or metrics, or
        of others than are asked for; another metric than ``cosine`` for ``second-order``.

    References
    ----------
    mutual: Huh et al. 2024 (``inner`` of unit rows, which is ``cosine``). jaccard and rank: Wang et
    al. 2022. second-order: Hamilton et al. 2016. All but mutual as Klabunde et al. 2024 compute
    them.

    Examples
    --------
    >>> import torch
    >>> from simcore import knn_grid
    >>> x = torch.randn(3, 100, 16)
    >>> knn_grid(x, measure="rank", k=5).diagonal()
    tensor([1., 1., 1.], dtype=torch.float64)
    """
    check_choice(measure, "measure", Measure)
    k = None if k is None else check_count(k, "k")
    metric = None if metric is None else check_choice(metric, "metric", Metric)
    if measure == "second-order":
        _check_cosine(metric)
    sides = read_sides(X, Y, "neighbours", max_memory=max_memory, with_neighbours=True)
    if measure == "second-order" and (given := [*given_neighbours(sides)]):
        _check_cosine(given[0][1].metric)
    with progress_bar("knn_grid", progress):
        inside = measure == "rank"
        x, y, left = lists_of_both(sides, k, metric, with_values=False, inside=inside)
        if measure == "second-order":
            layers = (sides.x.layers, sides.y.layers)
            grid = second_order_similarity(*layers, x.index, y.index, left)
        else:
            grid = list_similarity(x.index, y.index, measure, left)
    warn_tied("knn_grid", sides, (x, y), inside)
    undefined_y = x.undefined if sides.same else y.undefined
    return sides.finish(grid, "knn_grid", x.undefined, undefined_y, NO_VARIANCE)


def _check_cosine(metric: str | None) -> None:
    if metric not in (None, "cosine"):
        raise ValueError(
            f"metric: wanted 'cosine' for measure 'second-order', which compares cosine distances, "
            f"got {metric!r}"
        )


@one_operator()
def cknna_grid(
    X: LayersOrNeighbours,
    Y: LayersOrNeighbours | None = None,
    *,
    k: int | None = None,
    estimator: Estimator = "unbiased",
    max_memory: int | None = None,
    progress: bool = False,
) -> Array:
    """Compute the kernel alignment of nearest neighbours (CKNNA) of all layer pairs.

    ``HSIC(M.K, M.L) / sqrt(HSIC(M_X.K, M_X.K) HSIC(M_Y.L, M_Y.L))`` with the inner products K and L
    of the rows as they are, not centred; ``M_X[i, j] = 1`` where j is one of the k rows of largest
    inner product with row i, and ``M = M_X . M_Y``: CKA, restricted to the neighbours that both
    layers share. The masked matrices are not symmetric. The unbiased estimator multiplies the
    column sums of one with the row sums of the other, so that the value of X against Y may differ
    from the value of Y against X.

    Parameters
    ----------
    X, Y : sequence of ``[n, p_i]`` arrays, or one ``[L, n, p]`` array, or list of `Neighbours`
        Representations as in `cka_grid`, or their `neighbours` of metric ``inner`` and one k.
    k : int
        The number of neighbours, 2 to n - 1. Default: 10, or the one of the `Neighbours`.
    estimator : {"unbiased", "biased"}
        ``unbiased`` needs n >= 4, may be negative, and may lie above 1 if few rows are very long.
        In ``biased``, which is symmetric, a row counts among its own neighbours if its inner
        product with itself is large enough.
    max_memory, progress
        A bound in bytes and a bar on stderr, as in `cka_grid`.

    Returns
    -------
    array ``[len(X), len(Y)]``, float64
        1 for a layer with itself. numpy if all inputs are numpy, else a torch tensor. ``nan``, with
        one warning, for a layer whose rows are all equal or whose self-HSIC is not positive. Not
        differentiable.

    Raises
    ------
    TypeError, ValueError
        As `knn_grid`; a k of 1; neighbours of another metric than ``inner``.

    References
    ----------
    Huh et al. 2024, *The Platonic Representation Hypothesis*, appendix A. Their code adds 1e-6 to
    the denominator, and computes one of the two orders of the unbiased estimator.

    Examples
    --------
    >>> import torch
    >>> from simcore import cknna_grid
    >>> x = torch.randn(3, 100, 16)
    >>> cknna_grid(x, k=5).diagonal()
    tensor([1., 1., 1.], dtype=torch.float64)
    """
    check_choice(estimator, "estimator", Estimator)
    k = None if k is None else check_count(k, "k", 2)
    sides = read_sides(
        X,
        Y,
        f"the {estimator} estimator of neighbours",
        least_rows=max(LEAST_ROWS[estimator], 3),  # k is 2 at least
        max_memory=max_memory,
        with_neighbours=True,
    )
    _check_inner(sides)
    with progress_bar("cknna_grid", progress):
        x, y, left = lists_of_both(sides, k, "inner", any_unit=True)
        parts = [(side.index, side.values, side.squares) for side in (x, y)]
        xy, xx, yy = cknna_terms(*parts[0], *parts[1], estimator, left)
    warn_tied("cknna_grid", sides, (x, y), False)
    terms = HsicTerms(xy, xx, yy, "cknna_grid", sides.same, lowest=None)
    return as_given(terms.normalised(), sides.from_numpy)


def _check_inner(sides: Sides) -> None:
    for name, one in given_neighbours(sides):
        if one.metric != "inner" or one.k < 2:
            raise ValueError(
                f"{name}: wanted neighbours of metric 'inner' and k >= 2, got metric "
                f"{one.metric!r} and k = {one.k}"
            )
