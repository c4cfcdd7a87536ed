"""Bootstrap confidence intervals of similarity grids."""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from simcore._grid.finish import as_given, warn_caller
from simcore._grid.inputs import LEAST_ROWS, Array, Groups, Layers
from simcore._grid.one_operator import empty_grid, one_operator
from simcore._grid.options import check_choice, check_count, check_number
from simcore._grid.progress import progress_bar
from simcore._hsic import normalise
from simcore._ops.composed import full_float32
from simcore._ops.hsic import permuted_gram_products
from simcore.stats.described import described
from simcore.stats.draws import halves, read_groups
from simcore.stats.draws import resamples as with_replacement
from simcore.stats.few_rows import is_spanned, spanned_pairs
from simcore.stats.grams import RESULT_COPIES, CkaMeasure, GramStore, blocks_of_stores
from simcore.stats.matrices import of_rows
from simcore.stats.resampled_grid import (
    GridMeasure,
    Measure,
    check_measure,
    generator,
    record_of,
    seeded_options,
    tie_widths,
    value_range,
)

Method = Literal["bootstrap", "half"]
LEAST_DRAWS = 2  # that a standard deviation takes
DRAWS = 16  # resamples whose row sums are held at a time
SUM_COPIES = 8  # arrays of the size of the row sums [DRAWS, n, layers] that an estimate takes
ROWS = 64  # rows of the Gram matrices that are summed at a time


@dataclass(frozen=True)
class BootstrapInterval:
    """The result of `bootstrap_ci`; all arrays are ``[len(X), len(Y)]`` float64.

    Attributes
    ----------
    low, high : array
        Ends of the confidence interval.
    observed : array
        The value of the measure for the given examples: what its grid function returns.
    draws : array ``[resamples, len(X), len(Y)]`` or None
        The values of the resamples, with ``return_draws=True``.
    """

    low: Array
    high: Array
    observed: Array
    draws: Array | None = None

    def __repr__(self) -> str:
        return described(self, ("observed", "low", "high"))


