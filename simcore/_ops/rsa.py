"""The operators for representational dissimilarities: names, shapes of results, CUDA.

On a CUDA device `standardised_rows` is a few operations of torch; ranks are for the CPU only.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

standardised_rows = torch.ops.simcore.standardised_rows
rank_moments = torch.ops.simcore.rank_moments


@torch.library.register_fake("simcore::standardised_rows")
def _fake_standardised_rows(
    x: Tensor, dtype: torch.dtype, name: str = "X[0]"
) -> tuple[Tensor, Tensor, Tensor]:
    halves = x.new_empty((x.shape[0],), dtype=torch.float64)
    return x.new_empty(x.shape, dtype=dtype), halves, x.new_empty((), dtype=torch.float64)


@torch.library.register_fake("simcore::rank_moments")
def _fake_rank_moments(
    x: Sequence[Tensor], y: Sequence[Tensor], max_memory: int
) -> tuple[Tensor, ...]:
    rows, columns, layers = len(x), len(y) or len(x), len(x) + len(y)
    shapes = ((rows, columns), (rows,), (columns,), (layers,), (layers,))
    return tuple(x[0].new_empty(shape, dtype=torch.float64) for shape in shapes)


def standardised_rows_of(
    x: Tensor, dtype: torch.dtype, name: str = "X[0]"
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute ``simcore::standardised_rows`` by operations of torch, on any device.

    The formulas, with their derivation, are those of csrc/cpu/rsa/standard_rows.cpp. Entries are
    not checked, because that would wait for the device: the caller checks all layers at once.
    """
    n = len(x)
    wide = x.double()
    exponents = torch.frexp(wide.abs().amax(1, keepdim=True)).exponent
    scaled = torch.ldexp(wide, -exponents)
    centred = scaled - scaled.mean(1, keepdim=True)
    centred = centred - centred.mean(1, keepdim=True)  # what rounding left of the mean
    inverse = centred.square().sum(1, keepdim=True).rsqrt()
    constant = (wide == wide[:, :1]).all(1, keepdim=True)
    z = torch.where(constant, 0.0, centred * inverse)
    c = torch.where(constant, 0.0, z - z.mean(0))
    by_entry = (torch.finfo(x.dtype).eps / 2 * inverse).square() / 3
    by_centred = (2 * torch.finfo(torch.float64).eps) ** 2 / 3
    t = torch.where(constant, 0.0, scaled.square() * by_entry + z.square() * by_centred)
    squares, errors = c.square(), t.sum(1)
    products = (squares * t).sum()
    crossed = (t.sum(0) * squares.sum(0)).sum()
    rounding = 2 / (n * (n - 1)) * (n * products + crossed) + errors.var(correction=0) / 2
    halves = (squares.sum(1) / 2).masked_fill(constant[:, 0], torch.nan)
    return c.to(dtype), halves, rounding


torch.library.impl("simcore::standardised_rows", "CUDA")(standardised_rows_of)
