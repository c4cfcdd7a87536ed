"""The contract of numbers: bounds on errors, thresholds, and what is computed again in float64.

A value is within `TOLERANCE` of what exact arithmetic gives for the stored numbers (within
`RELATIVE` of it where the measure has no range), or it was computed in float64, or a warning names
the layer and what is not clear. A family of measures gives the sums that it has; this module says
which of its values float32 has lost, and computes these again. `simcore._grid.rank` counts
components by the same contract.

HSIC     The unbiased estimate is what remains of sums that a row far from the mean makes large:
         the off-diagonal sum of squares O of a Gram matrix, and for products of features the sum D
         of its squared diagonal besides. Rounding loses ``unit O`` or ``unit (O + D)`` of it.

Differences  A distance is the root of a small difference of sums, whose error in units of the sums
         is measured: `OF_DISTANCES` and the constants below it. Where this error is more of the
         difference than the contract allows, the pair is computed again.

Ranks    Numbers that arithmetic does not tell apart share their mean rank. What this takes from
         the ranks is at right angles to what is left of them: the share of the variance that it
         takes bounds the square of the error of a correlation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from simcore._grid.finish import warn_caller
from simcore._grid.inputs import row_blocks
from simcore._grid.rank import UNIT32, UNIT64

if TYPE_CHECKING:
    from simcore._grid.side import Sides

TOLERANCE = 1e-5
RELATIVE = 1e-4

# Limit of the rounding of an unbiased HSIC relative to its value, in which plain layers have the
# unit of float32, 6e-8. Errors of CKA are up to 70 times this for Gram matrices, whose entries add
# up in float32 in a block, and up to 10 times for features; those of angles a few times more.
HSIC_ROUNDING = 1.5e-7
# A squared distance comes from squared lengths of centred rows and their dot product, which float32
# rounds to 2^-24. Where the square of the longest row is so many times that of the median distance,
# RBF HSIC is off by 5e-5 of its value.
DISTANCE_RATIO = 2.0**8
# Entries of a wide kernel are nearly equal, and unbiased CKA is what remains beside a far row. With
# 2 to 7 medians it is off by some 6e-5 times this ratio over n, with 1 median by 3e-6 at most.
WIDE, ROWS_OF_RATIO = 1.2, 12
# As kFloat64Bandwidth in csrc/core: the kernel exceeds 0.99 at the median distance, and all forms
# compute it in float64.
FLOAT64_BANDWIDTH = 8.0
# Where CKA is this near to 1, float32 does not give the angle whose cosine it is, or its gradient,
# which is the difference of two terms.
ANGLE_IS_ROUNDING = 5e-2
GRADIENT_IS_ROUNDING = 2e-3
# Largest errors of float32 in units of its rounding: of ``|D_x - D_y|^2``, over the sums of the
# squares of distances about their mean; of the same over all squares, times the share of pairs of
# equal rows, whose terms are equal numbers that round the same way; of the GULP distance, over the
# two terms that it is the difference of.
OF_DISTANCES, OF_EQUAL_ROWS = 7, 256
OF_WHITENED = 24
OF_SPECTRA = 2  # errors of the spectral norm of D_x - D_y, over that of the distances
# Nuclear norms of float32 layers are off by up to 8e-6 where few directions have most of a layer,
# else by 1e-7. Squared distances above this, of layers of norm 1, are then within the contract.
ROTATED_APART = 0.04
# Assignments of neurons by float32 products are short of the best by up to 5e-7 of the product of
# the layers' norms. Squared distances and angles above this, over that product, lose less than the
# contract allows.
ASSIGNED_APART = 5e-3
# Double centring takes away nearly all of the distances of a row that is much longer than the rest:
# so many times the sums that are left, or the rows' kurtosis. 64 of them leave 1e-6 of a value.
FAR_ROWS = 64
# Squared lengths of rows below this share of the longest one are some units of the last digit of a
# float32 sum that holds the longest: the sum may lose half of each, or all.
HIDDEN_ROW = 2.0**-20
# Root mean square of the errors of distances, over that of the double-centred distances, which
# leaves 8e-6 of a value.
NEAR_ROWS = 2e-5
# Share of pairs of equal rows. Products of their distances are equal numbers, whose sums round the
# same way at each step: a value is the root of a small difference of such sums.
EQUAL_ROWS = 0.1
# Canonical directions mix by the rounding of the bases, 1e-8 and 1e-15, over the difference of
# their correlations: float32 does not tell nearer ones apart, and float64 none nearer still.
DIRECTIONS_ARE_FLOAT32, DIRECTIONS_TIE = 1e-3, 1e-11
SQUARES_ARE_FLOAT32 = (1e-30, 1e30)  # for which float32 holds squares and sums of them
SAMPLED_ROWS = 64  # of a layer, whose distances stand for all
SAMPLED_PAIRS = 8  # of rows, of each octave of their places in the order of lengths

_WATCHED: ContextVar[tuple[list[str], ...]] = ContextVar("watched", default=())


@contextmanager
def watch() -> Iterator[list[str]]:
    """Collect what is computed again meanwhile, as ``"cka_grid: X[3]"``."""
    found: list[str] = []
    token = _WATCHED.set((*_WATCHED.get(), found))
    try:
        yield found
    finally:
        _WATCHED.reset(token)


def computed_again(function: str, name: str) -> None:
    """Tell whoever watches that a layer or pair is computed again."""
    for found in _WATCHED.get():
        found.append(f"{function}: {name}")


def pairs_again(
    function: str,
    sides: Sides,
    grid: Tensor,
    doubtful: Tensor,
    compute: Callable[[list[Tensor], list[Tensor]], Tensor],
    *,
    symmetric: bool = False,
) -> Tensor:
    """Return the grid with the ``doubtful`` pairs computed from float64 copies of their layers."""
    x, y = sides.x.layers, sides.y.layers or sides.x.layers

    def of_places(rows: list[int], columns: list[int]) -> Tensor:
        return compute([x[i].double() for i in rows], [y[j].double() for j in columns])

    return places_again(function, sides, grid, doubtful, of_places, symmetric=symmetric)


def places_again(
    function: str,
    sides: Sides,
    grid: Tensor,
    doubtful: Tensor,
    compute: Callable[[list[int], list[int]], Tensor],
    *,
    symmetric: bool = False,
) -> Tensor:
    """Return the grid ``[Lx, Ly, ...]`` with the ``doubtful`` pairs ``[Lx, Ly]`` computed again."""
    # ``compute(rows, columns)`` returns a part of the grid from float64 copies of its layers. Pairs
    # of two float64 layers stay as they are, and so do a layer and itself. Where the copies of all
    # affected layers do not fit into a quarter of ``sides.bound``, one row of the grid is computed
    # at a time. With ``symmetric``, a pair of layers of X has one value in both of its places.
    x, y = sides.x.layers, sides.y.layers or sides.x.layers
    of_x, of_y = (
        torch.tensor([layer.dtype != torch.float64 for layer in side], device=doubtful.device)
        for side in (x, y)
    )
    doubtful = doubtful & (of_x[:, None] | of_y)
    itself = sides.selves()
    if itself is not None:
        doubtful = doubtful & ~itself.to(doubtful.device)
    mirrored = symmetric and sides.same
    if mirrored:
        doubtful = (doubtful | doubtful.T).triu(1)
    rows, columns = (doubtful.any(axis).nonzero().flatten().tolist() for axis in (1, 0))
    if not rows:
        return grid
    other = sides.x.name if sides.same else sides.y.name
    for i, j in doubtful.nonzero().tolist():
        computed_again(function, f"{sides.x.name}[{i}], {other}[{j}]")
    nbytes = 8 * sum(layer.numel() for layer in [*(x[i] for i in rows), *(y[j] for j in columns)])
    groups = [rows] if 4 * nbytes <= sides.bound else [[i] for i in rows]
    result = []
    for group in groups:
        inside = doubtful[group].any(0).nonzero().flatten()  # columns of this group
        values = compute(group, inside.tolist())
        again = grid[group].index_copy(1, inside.to(grid.device), values.to(grid))
        chosen = doubtful[group].to(grid.device)
        chosen = chosen.view(*chosen.shape, *[1] * (grid.ndim - 2))  # [rows, Ly, 1, ...]
        result.append(torch.where(chosen, again, grid[group]))
    places = torch.tensor(rows, device=grid.device)
    again = grid.index_copy(0, places, torch.cat(result))
    if not mirrored:
        return again
    below = doubtful.T.to(grid.device).view(*doubtful.shape, *[1] * (grid.ndim - 2))
    return torch.where(below, again.transpose(0, 1), again)


def differences_lost(values: Tensor, errors: Tensor) -> Tensor:
    """Return which values without a range are not within the contract, up to ``errors``."""
    return RELATIVE * values < errors


def rows_are_hidden(squares: Tensor) -> Tensor:
    """Whether sums over rows lose more than the contract allows of those beside the longest."""
    hidden = torch.where(squares < HIDDEN_ROW * squares.max(), squares, 0.0)
    return hidden.sum() > TOLERANCE / 4 * squares.sum()


def distance_errors(squares: Tensor, lengths: Tensor) -> Tensor:
    """Return float32's error of distances that are formed from lengths and products of rows."""
    # ``squares`` are the squared distances, ``lengths`` the sums of the squared lengths of both
    # rows. Equal rows are exactly 0 apart.
    errors = (squares + UNIT32 * lengths).sqrt() - squares.sqrt()
    return torch.where(squares > 0, errors, 0.0)