def _empty_interval(
    like: Tensor,
    X: Layers,
    Y: Layers | None = None,
    *,
    resamples: int = 1000,
    return_draws: bool = False,
    **_: Any,
) -> list[Tensor]:
    grids = [grid for _ in range(3) for grid in empty_grid(like, X, Y)]
    return [*grids, grids[0].new_empty((resamples, *grids[0].shape))] if return_draws else grids


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
    method: Method = "half",
    groups: Groups | None = None,
    seed: int = 0,
    return_draws: bool = False,
    max_memory: int | None = None,
    progress: bool = False,
    **options: Any,
) -> BootstrapInterval:
    """Compute confidence intervals of every layer pair, by resampling the examples.

    ``half`` draws half of the rows without replacement. The values of halves vary about their mean
    as the value of all rows varies about its expectation (exactly so for a mean of rows). The ends
    are therefore the observed value plus and minus z standard deviations of the halves, where z is
    the quantile of the normal distribution (1.96 for 95 %), cut at the least and the greatest value
    that the measure can take. The interval always holds the observed value. It estimates the
    expected value of the measure for this number of examples: what the measure gives to unrelated
    layers is part of it. Percentiles of the halves would need more draws: of 20 draws they cover
    less.

    ``bootstrap`` draws rows with replacement, the same rows in all layers of X and Y, and the ends
    are percentiles. A resample holds some examples more than once, and two copies of an example are
    alike in every layer: values of resamples lie above the observed value on average, most of all
    where similarity is low. This holds for the unbiased estimator too, which takes the copies for
    distinct examples. Such an interval may leave out the observed value, and a warning says so.

    Parameters
    ----------
    X, Y : sequence of ``[n, p_i]`` arrays, or one ``[L, n, p]`` array
        As in `simcore.cka_grid`; a layer may be a matrix, as in `permutation_test`.
    measure : str or function
        As in `permutation_test`. CKA forms every Gram matrix once and weights its entries by how
        often the two rows were drawn; the width of the RBF kernel stays the width of all examples.
        Every other measure is computed anew for each resample.
    confidence : float
        Share of resamples inside the interval, between 0 and 1.
    resamples : int
        Number of resamples, at least 2.
    method : {"half", "bootstrap"}
        As above.
    groups : sequence of int, ``[n]``, optional
        The group of each row, such as the sentence of a word. Whole groups are drawn; a resample
        has as many groups as there are, or half as many. Default: rows are independent examples.
    seed : int
        Seed of the resamples, and of the measure "imd". Global random states are neither read nor
        changed.
    return_draws : bool
        Whether to return the values of the resamples.
    max_memory : int, optional
        As in `permutation_test`.
    progress : bool
        Show a progress bar on stderr.
    **options
        Options of the measure; for CKA ``kernel``, ``estimator`` and ``bandwidth``.

    Returns
    -------
    BootstrapInterval
        A resample in which the value of a pair is undefined (all rows are alike) does not count for
        this pair. ``nan`` where the observed value is undefined, or all values of resamples but
        one, with one warning. The interval and the draws of CCA, SVCCA, PWCCA, linear regression
        and mixedsim are ``nan`` where the kept components of a layer span all rows of a resample:
        its value is then 1 for any two layers.

    Raises
    ------
    TypeError, ValueError
        As `permutation_test`; also for a `confidence` that is no number between 0 and 1, an unknown
        method, or draws with fewer rows than the measure takes.

    Warns
    -----
    FewRowsWarning
        Kept components span all rows of a resample, or the components of both layers together
        exceed its rows, so that some correlations are 1. The warning says how many rows would be
        enough.
    UserWarning
        An interval of ``bootstrap`` leaves out the observed value.

    Notes
    -----
    `examples/studies/coverage.py` counts how often intervals hold the expected value.

    References
    ----------
    bootstrap: Efron and Tibshirani 1993, *An introduction to the bootstrap*, chapter 13. half: the
    delete-d jackknife with d = n / 2, Shao and Wu 1989, *A general theory for jackknife variance
    estimation*.

    Examples
    --------
    >>> import torch
    >>> from simcore import stats
    >>> x = torch.randn(2, 100, 16, generator=torch.Generator().manual_seed(0))
    >>> interval = stats.bootstrap_ci(x, resamples=100)
    >>> bool((interval.low <= interval.high).all())
    True
    """
    measure = check_measure(measure)
    confidence = check_number(
        confidence, "confidence", "a number between 0 and 1", lambda v: 0 < v < 1
    )
    check_choice(method, "method", Method)
    count = check_count(resamples, "resamples", LEAST_DRAWS)
    rng = generator(seed)
    options = seeded_options(measure, options, seed)
    taken = of_rows(measure, X, Y, options, max_memory, bootstrap_ci)
    members = read_groups(groups, taken.n)
    least = LEAST_ROWS[taken.estimator if isinstance(taken, CkaMeasure) else "variance"]
    rows = _draws(method, rng, taken.n, count, members, least)
    if isinstance(taken, CkaMeasure):
        draws = _cka_values(taken, rows[1:], progress)  # [draws, Lx, Ly]
        observed = taken.observed()
    else:
        observed, values = taken.draws(rows, "bootstrap_ci", progress, resampling=method)
        draws = values[1:]
    _warn_of_few_values(observed, draws)
    known = record_of(measure, options)
    if isinstance(taken, GridMeasure) and known is not None and is_spanned(known):
        draws.masked_fill_(spanned_pairs(known, taken, rows).to(draws.device), float("nan"))
    if method == "half":
        ends = _about(observed, draws, confidence, taken.n if members is None else len(members))
        ends = _cut(ends, observed, *value_range(measure, options))
    else:
        near = tie_widths(
            torch.cat([observed[None], draws]), taken.dtype, taken.known, taken.n
        )  # [Lx, Ly]
        ends = _holding(_percentiles(draws, confidence), observed, near)
    undefined = torch.where(observed.isnan(), float("nan"), 0.0)
    grids = [*(end + undefined for end in ends), observed]
    grids += [draws] if return_draws else []
    return BootstrapInterval(*(as_given(grid, taken.from_numpy) for grid in grids))


