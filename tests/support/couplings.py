"""Inputs of affine couplings, and the coupling as one writes it in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor

CLAMP = 1.9
# Rows, and columns of the half that changes: one; less and more than a register; a block and more.
SHAPES = ((1, 1), (3, 31), (31, 33), (5, 129), (33, 256), (4, 700), (0, 3), (3, 0))
OFFSETS = (0.0, 10.0, 1000.0)


def entries(
    shape: tuple[int, ...],
    dtype: torch.dtype = torch.float64,
    *,
    offset: float = 0.0,
    outlier: bool = False,
    seed: int = 0,
) -> tuple[Tensor, Tensor]:
    """Return x ``[.., n, k]`` with a common offset or outlier column, and params ``[.., n, 2 k]``.

    s_raw reaches far into both ends of the clamp, and holds exact zeros and tiny numbers.
    """
    generator = torch.Generator().manual_seed(seed)
    *rows, k = shape
    x = torch.randn(*rows, k, generator=generator, dtype=torch.float64) + offset
    if outlier:
        x[..., :1] *= 30
    s_raw = 4 * torch.randn(*rows, k, generator=generator, dtype=torch.float64)
    s_raw[..., ::5] *= 1e-4
    s_raw[..., ::7] = 0
    t = torch.randn(*rows, k, generator=generator, dtype=torch.float64)
    return x.to(dtype), torch.cat([s_raw, t], dim=-1).to(dtype)


def formula(
    x: Tensor, params: Tensor, clamp: float = CLAMP, inverse: bool = False
) -> tuple[Tensor, Tensor]:
    """Compute the coupling in its inputs' dtype; automatic differentiation gives gradients."""
    s_raw, t = params.chunk(2, dim=-1)
    s = clamp * torch.tanh(s_raw / clamp)
    if inverse:
        return (x - t) * torch.exp(-s), -s.sum(-1)
    return x * torch.exp(s) + t, s.sum(-1)
