"""An affine coupling as one writes it in plain torch, on rows or on the half that changes."""

from __future__ import annotations

import torch
from torch import Tensor


def on_half(x2: Tensor, params: Tensor, clamp: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return the half that changes, and the log-determinant of every row."""
    s_raw, t = params.chunk(2, dim=-1)
    s = clamp * torch.tanh(s_raw / clamp)
    return x2 * torch.exp(s) + t, s.sum(dim=-1)


def on_rows(x: Tensor, params: Tensor, clamp: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return whole rows ``[.., n, d]``: y1 = x1 beside y2."""
    x1, x2 = x.chunk(2, dim=-1)
    y2, log_det = on_half(x2, params, clamp)
    return torch.cat([x1, y2], dim=-1), log_det