def _draws(
    method: str,
    rng: np.random.Generator,
    n: int,
    count: int,
    members: list[np.ndarray] | None,
    least: int,
) -> list[np.ndarray]:
    """Return the row numbers of ``1 + count`` draws, all rows in order first."""
    draw = halves if method == "half" else with_replacement
    rows = draw(rng, n, count, members)
    fewest = min(len(drawn) for drawn in rows)
    if fewest < least:
        raise ValueError(
            f"method: wanted at least {least} rows in each draw of {method!r}, got {fewest} of {n}"
        )
    return rows


def _warn_of_few_values(observed: Tensor, draws: Tensor) -> None:
    few = (~draws.isnan()).sum(0) < LEAST_DRAWS  # [Lx, Ly]
    if count := int((few & ~observed.isnan()).sum()):
        warn_caller(
            f"bootstrap_ci: nan for {count} of {few.numel()} pairs: wanted at least {LEAST_DRAWS} "
            "draws of rows in which both layers have a value"
        )


def _percentiles(draws: Tensor, confidence: float) -> tuple[Tensor, Tensor]:
    ends = draws.new_tensor([(1 - confidence) / 2, (1 + confidence) / 2])  # [2]
    # Row by row, because torch's quantile takes at most 2^24 values.
    low, high = torch.stack([torch.nanquantile(row, ends, dim=0) for row in draws.unbind(1)], 1)
    return low, high


def _holding(ends: tuple[Tensor, Tensor], observed: Tensor, near: Tensor) -> tuple[Tensor, Tensor]:
    """Move ends to an observed value that lies outside by rounding; warn of values farther out."""
    low, high = ends
    outside = (observed < low - near) | (observed > high + near)
    count = int(outside.sum())
    if count:
        i, j = outside.nonzero()[0].tolist()
        value, *interval = torch.stack([observed, low, high])[:, i, j].tolist()
        warn_caller(
            f"bootstrap_ci: the intervals of {count} of {outside.numel()} pairs leave out the "
            f"observed value, such as {value:.3g} of row {i} and column {j} with "
            f"[{interval[0]:.3g}, {interval[1]:.3g}]: rows that are drawn twice make layers more "
            "alike; method='half' draws no row twice"
        )
    low = torch.where(outside, low, torch.minimum(low, observed))
    return low, torch.where(outside, high, torch.maximum(high, observed))


def _about(observed: Tensor, draws: Tensor, confidence: float, units: int) -> tuple[Tensor, Tensor]:
    """Return the observed value minus and plus z standard deviations of the halves."""
    # The variance of a half of m of N units is (N - m) / m times the variance of all units: 1 if N
    # is even.
    half = units // 2
    scale = (half / (units - half)) ** 0.5
    count = (~draws.isnan()).sum(dim=0)  # [Lx, Ly]
    squares = (draws - torch.nanmean(draws, dim=0)).square()  # [draws, Lx, Ly]
    variance = torch.nanmean(squares, dim=0) * count / (count - 1)  # nan for a single value
    width = NormalDist().inv_cdf((1 + confidence) / 2) * scale * variance.sqrt()
    return observed - width, observed + width


def _cut(
    ends: tuple[Tensor, Tensor], observed: Tensor, lowest: float, highest: float
) -> tuple[Tensor, Tensor]:
    """Cut an interval at the range of a measure, beyond which an estimate may still lie."""
    low, high = ends
    low = torch.maximum(low, observed.clamp(max=lowest))
    return low, torch.minimum(high, observed.clamp(min=highest))


@torch.no_grad()
@full_float32()
def _cka_values(measure: CkaMeasure, rows: list[np.ndarray], progress: bool) -> Tensor:
    """Return the CKA ``[draws, Lx, Ly]`` of every draw of rows."""
    n, draws = measure.n, len(rows)
    counts = np.stack([np.bincount(row, minlength=n) for row in rows])  # [draws, n]
    weights = torch.from_numpy(counts).to(measure.device, measure.dtype)
    count_x, count_y = len(measure.x), len(measure.columns)
    xy = weights.new_empty((draws, count_x, count_y), dtype=torch.float64)
    xx, yy = xy.new_empty(draws, count_x), xy.new_empty(draws, count_y)  # [draws, L] each
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
    return normalise(xy, xx, yy)