def ranks_are_lost(variances: Tensor, count: int, equal: Tensor | float = 0.0) -> Tensor:
    """Return which ranks of ``count`` numbers, in units of it, do not give correlations."""
    # ``variances`` are theirs. ``equal`` is the sum of t^3 - t over the groups of t numbers that
    # are exactly equal, over the cube of the count.
    shared = 1 - 1 / count**2 - 12 * variances - equal
    # Above 0, numbers share a rank that are not known to be equal; below it, equal ones have two.
    return (variances > 0) & (shared.abs() > TOLERANCE**2 * 12 * variances)


def _pairs_of_places(n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return pairs of n places ``[2, pairs]``, and the share of all pairs that each stands for."""
    # Equally many are 1 place apart, 2 to 3 places, 4 to 7 and so on. They are the same ones on
    # every call: multiples of two numbers, less their whole part, are spread evenly, and no
    # generator's draws have to go to the device.
    octaves = (n - 1).bit_length()
    least = 2 ** torch.arange(octaves, dtype=torch.float64, device=device)[:, None]
    width = (2 * least).clamp(max=n) - least
    number = torch.arange(1, octaves * SAMPLED_PAIRS + 1, dtype=torch.float64, device=device)
    number = number.reshape(octaves, SAMPLED_PAIRS)
    apart = (least + number * 0.7548776662466927 % 1 * width).long()
    first = (number * 0.5698402909980532 % 1 * (n - apart)).long()
    shares = (width * (n - apart)).flatten()
    return torch.stack([first, first + apart]).flatten(1), shares / shares.sum()


def distance_rounding(layer: Tensor, squares: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the root mean squares of float32's errors of distances and of centred distances."""
    # The third value is the share of the pairs of rows that are equal.
    #
    # ``squares`` are the squared lengths of the centred rows. Rows near each other have nearly one
    # length, and few pairs of all rows are near where there are many classes. So pairs are drawn by
    # how many rows stand between them in the order of lengths.
    places, shares = _pairs_of_places(len(layer), layer.device)
    pairs = squares.argsort()[places]
    rows = layer[pairs]  # [2, pairs, p]
    rows = rows if rows.dtype == torch.float64 else rows.float()
    distances = (rows[1] - rows[0]).double().square().sum(1)
    errors = distance_errors(distances, squares[pairs].double().sum(0))
    mean_square = shares @ distances
    centred = mean_square - (shares @ distances.sqrt()).square() + mean_square / len(layer)
    equal = shares @ (distances == 0).double()
    return (shares @ errors.square()).sqrt(), centred.clamp(min=0).sqrt(), equal


def _lengths(layer: Tensor, mean: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the lengths of the rows less ``mean``, a block of rows in the cache at a time."""
    blocks = row_blocks(layer)
    return torch.cat([torch.linalg.vector_norm(b - mean, dim=1, dtype=dtype) for b in blocks])


def _squared_lengths(layer: Tensor) -> Tensor:
    """Return the squared lengths of the centred rows, float64, for estimates of errors."""
    mean = layer.mean(0, dtype=torch.float32)
    if layer.dtype == torch.float32:
        # Two products take half the time of differences; where rounding stays small beside the
        # shortest row, they are enough.
        whole = torch.linalg.vector_norm(layer, dim=1).double().square()
        squares = whole - 2 * (layer @ mean).double() + mean.double().square().sum()
        if SQUARES_ARE_FLOAT32[0] < squares.min() and whole.max() < 1e3 * squares.min():
            return squares
    squares = _lengths(layer, mean, torch.float32).double().square()
    if SQUARES_ARE_FLOAT32[0] < squares.max() < SQUARES_ARE_FLOAT32[1]:
        return squares
    return _lengths(layer, mean, torch.float64).square()


def loses_distances(layer: Tensor) -> bool:
    """Whether float32 loses the double-centred distances of a layer."""
    squares = _squared_lengths(layer)
    most = min(FAR_ROWS, len(layer) / 4)  # a single far row has a kurtosis of n
    # Few rows that stand so far out that they have most of the variance.
    far = len(layer) * squares.square().sum() > most * squares.sum().square()
    errors, sizes, equal = distance_rounding(layer, squares)
    # Many rows that are nearly equal, or equal.
    return bool(far | (errors > NEAR_ROWS * sizes) | (equal > EQUAL_ROWS))


def rounding_of_distances(layer: Tensor, mean_square: Tensor) -> tuple[Tensor, Tensor]:
    """Return float32's errors of the sum of squared distances, over the sum, and of a distance."""
    # The first is in units of UNIT32, and grows with how much of the squared distances is their
    # variance. The second is a root mean square. ``mean_square`` is the mean of all squared
    # distances between rows. Where the sampled ones have another mean, few rows make the sums. The
    # rows are the same ones on every call, in an order without a period.
    order = torch.randperm(len(layer), generator=torch.Generator().manual_seed(0))
    rows = layer[order[: SAMPLED_ROWS + 1].to(layer.device)].double()
    squares = (rows[1:] - rows[:-1]).square().sum(1)
    known = torch.where(mean_square > 0, mean_square, 1.0)
    varies = squares.sqrt().var(correction=0) + (squares.mean() - mean_square).abs()
    rows = rows - rows.mean(0)
    products = rows @ rows.T
    lengths = products.diagonal()[:, None] + products.diagonal()
    every = lengths - 2 * products
    every = torch.where(every > 64 * UNIT64 * lengths, every, 0.0)  # else copies
    errors = distance_errors(every, lengths).square().mean().sqrt()
    equal = ((every == 0).double().mean() - 1 / len(rows)) * len(rows) / (len(rows) - 1)
    return OF_DISTANCES * (varies / known).clamp(max=1.0) + OF_EQUAL_ROWS * equal, errors


def within(values: Tensor, lowest: float, highest: float, error: Tensor | float) -> Tensor:
    """Return values, moved to the end of their range where they pass it by at most ``error``."""
    # A value that is farther out is a fault, and stays to be seen. The derivative is kept.
    inside = values.detach().clamp(lowest, highest)
    beyond = inside - values.detach()
    return values + torch.where(beyond.abs() <= error, beyond, 0.0)


def warn_tied_neighbours(
    function: str, named: Sequence[tuple[str, Tensor]], inside: bool = False
) -> None:
    """Warn once of the layers of which a share of the rows, a number each, has equal distances."""
    if not named:
        return
    # One synchronisation with the device for all layers.
    shares = torch.stack([share for _, share in named]).tolist()
    tied = [
        f"{_percent(share)} of the rows of {name}"
        for (name, _), share in zip(named, shares, strict=True)
        if share > 0
    ]
    if tied:
        where = "among the k + 1 nearest rows" if inside else "at the k-th neighbour"
        warn_caller(
            f"{function}: {', '.join(tied)} have equal distances {where}; values follow the order "
            "of the rows"
        )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 else f"{100 * share:.1g} %"


def hsic_rounding(hsic: Tensor, whole: Tensor, lengths: Tensor, n: int, method: str) -> Tensor:
    """Return the bound ``[L]`` on the relative rounding of unbiased self-HSICs, in units."""
    # ``lengths`` ``[L, 3]`` are those of `row_lengths`: sums of squared lengths d, and of d
    # squared. ``hsic`` is what is left of the self-HSICs ``whole`` after a correction, or ``whole``
    # itself.
    total, diagonal, _ = lengths.unbind(1)
    scale = n * (n - 3.0)
    # Row i of a Gram matrix of centred rows, without its diagonal, sums to -d_i.
    sums = total.square() / ((n - 1.0) * (n - 2.0)) - 2 / (n - 2.0) * diagonal
    terms = (scale * whole - sums).abs()
    if method == "feature":
        terms = terms + diagonal
    # An exact 0 is the self-HSIC of a constant layer, whose rounded mean leaves lengths above 0.
    return torch.where(whole == 0, 0.0, terms / (scale * hsic).abs())


def hsic_is_lost(rounding: Tensor, unit: float) -> Tensor:
    """Return which self-HSICs ``[L]`` arithmetic of this unit does not give to the contract."""
    return unit * rounding > HSIC_ROUNDING


def distances_are_lost(longest: float, median: float, bandwidth: float, n: int) -> bool:
    """Return whether float32 loses the RBF kernel of a layer with this squared row length."""
    # ``median`` is the median squared distance; where it vanishes, float32 may have lost it. A wide
    # kernel is nearly constant, and a narrow one sees small distances alone: both lose more.
    if bandwidth >= FLOAT64_BANDWIDTH:
        return False
    most = DISTANCE_RATIO * min(bandwidth, 1.0) ** 2
    if bandwidth > WIDE:
        most = min(most, n / ROWS_OF_RATIO)
    return longest > most * median


def uniformity_error(values: Tensor, lengths: Tensor, n: Tensor) -> Tensor:
    """Return a bound ``[L]`` on the float32 rounding of ``log mean exp(-2 distance^2)``."""
    # ``lengths`` ``[L, 3]`` are those of `row_lengths`. The diagonal is exact: the rounding is that
    # of the share that near rows have in the mean. Of rows that are all near each other, each term
    # is 1 up to the rounding of 1.
    share = 1 - 1 / (n * values.exp())
    clear = (share > 256 * UNIT64) & (lengths[:, 0] > UNIT64 * n)  # in float64
    share = torch.where(clear, share, 0.0)
    error = UNIT32 * (16 * lengths[:, 0] / n + 0.5) * share
    return torch.where(error > 16 * UNIT64, error, 0.0)  # else float64 rounds as much
