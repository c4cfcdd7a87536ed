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
    return (s_raw / clamp).tanh_(), t


def _dtype(x: Tensor, params: Tensor) -> torch.dtype:
    wide = torch.float64 in (x.dtype, params.dtype)
    return torch.float64 if wide else torch.float32


def affine_coupling(
    x: Tensor, params: Tensor, clamp: float, inverse: bool
) -> tuple[Tensor, Tensor]:
    """Compute ``simcore::affine_coupling``."""
    _check(x, params, clamp)
    dtype = _dtype(x, params)
    s, t = _tanh(params, clamp, dtype)
    s.mul_(clamp)
    if inverse:
        return (x.to(dtype) - t).mul_(torch.exp(-s)), -s.sum(-1)
    log_det = s.sum(-1)
    return torch.addcmul(t, x.to(dtype), s.exp_()), log_det


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
    grad_x = (tanh * (-clamp if inverse else clamp)).exp_().mul_(grad_y)
    grad_params = grad_x.new_empty(params.shape)
    of_s, of_t = grad_params.chunk(2, dim=-1)
    torch.addcmul(
        grad_log_det.to(dtype).unsqueeze(-1), grad_y if inverse else grad_x, kept, out=of_s
    )
    torch.ops.aten.tanh_backward.grad_input(of_s, tanh, grad_input=of_s)
    if inverse:
        of_s.neg_()
        torch.neg(grad_x, out=of_t)
    else:
        of_t.copy_(grad_y)
    return grad_x, grad_params
