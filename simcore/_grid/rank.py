"""The rank of layers by the contract of numbers: which components count, and what is not clear.

A component with the right vector v is rounding alone if its singular value is below
``tau = unit sqrt(sum_j v_j^2 |x_j|^2)``, |x_j| the length of column j, not centred: the
rounding of an entry is relative to its own column, and no number of rows makes it larger.
Where few rows hold those lengths, as a sink does, a component of the other rows counts if it
is above ``unit sqrt(n sum_r u_r^2 sum_j v_j^2 x_rj^2)``, u its left vector. The rows of a component
of rounding alone are as long as their rounding, u_r^2 ~ sum_j v_j^2 x_rj^2 over any rows, so that
this is no less than its own tau (Cauchy and Schwarz).
No component counts below a share of the largest value, the `floor`: what a float64 covariance
resolves, for layers of float32 numbers, and else the rounding of a float64 decomposition. The
vectors of a covariance lose the contract below ``2^-17`` of the largest value already: a layer that
has components there is decomposed by an SVD.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from simcore._grid.finish import warn_caller
from simcore._grid.inputs import row_blocks

UNIT32 = 2.0**-24
UNIT64 = 2.0**-53
# Rounding that a column carries beside the rounding of its entries: 16 units cover products of rank
# 64 to 400 in float32, which leave up to 4.1.
UNITS = 16
INPUT_ROUNDING = {torch.float16: 2.0**-12, torch.bfloat16: 2.0**-9}
# Bits that are 0 in a layer's distinct numbers, from the last digit of any of them on, because half
# precision has no room: chance does not explain more, and the powers of two below 2^16 have 36.
CHANCE_BITS = 40
OCTAVES = 64  # below the largest number, in which numbers are told apart
_UNITS = {
    torch.float64: UNITS * UNIT64,
    torch.float32: UNITS * UNIT32,
    **{dtype: UNITS * UNIT32 + 2 * rounding for dtype, rounding in INPUT_ROUNDING.items()},
}
COVARIANCE_GIVES = 2.0**-17
# Singular values in units of their thresholds: what rounding leaves is below the first, and between
# the two the numbers do not tell; kept and dropped ones are farther apart than the third.
SURELY_DROPPED, SURELY_KEPT = 0.3, 3.0
CLEAR = 10.0


def rounding_unit(layer: Tensor) -> Tensor:
    """Return the rounding of a layer's entries, relative to the length of their column."""
    # It is that of the narrowest dtype that holds every entry: `.double()` of a float32 layer
    # leaves the rounding of float32 in it, and `.float()` of a bfloat16 layer that of bfloat16.
    unit = torch.full((), _UNITS[layer.dtype], dtype=torch.float64, device=layer.device)
    for dtype, narrower in _UNITS.items():  # from the widest to the narrowest
        if dtype.itemsize < layer.dtype.itemsize:
            unit = torch.where(_holds(dtype, layer), narrower, unit)
    return unit


def _holds(dtype: torch.dtype, layer: Tensor) -> Tensor:
    """Return whether every entry of the layer is a rounded number of a narrower dtype."""
    # Half precision also holds whole numbers and fixed fractions, such as counts and pixels, which
    # nothing has rounded: these do not count. On the CPU the search ends at the first entry that is
    # none.
    on_cpu = layer.device.type == "cpu"
    blocks = [layer[:1], *row_blocks(layer)] if on_cpu else [layer]
    for block in blocks:
        alike = (block.to(dtype).to(layer.dtype) == block).all()
        if on_cpu and not alike:
            return alike
    if dtype not in INPUT_ROUNDING:
        return alike
    digits = 1 - round(math.log2(torch.finfo(dtype).eps))
    return alike & (_missing_digits(layer, blocks, digits) > CHANCE_BITS)


def _missing_digits(layer: Tensor, blocks: Sequence[Tensor], digits: int) -> Tensor:
    """Return how many last digits the distinct numbers lack of multiples of the finest step."""
    # Numbers of ``digits`` binary digits lack those at the end of a multiple beyond ``2^digits``.
    top = torch.frexp(layer.abs().max()).exponent.long()
    seen = torch.zeros(2**digits + 1, OCTAVES, dtype=torch.bool, device=layer.device)
    for block in blocks:
        mantissa, exponent = torch.frexp(block.abs())
        below = (top - exponent).clamp(0, OCTAVES - 1)
        seen[(mantissa * 2**digits).long().clamp(0, 2**digits), below] = True
    numbers = torch.arange(1, 2**digits + 1, device=layer.device)[:, None]
    exponents = torch.arange(0, -OCTAVES, -1, device=layer.device)
    lasts = torch.frexp((numbers & -numbers).double()).exponent - 1 + exponents - digits
    seen = seen[1:]  # without zeros
    spare = exponents - digits - torch.where(seen, lasts, 0).min()
    return torch.where(seen, spare.clamp(min=0), 0).sum()


