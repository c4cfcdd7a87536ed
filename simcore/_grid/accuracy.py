"""The contract of numbers: bounds on errors, thresholds, and what is computed again in float64.

A value is within `TOLERANCE` of what exact arithmetic gives for the stored numbers (within
`RELATIVE` of it where the measure has no range), or it was computed in float64, or a warning names
the layer and what is not clear. A family of measures gives the sums that it has; this module says
which of its values float32 has lost, computes these again, and counts components.

Rank     A component with the right vector v is rounding alone if its singular value is below
         ``tau = unit sqrt(sum_j v_j^2 |x_j|^2)``, |x_j| the length of column j, not centred: the
         rounding of an entry is relative to its own column, and no number of rows makes it larger.
         The decomposition adds an error of its own, which is relative to the largest value.

Differences  A distance is the root of a small difference of sums, whose error in units of the sums
         is measured: `OF_DISTANCES` and the constants below it. Where this error is more of the
         difference than the contract allows, the pair is computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from simcore._grid.finish import warn_caller
from simcore._grid.inputs import row_blocks

if TYPE_CHECKING:
    from simcore._grid.side import Sides

TOLERANCE = 1e-5
RELATIVE = 1e-4
UNIT32 = 2.0**-24
UNIT64 = 2.0**-53

# Rounding that a column carries beside the rounding of its entries: 16 units cover products of rank
# 64 to 400 in float32, which leave up to 4.1.
UNITS = 16
INPUT_ROUNDING = {torch.bfloat16: 2.0**-9, torch.float16: 2.0**-12}
# A float64 covariance resolves singular values down to the first ratio to the largest, and gives
# their vectors to 1e-5 down to the second.
COVARIANCE_RESOLVES = 2 * 2.0**-26
COVARIANCE_IS_EXACT = 2.0**-17
CLEAR = 10.0  # ratio of the least kept and the largest dropped value, in units of their thresholds

# Largest errors of float32 in units of its rounding: of ``|D_x - D_y|^2``, over the sums of the
# squares of distances about their mean; of the GULP distance, over the two terms that it is the
# difference of.
OF_DISTANCES = 7
OF_WHITENED = 24
OF_SPECTRA = 2  # errors of the spectral norm of D_x - D_y, over that of the distances
# Nuclear norms of float32 layers are off by up to 8e-6 where few directions have most of a layer,
# else by 1e-7. Squared distances above this, of layers of norm 1, are then within the contract.
ROTATED_APART = 0.04
# Double centring takes away nearly all of the distances of a row that is much longer than the rest:
# so many times the sums that are left, or the rows' kurtosis. 64 of them leave 1e-6 of a value.
FAR_ROWS = 64
NEAR_ROWS = (
    2e-5  # mean error of distances, over their root mean square, that leaves 5e-6 of a value
)
SQUARES_ARE_FLOAT32 = (1e-30, 1e30)  # for which float32 holds squares and sums of them
SAMPLED_ROWS = 64  # of a layer, whose distances stand for all

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
    """Return the grid with the ``doubtful`` pairs computed from float64 copies of their layers.

    ``compute(x, y)`` returns the grid of two lists of layers. Pairs of two float64 layers stay as
    they are, and so do a layer and itself. Where the copies of all affected layers do not fit into
    a quarter of ``sides.bound``, one row of the grid is computed at a time. With ``symmetric``, a
    pair of layers of X has one value in both of its places.
    """
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
    other = "X" if sides.same else "Y"
    for i, j in doubtful.nonzero().tolist():
        computed_again(function, f"X[{i}], {other}[{j}]")
    nbytes = 8 * sum(layer.numel() for layer in [*(x[i] for i in rows), *(y[j] for j in columns)])
    groups = [rows] if 4 * nbytes <= sides.bound else [[i] for i in rows]
    result = []
    for group in groups:
        inside = doubtful[group].any(0).nonzero().flatten()  # columns of this group
        values = compute([x[i].double() for i in group], [y[j].double() for j in inside.tolist()])
        again = grid[group].index_copy(1, inside.to(grid.device), values.to(grid))
        result.append(torch.where(doubtful[group].to(grid.device), again, grid[group]))
    places = torch.tensor(rows, device=grid.device)
    again = grid.index_copy(0, places, torch.cat(result))
    return torch.where(doubtful.T.to(grid.device), again.T, again) if mirrored else again


def differences_lost(values: Tensor, errors: Tensor) -> Tensor:
    """Return which values without a range are not within the contract, up to ``errors``."""
    return RELATIVE * values < errors


def distance_errors(squares: Tensor, lengths: Tensor) -> Tensor:
    """Return float32's error of distances that are formed from lengths and products of rows.

    ``squares`` are the squared distances, ``lengths`` the sums of the squared lengths of both rows.
    Equal rows are exactly 0 apart.
    """
    errors = (squares + UNIT32 * lengths).sqrt() - squares.sqrt()
    return torch.where(squares > 0, errors, 0.0)


def sampled_distances(layer: Tensor, mean: Tensor | float = 0.0) -> tuple[Tensor, Tensor]:
    """Return squared distances of pairs of rows, and the sums of both squared lengths, float64.

    The rows are the same ones on every call: at most `SAMPLED_ROWS`, in an order without a period.
    Lengths are those of the rows less ``mean``.
    """
    order = torch.randperm(len(layer), generator=torch.Generator().manual_seed(0))
    rows = layer[order[: SAMPLED_ROWS + 1].to(layer.device)].double() - mean
    lengths = rows.square().sum(1)
    return (rows[1:] - rows[:-1]).square().sum(1), lengths[1:] + lengths[:-1]


def _lengths(layer: Tensor, mean: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the lengths of the rows less ``mean``, a block of rows in the cache at a time."""
    blocks = row_blocks(layer)
    return torch.cat([torch.linalg.vector_norm(b - mean, dim=1, dtype=dtype) for b in blocks])