class Resampled:
    """HSIC of resamples that hold row i of the data ``w_i`` times, ``sum_i w_i`` rows in all.

    Sums over examples become weighted sums over rows: ``sum_ij w_i w_j K_ij L_ij`` for the trace
    and ``r_i = sum_j w_j K_ij`` for the row sums. The estimators follow from these sums as usual.
    The unbiased estimator leaves an example out of its own row sum, but not its copies: a diagonal
    entry counts ``w_i (w_i - 1)`` times, and apart from the others, which it may exceed by far.
    """

    def __init__(self, weights: Tensor, estimator: str) -> None:
        self.weights, self.biased = weights, estimator == "biased"
        self.n = weights.shape[1]
        self.copies = weights.double() - 1  # [draws, n] of a row that was drawn, beside itself

    def hsic(self, x: GramStore, y: GramStore) -> tuple[Tensor, Tensor, Tensor]:
        """Return HSIC ``[draws, Lx, Ly]`` and self-HSICs ``[draws, Lx]`` and ``[draws, Ly]``."""
        rows = torch.arange(self.n, dtype=torch.int32, device=self.weights.device)  # [n]
        rows = rows.expand(len(self.weights), -1)  # [draws, n]
        trace = permuted_gram_products(x.grams, y.grams, rows, self.weights)
        trace = trace[:, : x.count, : y.count]  # [draws, Lx, Ly]
        if not self.biased:
            pairs = self.weights.double() * self.copies  # [draws, n]
            trace += torch.einsum("ki,ia,ib->kab", pairs, x.diagonals, y.diagonals)
        sums_x, squares_x = self._row_sums(x)
        sums_y, squares_y = (sums_x, squares_x) if y is x else self._row_sums(y)
        xy = self._estimate(trace, "kia,kib->kab", sums_x, sums_y, "ka,kb->kab")
        xx = self._estimate(squares_x, "kia,kia->ka", sums_x, sums_x, "ka,ka->ka")
        yy = self._estimate(squares_y, "kia,kia->ka", sums_y, sums_y, "ka,ka->ka")
        return xy, xx, yy

    def _row_sums(self, store: GramStore) -> tuple[Tensor, Tensor]:
        """Return ``r [draws, n, L]`` and ``sum_ij w_i w_j K_ij^2 [draws, L]``."""
        draws, double = len(self.weights), torch.float64
        sums = self.weights.new_empty((draws, self.n, store.count), dtype=double)
        squares = self.weights.new_zeros((draws, store.count), dtype=double)
        for start in range(0, self.n, ROWS):
            rows = slice(start, start + ROWS)
            entries = store.grams[rows]  # [rows, n, L]
            weighted = torch.matmul(self.weights, entries)[:, :, : store.count]
            sums[:, rows] = weighted.transpose(0, 1).double()  # [draws, rows, L]
            weighted = torch.matmul(self.weights, entries.square())[:, :, : store.count]
            squares += torch.einsum("ikl,ki->kl", weighted.double(), self.weights[:, rows].double())
        if not self.biased:
            sums += self.copies[:, :, None] * store.diagonals
            squares += (self.weights.double() * self.copies) @ store.diagonals.square()
        return sums, squares

    def _estimate(
        self, trace: Tensor, over_rows: str, rows_x: Tensor, rows_y: Tensor, over_totals: str
    ) -> Tensor:
        weights = self.weights.double()  # [draws, n]
        n = weights.sum(1).view(-1, *(1 for _ in trace.shape[1:]))  # [draws, 1, ...]
        weighted = weights[:, :, None] * rows_x  # [draws, n, Lx]
        row_dot = torch.einsum(over_rows, weighted, rows_y)
        totals_y = torch.einsum("ki,kib->kb", weights, rows_y)  # [draws, Ly]
        means = torch.einsum(over_totals, weighted.sum(1), totals_y)
        if self.biased:
            return (trace - 2 / n * row_dot + means / n**2) / (n - 1) ** 2
        centred = trace - 2 / (n - 2) * row_dot + means / ((n - 1) * (n - 2))
        return centred / (n * (n - 3))
