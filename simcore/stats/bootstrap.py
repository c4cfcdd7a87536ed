"""Bootstrap confidence intervals of similarity grids."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simcore._grid.finish import as_given
from simcore._grid.inputs import Array, Layers
from simcore._grid.one_operator import empty_grid, one_operator
from simcore._grid.options import check_count
from simcore._grid.progress import progress_bar
from simcore._ops.hsic import permuted_gram_products
from simcore.cka import defined_layers, normalise
from simcore.stats.grams import RESULT_COPIES, CkaMeasure, GramStore, blocks_of_stores
from simcore.stats.resampled_grid import (
    GridMeasure,
    Measure,
    check_measure,
    generator,
)

DRAWS = 16  # resamples whose row sums are held at a time
SUM_COPIES = 8  # of row sums [DRAWS, n, layers], while estimates are formed of them
ROWS = 64  # of the Gram matrices that row sums are formed of at a time


@dataclass(frozen=True)
class BootstrapInterval:
    """What `bootstrap_ci` finds, all ``[len(X), len(Y)]`` float64.

    Attributes
    ----------
    low, high : array
        Ends of the confidence interval.
    observed : array
        The measure of the examples themselves.
    """

    low: Array
    high: Array
    observed: Array


def _empty_interval(like: Tensor, X: Layers, Y: Layers | None = None, **_: Any) -> list[Tensor]:
    return [grid for _ in range(3) for grid in empty_grid(like, X, Y)]


def _as_interval(outputs: list[Tensor], *_: Any, **__: Any) -> BootstrapInterval:
    return BootstrapInterval(*outputs)


@one_operator(_empty_interval, _as_interval)
def bootstrap_ci(
    X: Layers,
    Y: Layers | None = None,
    *,
    measure: Measure = "cka",
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    max_memory: int | None = None,
    progress: bool = False,
    **options: Any,
) -> BootstrapInterval:
    """Percentile confidence intervals of every layer pair, by resampling the examples.

    Rows are drawn with replacement, the same rows in all layers of X and Y. A resample holds
    examples more than once, and two copies of a row are alike in every layer: values of resamples
    lie above the observed one on average, most of all where similarity is low (for the unbiased
    estimator too, which takes the copies for distinct examples). Intervals of small samples share
    that bias.

    Parameters
    ----------
    X, Y : sequence of ``[n, p_i]`` arrays, or one ``[L, n, p]`` array
        As in `simcore.cka_grid`.
    measure : str or function
        As in `permutation_test`. CKA forms every Gram matrix once and weighs its entries by how
        often the two rows were drawn; the RBF kernel keeps the bandwidth of all examples. Every
        other measure is computed anew for each resample.
    confidence : float
        Share of resamples inside the interval, between 0 and 1.
    resamples : int
    seed : int
        Of the resamples. Global random states are neither read nor changed.
    max_memory : int, optional
        As in `permutation_test`.
    progress : bool
        Show a progress bar on stderr.
    **options
        Of the measure; for CKA ``kernel``, ``estimator`` and ``bandwidth``.

    Returns
    -------
    BootstrapInterval
        Resamples that leave a pair undefined (all rows alike) do not count; ``nan`` where the
        observed value is undefined, with one warning.

    Raises
    ------
    TypeError, ValueError
        As `permutation_test`; a `confidence` that is no number between 0 and 1.

    References
    ----------
    Efron and Tibshirani 1993, *An introduction to the bootstrap*, chapter 13.

    Examples
    --------
    >>> import torch
    >>> from simcore import stats
    >>> x = torch.randn(2, 100, 16, generator=torch.Generator().manual_seed(0))
    >>> interval = stats.bootstrap_ci(x, resamples=100)
    >>> bool((interval.low <= interval.high).all())
    True
    """
    check_measure(measure)
    real = isinstance(confidence, int | float)
    if not real or not 0 < confidence < 1:
        raise ValueError(f"confidence: wanted a number between 0 and 1, got {confidence!r}")
    count = check_count(resamples, "resamples")
    rng = generator(seed)
    if measure == "cka":
        cka = CkaMeasure(X, Y, options, max_memory)
        values = _cka_values(cka, _draws(rng, cka.n, count), progress)
        return _interval(values, confidence, cka.from_numpy)
    grid = GridMeasure(measure, X, Y, options, max_memory)
    values = grid.draws(_draws(rng, grid.n, count), "bootstrap_ci", progress, paired=True)
    return _interval(values, confidence, grid.from_numpy)


def _draws(rng: np.random.Generator, n: int, count: int) -> np.ndarray:
    """``[1 + count, n]`` int32: the rows as they are, then rows drawn with replacement."""
    drawn = rng.integers(0, n, size=(count, n), dtype=np.int32)
    return np.concatenate([np.arange(n, dtype=np.int32)[None], drawn])


def _interval(values: Tensor, confidence: float, from_numpy: bool) -> BootstrapInterval:
    ends = torch.tensor([(1 - confidence) / 2, (1 + confidence) / 2], dtype=torch.float64)
    # Row by row: torch's quantile takes 2^24 values at most.
    low, high = torch.stack(
        [torch.nanquantile(row, ends, dim=0) for row in values[1:].unbind(1)], 1
    )
    undefined = torch.where(values[0].isnan(), float("nan"), 0.0)
    return BootstrapInterval(
        *(as_given(grid, from_numpy) for grid in (low + undefined, high + undefined, values[0]))
    )


@torch.no_grad()
def _cka_values(measure: CkaMeasure, rows: np.ndarray, progress: bool) -> Tensor:
    """CKA ``[draws, Lx, Ly]`` of each draw of rows."""
    n, draws = measure.n, len(rows)
    counts = np.stack([np.bincount(row, minlength=n) for row in rows])
    weights = torch.from_numpy(counts).to(measure.dtype)
    count_x, count_y = len(measure.x), len(measure.columns)
    xy = torch.empty(draws, count_x, count_y, dtype=torch.float64)
    xx = torch.empty(draws, count_x, dtype=torch.float64)
    yy = torch.empty(draws, count_y, dtype=torch.float64)
    held = RESULT_COPIES * xy.nbytes + 3 * weights.nbytes
    stores = blocks_of_stores(
        measure,
        centred=False,
        extra=lambda size: held + 8 * n * size * (SUM_COPIES * DRAWS + ROWS),
        advice="pass fewer layers",
    )
    with progress_bar("bootstrap_ci", progress):
        for i, j, x, y in stores:
            for start in range(0, draws, DRAWS):
                batch = slice(start, start + DRAWS)
                resampled = Resampled(weights[batch], measure.estimator)
                xy[batch, i, j], xx[batch, i], yy[batch, j] = resampled.hsic(x, y)
    defined_layers("bootstrap_ci", xx[0], yy[0], not measure.y)
    return normalise(xy, xx, yy)


class Resampled:
    """HSIC of resamples in which row i of the data stands ``w_i`` times.

    Sums over examples become weighted sums over rows: ``sum_ij w_i w_j K_ij L_ij`` for the trace
    and ``r_i = sum_j w_j K_ij`` for the row sums, from which the estimators follow as always. For
    the unbiased one an example is left out of its own row, but its copies are not.
    """

    def __init__(self, weights: Tensor, estimator: str) -> None:
        self.weights, self.biased = weights, estimator == "biased"
        self.n = weights.shape[1]

    def hsic(self, x: GramStore, y: GramStore) -> tuple[Tensor, Tensor, Tensor]:
        """HSIC ``[draws, Lx, Ly]`` and the self-HSICs ``[draws, Lx]`` and ``[draws, Ly]``."""
        rows = torch.arange(self.n, dtype=torch.int32).expand(len(self.weights), -1)
        trace = permuted_gram_products(x.grams, y.grams, rows, self.weights)
        trace = trace[:, : x.count, : y.count]
        sums_x, squares_x = self._row_sums(x)
        sums_y, squares_y = (sums_x, squares_x) if y is x else self._row_sums(y)
        diagonal_x, diagonal_y = _diagonal(x), _diagonal(y)
        xy = self._estimate(
            trace, "kia,kib->kab", (sums_x, diagonal_x), (sums_y, diagonal_y), "ka,kb->kab"
        )
        xx, yy = (
            self._estimate(squares, "kia,kia->ka", (sums, diagonal), (sums, diagonal), "ka,ka->ka")
            for squares, sums, diagonal in (
                (squares_x, sums_x, diagonal_x),
                (squares_y, sums_y, diagonal_y),
            )
        )
        return xy, xx, yy

    def _row_sums(self, store: GramStore) -> tuple[Tensor, Tensor]:
        """``r`` ``[draws, n, L]`` and ``sum_ij w_i w_j K_ij^2`` ``[draws, L]``."""
        sums = torch.empty(len(self.weights), self.n, store.count, dtype=torch.float64)
        squares = torch.zeros(len(self.weights), store.count, dtype=torch.float64)
        for start in range(0, self.n, ROWS):
            rows = slice(start, start + ROWS)
            entries = store.grams[rows]  # [rows, n, L]
            found = torch.matmul(self.weights, entries)[:, :, : store.count]
            sums[:, rows] = found.transpose(0, 1).double()
            found = torch.matmul(self.weights, entries.square())[:, :, : store.count]
            squares += torch.einsum("ikl,ki->kl", found.double(), self.weights[:, rows].double())
        return sums, squares

    def _estimate(
        self,
        trace: Tensor,
        over_rows: str,
        x: tuple[Tensor, Tensor],
        y: tuple[Tensor, Tensor],
        over_totals: str,
    ) -> Tensor:
        n, weights = float(self.n), self.weights.double()
        (rows_x, diagonal_x), (rows_y, diagonal_y) = x, y
        if not self.biased:
            trace = trace - torch.einsum(
                over_rows, weights[:, :, None] * diagonal_x, diagonal_y.expand_as(rows_y)
            )
            rows_x, rows_y = rows_x - diagonal_x, rows_y - diagonal_y
        weighted = weights[:, :, None] * rows_x
        row_dot = torch.einsum(over_rows, weighted, rows_y)
        totals_y = torch.einsum("ki,kib->kb", weights, rows_y)
        means = torch.einsum(over_totals, weighted.sum(1), totals_y)
        if self.biased:
            return (trace - 2 / n * row_dot + means / n**2) / (n - 1) ** 2
        centred = trace - 2 / (n - 2) * row_dot + means / ((n - 1) * (n - 2))
        return centred / (n * (n - 3))


def _diagonal(store: GramStore) -> Tensor:
    """``K_ii`` ``[n, L]``."""
    return store.grams.diagonal(dim1=0, dim2=1).T[:, : store.count].double()