def loses_distances(layer: Tensor) -> bool:
    """Whether float32 loses the double-centred distances of a layer.

    It does where few rows stand so far out that they have most of the variance, and where many
    rows are nearly equal.
    """
    mean = layer.mean(0, dtype=torch.float32)
    squares = _lengths(layer, mean, torch.float32).double().square()
    if not SQUARES_ARE_FLOAT32[0] < squares.max() < SQUARES_ARE_FLOAT32[1]:
        squares = _lengths(layer, mean, torch.float64).square()
    far = len(layer) * squares.square().sum() > FAR_ROWS * squares.sum().square()
    distances, lengths = sampled_distances(layer, mean)
    errors = distance_errors(distances, lengths).mean()
    return bool(far | (errors > NEAR_ROWS * distances.mean().sqrt()))


def variation_of_distances(layer: Tensor, mean_square: Tensor) -> Tensor:
    """Return an upper estimate of how much of the squared distances is their variance, 0 to 1.

    ``mean_square`` is the mean of all squared distances between rows. Where the sampled ones have
    another mean, few rows make the sums.
    """
    squares, _ = sampled_distances(layer)
    known = torch.where(mean_square > 0, mean_square, 1.0)
    varies = squares.sqrt().var(correction=0) + (squares.mean() - mean_square).abs()
    return (varies / known).clamp(max=1.0)


def within(values: Tensor, lowest: float, highest: float, error: Tensor | float) -> Tensor:
    """Return the values, moved to the end of their range where they pass it by at most ``error``.

    A value that is farther out is a fault, and stays to be seen. The derivative is kept.
    """
    inside = values.detach().clamp(lowest, highest)
    beyond = inside - values.detach()
    return values + torch.where(beyond.abs() <= error, beyond, 0.0)


def are_float32_numbers(layer: Tensor) -> bool:
    """Whether every entry of a float64 layer is a float32 number, as after ``.double()``.

    Such a layer carries the rounding of float32. Blocks of rows are looked at until one has an
    entry that is none.
    """
    blocks = [layer[:1], *row_blocks(layer)]
    return all(bool((block.float().double() == block).all()) for block in blocks)


def rounding_unit(layer: Tensor) -> float:
    """Return the rounding of a layer's entries relative to the length of their column."""
    if layer.dtype == torch.float64 and not are_float32_numbers(layer):
        return UNITS * UNIT64
    return UNITS * UNIT32 + 2 * INPUT_ROUNDING.get(layer.dtype, 0.0)


def column_lengths(layer: Tensor, s: Tensor, vt: Tensor, standardize: bool = False) -> Tensor:
    """Return the lengths ``[p]`` of the columns, not centred, over the largest singular value.

    ``s`` and ``vt`` are the decomposition of the centred layer, which has the centred lengths; of
    the layer with centred columns divided by their deviation if ``standardize``.
    """
    largest = torch.where(s[0] > 0, s[0], 1.0) if len(s) else s.new_ones(())
    spread = (s / largest).square() @ vt.double().square()  # [p]
    n = len(layer)
    if not standardize:
        mean = layer.mean(0, dtype=torch.float64) / largest
        return (spread + n * mean.square()).sqrt()
    variance, mean = torch.var_mean(layer.double(), 0, correction=0)
    ratio = torch.where(variance > 0, mean.square() / variance, 0.0)
    return (spread * (1 + ratio)).sqrt()


def component_thresholds(vt: Tensor, lengths: Tensor, unit: float) -> Tensor:
    """Return below which value, ``[k]``, a component with right vector ``vt[i]`` is rounding."""
    return unit * (vt.double().square() @ lengths.square()).sqrt()


@dataclass(frozen=True)
class Rank:
    """The number of components that count, and between which numbers it is not clear."""

    kept: int
    least: int
    most: int

    @property
    def is_clear(self) -> bool:
        return self.least == self.most


def numerical_rank(ratios: Sequence[float]) -> Rank:
    """Count the components by their singular values over their thresholds."""
    kept = [r for r in ratios if r > 1]
    dropped = max((r for r in ratios if r <= 1), default=0.0)
    lowest = min(kept, default=float("inf"))
    if lowest >= CLEAR * dropped:
        return Rank(len(kept), len(kept), len(kept))
    least = sum(r > CLEAR * dropped for r in ratios)
    return Rank(len(kept), least, sum(r >= lowest / CLEAR for r in ratios))


def warn_unclear_ranks(function: str, ranks: Sequence[tuple[str, Rank]]) -> None:
    """Warn once of the layers whose rank depends on where rounding is said to begin."""
    unclear = [
        f"the rank of {name} is not clear: {rank.least} to {rank.most}, taken as {rank.kept}"
        for name, rank in ranks
        if not rank.is_clear
    ]
    if unclear:
        warn_caller(
            f"{function}: {'; '.join(unclear)} (components of the size of the layer's rounding); "
            "a truncation decides it"
        )
