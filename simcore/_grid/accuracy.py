"""The contract of numbers: bounds on errors, thresholds, and what is computed again in float64.

A value is within `TOLERANCE` of what exact arithmetic gives for the stored numbers (within
`RELATIVE` of it where the measure has no range), or it was computed in float64, or a warning names
the layer and what is not clear. A family of measures gives the sums that it has; this module says
which of its values float32 has lost, computes these again, and counts components.

Rank     A component with the right vector v is rounding alone if its singular value is below
         ``tau = unit sqrt(sum_j v_j^2 |x_j|^2)``, |x_j| the length of column j, not centred: the
         rounding of an entry is relative to its own column, and no number of rows makes it larger.
         The decomposition adds an error of its own, which is relative to the largest value.
HSIC     The unbiased estimate is what remains of sums that a row far from the mean makes large:
         the off-diagonal sum of squares O of a Gram matrix, and for products of features the sum D
         of its squared diagonal besides. Rounding loses ``unit O`` or ``unit (O + D)`` of it.
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
# Limits of the rounding of an unbiased HSIC relative to its value, by the method that computes it.
# Errors of CKA are up to 70 times this bound for Gram matrices, whose entries add up in float32 in
# a block, and up to 10 times for features.
HSIC_ROUNDING = {"gram": 2e-7, "feature": 1e-6}
# A squared distance comes from squared lengths of centred rows and their dot product, which float32
# rounds to 2^-24. At this ratio of the longest row to the median distance the RBF CKA is off by
# 3e-6.
DISTANCE_RATIO = 2.0**10
# Where CKA is this near to 1, float32 does not give the angle whose cosine it is, or its gradient,
# which is the difference of two terms.
ANGLE_IS_ROUNDING = 1e-2
GRADIENT_IS_ROUNDING = 1e-5
CLEAR = 10.0  # ratio of the least kept and the largest dropped value, in units of their thresholds

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
) -> Tensor:
    """Return the grid with the ``doubtful`` pairs computed from float64 copies of their layers.

    ``compute(x, y)`` returns the grid of two lists of layers. Pairs of two float64 layers stay as
    they are. Where the copies of all affected layers do not fit into half of ``sides.bound``, one
    row of the grid is computed at a time.
    """
    x, y = sides.x.layers, sides.y.layers or sides.x.layers
    of_x, of_y = (
        torch.tensor([layer.dtype != torch.float64 for layer in side], device=doubtful.device)
        for side in (x, y)
    )
    doubtful = doubtful & (of_x[:, None] | of_y)
    rows, columns = (doubtful.any(axis).nonzero().flatten().tolist() for axis in (1, 0))
    if not rows:
        return grid
    other = sides.x.name if sides.same else sides.y.name
    for i, j in doubtful.nonzero().tolist():
        computed_again(function, f"{sides.x.name}[{i}], {other}[{j}]")
    nbytes = 8 * sum(layer.numel() for layer in [*(x[i] for i in rows), *(y[j] for j in columns)])
    groups = [rows] if 2 * nbytes <= sides.bound else [[i] for i in rows]
    result = []
    for group in groups:
        inside = doubtful[group].any(0).nonzero().flatten()  # columns of this group
        values = compute([x[i].double() for i in group], [y[j].double() for j in inside.tolist()])
        again = grid[group].index_copy(1, inside.to(grid.device), values.to(grid))
        result.append(torch.where(doubtful[group].to(grid.device), again, grid[group]))
    places = torch.tensor(rows, device=grid.device)
    return grid.index_copy(0, places, torch.cat(result))


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


def hsic_rounding(hsic: Tensor, whole: Tensor, lengths: Tensor, n: int, method: str) -> Tensor:
    """Return the bound ``[L]`` on the relative rounding of unbiased self-HSICs, in units.

    ``lengths`` ``[L, 3]`` are those of `row_lengths`: sums of squared lengths d, and of d squared.
    ``hsic`` is what is left of the self-HSICs ``whole`` after a correction, or ``whole`` itself.
    """
    total, diagonal, _ = lengths.unbind(1)
    scale = n * (n - 3.0)
    # Row i of a Gram matrix of centred rows, without its diagonal, sums to -d_i.
    sums = total.square() / ((n - 1.0) * (n - 2.0)) - 2 / (n - 2.0) * diagonal
    terms = (scale * whole - sums).abs()
    if method == "feature":
        terms = terms + diagonal
    # An exact 0 is the self-HSIC of a constant layer, whose rounded mean leaves lengths above 0.
    return torch.where(whole == 0, 0.0, terms / (scale * hsic).abs())


def hsic_is_lost(rounding: Tensor, unit: float, method: str) -> Tensor:
    """Return which self-HSICs ``[L]`` arithmetic of this unit does not give to the contract."""
    return unit * rounding > HSIC_ROUNDING[method]


def distances_are_lost(longest: Tensor, medians: Tensor, bandwidth: float) -> list[bool]:
    """Return whether float32 loses the RBF kernel of layers with these squared row lengths ``[L]``.

    ``medians`` ``[L]`` are the median squared distances. A wide kernel is nearly constant, and a
    narrow one sees small distances alone: both lose more.
    """
    sensitivity = max(bandwidth, 1 / bandwidth) ** 2
    lost: list[bool] = ((medians > 0) & (longest * sensitivity > DISTANCE_RATIO * medians)).tolist()
    return lost


def uniformity_error(values: Tensor, lengths: Tensor, n: Tensor) -> Tensor:
    """Return a bound ``[L]`` on the float32 rounding of ``log mean exp(-2 distance^2)``.

    ``lengths`` ``[L, 3]`` are those of `row_lengths`. The diagonal is exact: the rounding is that
    of the share that near rows have in the mean.
    """
    share = 1 - 1 / (n * values.exp())
    error = 16 * UNIT32 * lengths[:, 0] / n * torch.where(share > 256 * UNIT64, share, 0.0)
    return torch.where(error > 16 * UNIT64, error, 0.0)  # else float64 rounds as much
