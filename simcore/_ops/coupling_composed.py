"""The affine coupling and its derivative in torch's own operations; CUDA devices may use them.

The functions run on any device: tests compare them on CPU tensors with the twin and the kernels.
"""

from __future__ import annotations

import torch
from torch import Tensor

LARGEST_CLAMP = 40.0  # as kMaxClamp in csrc/torch


def _check(x: Tensor, params: Tensor, clamp: float) -> None:
    if x.dim() not in (2, 3):
        raise ValueError(f"x: wanted shape [n, k] or [B, n, k], got {tuple(x.shape)}")
    wanted = (*x.shape[:-1], 2 * x.shape[-1])
    if tuple(params.shape) != wanted:
        raise ValueError(
            f"params: wanted shape {wanted} (s_raw, then t), got {tuple(params.shape)}"
        )
    if params.device != x.device:
        raise ValueError(f"params: wanted device {x.device} as x, got {params.device}")
    if not 0 < clamp <= LARGEST_CLAMP:
        raise ValueError(f"clamp: wanted a number in (0, {LARGEST_CLAMP:g}], got {clamp}")


def _tanh(params: Tensor, clamp: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return ``tanh(s_raw / clamp)`` and t; s is the former times ``clamp``."""
    s_raw, t = params.to(dtype).chunk(2, dim=-1)
    return torch.tanh(s_raw / clamp), t


def _dtype(x: Tensor, params: Tensor) -> torch.dtype:
    wide = torch.float64 in (x.dtype, params.dtype)
    return torch.float64 if wide else torch.float32


def affine_coupling(
    x: Tensor, params: Tensor, clamp: float, inverse: bool
) -> tuple[Tensor, Tensor]:
    """Compute ``simcore::affine_coupling``."""
    _check(x, params, clamp)
    dtype = _dtype(x, params)
    tanh, t = _tanh(params, clamp, dtype)
    s = clamp * tanh
    if inverse:
        return ((x.to(dtype) - t) * torch.exp(-s)).contiguous(), -s.sum(-1)
    return torch.addcmul(t, x.to(dtype), torch.exp(s)).contiguous(), s.sum(-1)


def affine_coupling_backward(
    grad_y: Tensor,
    grad_log_det: Tensor,
    kept: Tensor,
    params: Tensor,
    clamp: float,
    inverse: bool,
) -> tuple[Tensor, Tensor]:
    """Compute ``simcore::affine_coupling_backward``."""
    _check(kept, params, clamp)
    dtype = _dtype(kept, params)
    tanh, _ = _tanh(params, clamp, dtype)
    grad_y, kept = grad_y.to(dtype), kept.to(dtype)
    grad_x = grad_y * torch.exp(tanh * (-clamp if inverse else clamp))
    of_row = grad_log_det.to(dtype).unsqueeze(-1)
    # In one pass; nothing is in place, because this form has derivatives of its own.
    of_s = torch.ops.aten.tanh_backward(
        torch.addcmul(of_row, grad_y if inverse else grad_x, kept), tanh
    )
    of_params = [-of_s, -grad_x] if inverse else [of_s, grad_y]
    return grad_x.contiguous(), torch.cat(of_params, -1)
