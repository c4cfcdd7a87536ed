"""The operators of affine couplings: names, shapes of results, and the second derivative."""

from typing import Any

import torch
from torch import Tensor

affine_coupling = torch.ops.simcore.affine_coupling
affine_coupling_backward = torch.ops.simcore.affine_coupling_backward


def _coupling_dtype(x: Tensor, params: Tensor) -> torch.dtype:
    return torch.promote_types(torch.promote_types(x.dtype, params.dtype), torch.float32)


@torch.library.register_fake("simcore::affine_coupling")
def _fake_affine_coupling(
    x: Tensor, params: Tensor, clamp: float, inverse: bool
) -> tuple[Tensor, Tensor]:
    dtype = _coupling_dtype(x, params)
    return x.new_empty(x.shape, dtype=dtype), x.new_empty(x.shape[:-1], dtype=dtype)


@torch.library.register_fake("simcore::affine_coupling_backward")
def _fake_affine_coupling_backward(
    grad_y: Tensor,
    grad_log_det: Tensor,
    kept: Tensor,
    params: Tensor,
    clamp: float,
    inverse: bool,
) -> tuple[Tensor, Tensor]:
    dtype = _coupling_dtype(kept, params)
    return kept.new_empty(kept.shape, dtype=dtype), params.new_empty(params.shape, dtype=dtype)


def _keep_for_coupling(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    *tensors, ctx.clamp, ctx.inverse = inputs
    ctx.save_for_backward(*tensors)


def _backward_affine_coupling_backward(ctx: Any, a: Tensor, grad_params: Tensor) -> Any:
    """Return the gradients of the first derivative, computed by differentiable operations.

    The first derivative (in csrc/torch) has three parts, the gradients of x, s_raw and t:
    ``(v e, (v x e + l) w, v)`` forward and ``(v e, -(v y + l) w, -v e)`` inverse, with
    ``v = grad_y``, ``l = grad_log_det``, ``w = ds / ds_raw``, and ``e = exp(s)`` forward,
    ``exp(-s)`` inverse; ``kept`` is x forward and y inverse. ``(a, b, c)`` are the cotangents of
    the three parts.
    """
    v, l, kept, params = (t.to(a.dtype) for t in ctx.saved_tensors)
    b, c = grad_params.chunk(2, dim=-1)
    s_raw = params.chunk(2, dim=-1)[0]
    l = l.unsqueeze(-1)
    tanh = torch.tanh(s_raw / ctx.clamp)
    w = 1 - tanh.square()
    w_slope = -2 / ctx.clamp * tanh * w
    if ctx.inverse:
        e = torch.exp(-ctx.clamp * tanh)
        a = a - c
        grad_v, grad_l, grad_kept = a * e - b * kept * w, -b * w, -b * v * w
        grad_s_raw = -a * v * e * w - b * (v * kept + l) * w_slope
    else:
        e = torch.exp(ctx.clamp * tanh)
        grad_v, grad_l, grad_kept = a * e + b * kept * e * w + c, b * w, b * v * e * w
        grad_s_raw = a * v * e * w + b * (v * kept * e * w.square() + (v * kept * e + l) * w_slope)
    grad_params = torch.cat([grad_s_raw, torch.zeros_like(grad_s_raw)], dim=-1)
    return grad_v, grad_l.sum(-1), grad_kept, grad_params, None, None


torch.library.register_autograd(
    "simcore::affine_coupling_backward",
    _backward_affine_coupling_backward,
    setup_context=_keep_for_coupling,
)