def column_squares(
    layer: Tensor, centred: Tensor, largest: Tensor | float = 1.0, standardize: bool = False
) -> Tensor:
    """Return the squared lengths ``[p]`` of the columns, not centred, in units of ``largest``."""
    # ``centred`` holds those of the centred columns, in the same units; constant columns have 0.
    # With ``standardize`` the columns are divided by their standard deviation.
    if standardize:
        variance, mean = torch.var_mean(layer.double(), 0, correction=0)
        squares = centred * (1 + mean.square() / variance)
    else:
        mean = layer.mean(0, dtype=torch.float64) / largest
        squares = centred + len(layer) * mean.square()
    return torch.where(centred > 0, squares, 0.0)


def entry_thresholds(vt: Tensor, squares: Tensor, unit: Tensor) -> Tensor:
    """Return the singular values ``[k]`` below which components are the rounding of entries."""
    weights = vt.double().square()  # [k, p]
    # The vector of a vanishing value need not have length 1.
    lengths = weights.sum(1).clamp(min=torch.finfo(torch.float64).tiny)
    return unit * (weights @ squares / lengths).sqrt()


def floor(n: int, p: int, unit: Tensor) -> Tensor:
    """Return the share of the largest singular value below which no component counts."""
    of_covariance, of_svd = 2 * (min(n, p) * 2 * UNIT64) ** 0.5, max(n, p) * 2 * UNIT64
    return torch.where(unit < UNIT32, of_svd, of_covariance)


def component_thresholds(
    layer: Tensor, s: Tensor, vt: Tensor, unit: Tensor, standardize: bool = False
) -> Tensor:
    """Return the singular values ``[k]`` below which components are rounding alone."""
    largest = torch.where(s[:1] > 0, s[:1], 1.0)  # squares stay in range
    centred = (s / largest).square() @ vt.double().square()  # [p]
    squares = column_squares(layer, centred, largest, standardize)
    return s[:1] * entry_thresholds(vt, squares, unit).maximum(
        floor(len(layer), layer.shape[1], unit)
    )


def thresholds_of_rows(
    layer: Tensor,
    s: Tensor,
    vt: Tensor,
    unit: Tensor,
    thresholds: Tensor,
    standardize: bool = False,
) -> Tensor:
    """Return `component_thresholds`, on the host, lowered where few rows hold the lengths."""
    # ``s``, ``thresholds`` ``[k]`` and ``unit`` are on the host, ``vt`` on the layer's device. Only
    # components near their thresholds are weighed, so that most layers are not read again.
    least = s[:1] * floor(len(layer), layer.shape[1], unit)
    places = ((s > least) & (s <= CLEAR * thresholds)).nonzero().flatten().tolist()
    if not places:
        return thresholds
    largest = float(s[0])
    variance, mean = torch.var_mean(layer.double(), 0, correction=0)
    scale = variance.sqrt().where(variance > 0, torch.inf) if standardize else largest
    some = vt[places].double()
    left, weights = [], []
    for block in row_blocks(layer):
        left.append(((block.double() - mean) / scale) @ some.T)  # [rows, places]
        weights.append((block.double() / scale).square() @ some.T.square())
    squares = torch.cat(left).square()
    lengths = (squares * torch.cat(weights)).sum(0) / squares.sum(0)
    of_rows = (largest * float(unit) * (len(layer) * lengths).sqrt()).cpu()
    lowered = thresholds.clone()
    lowered[places] = thresholds[places].minimum(of_rows.maximum(least))
    return lowered


def needs_svd(layer: Tensor, s: Tensor, thresholds: Tensor) -> bool:
    """Whether a covariance gave vectors of components that count too few digits."""
    return layer.dtype != torch.float64 and bool(
        ((s > thresholds) & (s <= COVARIANCE_GIVES * s[0])).any()
    )


@dataclass(frozen=True)
class Rank:
    """Which components count, and between which numbers of them it is not clear."""

    members: tuple[int, ...]
    least: int
    most: int

    @property
    def kept(self) -> int:
        return len(self.members)

    @property
    def is_clear(self) -> bool:
        return self.least == self.most


def numerical_rank(s: Tensor, thresholds: Tensor) -> Rank:
    """Return which singular values, on the host, are above their thresholds."""
    # They need not be the largest: a column of 1e6 rounds to more than a column of 1e-3 holds.
    ratios = torch.where(s > 0, s / thresholds, 0.0).tolist()
    members = tuple(i for i, ratio in enumerate(ratios) if ratio > 1)
    dropped = max((r for r in ratios if r <= 1), default=0.0)
    lowest = min((r for r in ratios if r > 1), default=float("inf"))
    least, most = SURELY_KEPT, SURELY_DROPPED
    if lowest < CLEAR * dropped:
        least, most = max(least, CLEAR * dropped), min(most, lowest / CLEAR)
    return Rank(members, sum(r > least for r in ratios), sum(r >= most for r in ratios))


def warn_unclear_ranks(function: str, unclear: Sequence[tuple[str, Rank]]) -> None:
    """Warn once of layers, by their names, whose rank depends on where rounding begins."""
    if unclear:
        ranks = (
            f"{name} ({rank.least} to {rank.most}, taken as {rank.kept})" for name, rank in unclear
        )
        warn_caller(
            f"{function}: the rank is not clear of {', '.join(ranks)}: components are as small as "
            "the rounding of the columns that they are made of; `bases(..., truncation=)` decides"
        )
