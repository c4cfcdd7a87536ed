"""Permutation tests of similarity grids."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from simcore._grid.finish import as_given
from simcore._grid.inputs import Array, Groups, Layers, listed
from simcore._grid.one_operator import empty_grid, one_operator
from simcore._grid.options import check_choice, check_count
from simcore._grid.progress import progress_bar
from simcore._hsic import normalise
from simcore._ops.composed import full_float32
from simcore._ops.hsic import permuted_gram_products
from simcore.stats.described import described
from simcore.stats.draws import permutations as permuted
from simcore.stats.draws import read_groups, rotations
from simcore.stats.grams import RESULT_COPIES, CkaMeasure, blocks_of_stores
from simcore.stats.matrices import holds_matrices, of_rows
from simcore.stats.moments import distribution, pearson3_tail
from simcore.stats.resampled_grid import (
    TIE_EPS,
    GridMeasure,
    Measure,
    best_value,
    check_measure,
    generator,
    refuse_unpaired,
    rounding,
    tie_widths,
)

Method = Literal["permutation", "moments"]

# The least p-value by moments: as of a test by a million permutations.
LEAST_TAIL = 1e-6


@dataclass(frozen=True)
class PermutationTest:
    """The result of `permutation_test`; arrays are ``[len(X), len(Y)]`` float64 unless stated.

    Attributes
    ----------
    observed : array
        The value of the measure: what its grid function returns.
    pvalue : array
        Probability of a value at least as large as the observed one (of distances: at most as
        large) if the rows of X and Y are unrelated.
    null_mean, null_std : array
        Mean and standard deviation of the permutation distribution; the variance of draws divides
        by their number. With groups, `null_mean` is the mean over as many further permutations, in
        which no group keeps its place.
    calibrated : array
        ``(observed - null_mean) / (1 - null_mean)``, of distances ``1 - observed / null_mean``: 0
        for unrelated layers, 1 for equal ones. ``nan`` where permuted rows are as alike as equal
        layers up to rounding, as in two layers whose rows are all equal.
    familywise : array or None
        Probability that any pair of the grid has a value at least as large if the rows are
        unrelated (Westfall and Young's single step): p-values corrected for all pairs. Their
        minimum is the p-value of the best pair. ``nan`` for a layer and itself, which take no part.
        None with ``method="moments"``.
    null : array ``[permutations, len(X), len(Y)]`` or None
        The drawn values, with ``return_null=True``.
    null_skewness : array or None
        Skewness of the permutation distribution, with ``method="moments"``; ``nan`` where all
        permutations give the same value, as for n = 2.
    """

    observed: Array
    pvalue: Array
    null_mean: Array
    null_std: Array
    calibrated: Array
    familywise: Array | None = None
    null: Array | None = None
    null_skewness: Array | None = None

    def __repr__(self) -> str:
        return described(self, ("observed", "pvalue", "calibrated"))


def _grids(return_null: bool, method: str) -> list[str]:
    """Return the names of the attributes that hold grids, in order; null holds one per draw."""
    names = ["observed", "pvalue", "null_mean", "null_std", "calibrated"]
    if method == "moments":
        return [*names, "null_skewness"]
    return [*names, "familywise", "null"] if return_null else [*names, "familywise"]


def _empty_test(
    like: Tensor,
    X: Layers,
    Y: Layers | None = None,
    *,
    permutations: int = 200,
    method: Method = "permutation",
    return_null: bool = False,
    **_: Any,
) -> list[Tensor]:
    (grid,) = empty_grid(like, X, Y)
    null = grid.new_empty((permutations, *grid.shape))
    names = _grids(return_null, method)
    return [null if name == "null" else torch.empty_like(grid) for name in names]


def _as_test(
    outputs: list[Tensor],
    *_: Any,
    method: Method = "permutation",
    return_null: bool = False,
    **__: Any,
) -> PermutationTest:
    return PermutationTest(**dict(zip(_grids(return_null, method), outputs, strict=True)))


@one_operator(_empty_test, _as_test)
def permutation_test(
    X: Layers,
    Y: Layers | None = None,
    *,
    measure: Measure = "cka",
    permutations: int = 200,
    method: Method = "permutation",
    groups: Groups | None = None,
    seed: int = 0,
    return_null: bool = False,
    max_memory: int | None = None,
    progress: bool = False,
    **options: Any,
) -> PermutationTest:
    """Test every layer pair for similarity beyond what unrelated rows would show.

    The rows of Y are permuted against the rows of X, all layers of Y by the same permutation. The
    test is one-sided: large values of the measure are evidence, and small values of distances.
    Whether two models are alike anywhere is a question of the best of all pairs: `familywise`
    answers it.

    Parameters
    ----------
    X, Y : sequence of ``[n, p_i]`` arrays, or one ``[L, n, p]`` array
        As in `simcore.cka_grid`. ``Y=None`` tests X against its own permuted rows. A layer may be
        an `Rdm` for "rsa", and a `Gram` for "cka": its rows and columns change places together.
    measure : str or function
        The name of a measure, such as "cka", "svcca", "knn-rank", "distance-correlation" or
        "match-hard"; the name of a grid function of `simcore` without ``_grid``, such as
        "matching", with its options; or a function ``f(X, Y, **options)`` of two lists of tensors.
        `_` may stand for `-` in names. A function returns a grid ``[len(X), len(Y)]``; values of
        a function that is not of simcore are taken to be similarities. CKA forms every Gram matrix
        once; the CCA family, linreg, procrustes, mixedsim and GULP decompose every layer once, and
        neighbours are found once. Descriptors and "imd" are refused: they ignore which rows belong
        together.
    permutations : int
        Number K of draws. The smallest possible p-value is ``1 / (K + 1)``.
    method : {"permutation", "moments"}
        ``moments`` (CKA only) draws nothing: it computes the exact mean, variance and skewness of
        the permutation distribution, and takes the p-value from the Pearson type III distribution
        with these moments. ``permutations`` and ``seed`` are then unused. Three moments say little
        about rarer values than a test by a million permutations would find: p-values are at least
        1e-6, and at least ``1 / n!``, the probability of the order that was observed.
    groups : sequence of int, ``[n]``, optional
        The group of each row, such as the sentence of a word; not with ``moments``. Rows of a group
        are no independent examples, so that whole groups of Y change places, each only with groups
        that have the same number of rows. The test is exact if, under the null hypothesis, groups
        with the same number of rows are exchangeable. On average one group of each number of rows
        keeps its place in a permutation, which costs power; `null_mean`, and so `calibrated`, come
        from permutations in which a group keeps its place only if no other group has the same
        number of rows. Default: rows are independent.
    seed : int
        Seed of the permutations. Global random states are neither read nor changed.
    return_null : bool
        Whether to return the drawn values; not with ``moments``.
    max_memory : int, optional
        Bytes that may be allocated beyond the inputs; default a quarter of the free memory. With
        ``permutation`` CKA holds the Gram matrices of all layers if they fit, else of blocks of 8
        or more layers of each side; the ones of X are then formed again for every block of Y.
        ``moments`` holds at most one n x n matrix, or one p x p matrix for the linear kernel with
        ``p < n``, which ``max_memory`` does not bound.
    progress : bool
        Show a progress bar on stderr.
    **options
        Options of the measure; for CKA ``kernel``, ``estimator`` and ``bandwidth``.

    Returns
    -------
    PermutationTest
        With ``permutation``, a p-value is ``(1 + k) / (1 + K)``, where k null values are at least
        as large as the observed value, up to rounding. ``nan`` in the row and column of a layer
        without variance, with one warning.

    Raises
    ------
    TypeError
        The measure is neither a name nor a function; it does not have an option; a count is no
        integer; or as `simcore.cka_grid`.
    ValueError
        An unknown name, "descriptor", "imd", a count below 1, an invalid seed; ``moments`` with
        another measure, groups or ``return_null``; groups of which no two have the same number of
        rows; a `max_memory` below what the Gram matrices of 8 layers take; or as
        `simcore.cka_grid`.

    References
    ----------
    p-values: Phipson and Smyth 2010, *Permutation p-values should never be zero*. familywise:
    Westfall and Young 1993, *Resampling-based multiple testing*; Groger et al. 2026. Moments:
    Kazi-Aoual et al. 1995; Josse, Pages and Husson 2008; derived in `simcore.stats.moments`.
    `calibrated` has the form of the adjusted Rand index: Hubert and Arabie 1985, *Comparing
    partitions*.

    Examples
    --------
    >>> import torch
    >>> from simcore import stats
    >>> x = torch.randn(3, 100, 16, generator=torch.Generator().manual_seed(0))
    >>> result = stats.permutation_test(x, permutations=99)
    >>> result.pvalue.diagonal()
    tensor([0.0100, 0.0100, 0.0100], dtype=torch.float64)
    """
    measure = check_measure(measure)
    refuse_unpaired(measure)
    check_choice(method, "method", Method)
    draws = check_count(permutations, "permutations")
    rng = generator(seed)
    if method == "moments":
        if measure != "cka":
            raise ValueError(f"measure: wanted 'cka' for method 'moments', got {measure!r}")
        if return_null:
            raise ValueError(
                "return_null: wanted False for method 'moments', which draws nothing, got True"
            )
        if groups is not None:
            raise ValueError("groups: wanted None for method 'moments', got groups")
        X, Y = listed(X), listed(Y)
        if holds_matrices(measure, X, Y):
            raise ValueError("method: wanted 'permutation' where a layer is a Gram, got 'moments'")
        return _by_moments(CkaMeasure(X, Y, options, max_memory, permutation_test), progress)
    taken = of_rows(measure, X, Y, options, max_memory, permutation_test, permuted=True)
    rows = _draws(rng, taken.n, draws, groups)
    if isinstance(taken, CkaMeasure):
        values = _cka_values(taken, rows, progress)  # [1 + draws, Lx, Ly]
        observed = taken.observed()
    else:
        observed, values = taken.draws(rows, "permutation_test", progress)
    return _summary(observed, values, draws, taken, return_null, best_value(measure, options))


def _draws(rng: np.random.Generator, n: int, count: int, groups: Groups | None) -> np.ndarray:
    """Return all rows in order, permutations, and with groups as many that leave none in place."""
    members = read_groups(groups, n)
    rows = permuted(rng, n, count, members)
    if members is None:
        return rows
    return np.concatenate([rows, rotations(rng, n, count, members)])


@torch.no_grad()
@full_float32()
def _cka_values(measure: CkaMeasure, rows: np.ndarray, progress: bool) -> Tensor:
    """Return the CKA ``[draws, Lx, Ly]`` of every reordering of the rows of Y."""
    draws, (count_x, count_y) = len(rows), (len(measure.x), len(measure.columns))
    like, double = measure.x[0], torch.float64
    values = like.new_empty((draws, count_x, count_y), dtype=double)
    norms_x, norms_y = (like.new_empty(count, dtype=double) for count in (count_x, count_y))
    order = torch.from_numpy(rows).to(measure.device)  # [draws, n]
    held = RESULT_COPIES * values.nbytes + 2 * rows.nbytes
    stores = blocks_of_stores(
        measure,
        centred=True,
        extra=lambda size: held,
        advice="pass fewer layers, or use method='moments'",
    )
    with progress_bar("permutation_test", progress):
        for i, j, x, y in stores:
            products = permuted_gram_products(x.grams, y.grams, order)  # [draws, padded, padded]
            values[:, i, j] = products[:, : x.count, : y.count]
            norms_x[i], norms_y[j] = x.norms, y.norms
    return normalise(values, norms_x, norms_y)


def _summary(
    observed: Tensor,
    values: Tensor,
    permutations: int,
    grid: CkaMeasure | GridMeasure,
    return_null: bool,
    best: float,
) -> PermutationTest:
    """Summarise the observed grid and the values of the draws of `_draws`."""
    # ``values[0]`` is the observed grid as the draws are computed, with whose values it is
    # compared. ``best`` is the value of a layer with itself: 1, or 0 for distances, whose small
    # values count.
    values = values.masked_fill(observed.isnan(), float("nan"))
    compared, null = values[0], values[1 : 1 + permutations]  # [Lx, Ly], [draws, Lx, Ly]
    moved = values[1 + permutations :] if len(values) > 1 + permutations else null
    ties = tie_widths(values, grid.dtype, grid.known, grid.n)  # [Lx, Ly]
    reached = (null >= compared - ties if best > 0 else null <= compared + ties).sum(0)
    pvalue, familywise = (
        ((1 + count.double()) / (1 + len(null))).masked_fill(compared.isnan(), float("nan"))
        for count in (reached, _reached_by_the_best(compared, null, ties, best, grid.selves))
    )
    if grid.selves is not None:
        familywise = familywise.masked_fill(grid.selves.to(familywise.device), float("nan"))
    return _result(
        grid,
        observed=observed,
        pvalue=pvalue,
        familywise=familywise,
        null_mean=moved.mean(0),
        null_std=null.std(0, correction=0),
        null=null if return_null else None,
        best=best,
    )


def _reached_by_the_best(
    observed: Tensor, null: Tensor, ties: Tensor, best: float, selves: Tensor | None
) -> Tensor:
    """Return how many draws have a pair of different layers that reaches each observed value."""
    sign = 1.0 if best > 0 else -1.0
    left_out = null.isnan() if selves is None else null.isnan() | selves.to(null.device)
    extreme = (sign * null).masked_fill_(left_out, -torch.inf).amax((1, 2))  # [draws]
    return (extreme[:, None, None] >= sign * observed - ties).sum(0)  # [Lx, Ly]


def _by_moments(measure: CkaMeasure, progress: bool) -> PermutationTest:
    with progress_bar("permutation_test", progress):
        null = distribution(measure)
        observed = measure.observed()
    undefined = torch.where(observed.isnan(), float("nan"), 0.0)
    constant = null.std <= rounding(null.mean, measure.dtype)  # all permutations agree
    tail = pearson3_tail((observed - null.mean) / null.std, null.skewness)
    tail = tail.clamp(min=max(LEAST_TAIL, math.exp(-math.lgamma(measure.n + 1))))
    skewness = torch.where(constant, float("nan"), null.skewness)
    return _result(
        measure,
        observed=observed,
        pvalue=torch.where(constant, 1.0, tail) + undefined,
        null_mean=null.mean + undefined,
        null_std=null.std + undefined,
        null_skewness=skewness + undefined,
    )


def _result(
    measure: CkaMeasure | GridMeasure,
    *,
    observed: Tensor,
    null_mean: Tensor,
    best: float = 1.0,
    **others: Tensor | None,
) -> PermutationTest:
    room = best - null_mean
    # A mean that ties with the value of equal layers leaves nothing to calibrate.
    none = room.abs() <= TIE_EPS * torch.finfo(measure.dtype).eps * best
    calibrated = ((observed - null_mean) / room).masked_fill(none, float("nan"))
    grids = {"observed": observed, "null_mean": null_mean, "calibrated": calibrated, **others}
    given: dict[str, Any] = {
        k: None if v is None else as_given(v, measure.from_numpy) for k, v in grids.items()
    }
    return PermutationTest(**given)
