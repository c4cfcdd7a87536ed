"""The operators of affine couplings: composed forms, names, shapes of results, derivatives.

The forms, in torch's own operations, run on any device: tests compare them on CPU tensors with the
twin and the kernels. CUDA devices may use them.
"""

from typing import Any

import torch
from torch import Tensor

from simcore._grid.one_operator import is_followed
from simcore._ops.declared import operator

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


def composed_coupling(
    x: Tensor, params: Tensor, clamp: float, inverse: bool
) -> tuple[Tensor, Tensor]:
    _check(x, params, clamp)
    dtype = _coupling_dtype(x, params)
    tanh, t = _tanh(params, clamp, dtype)
    s = clamp * tanh
    if inverse:
        return ((x.to(dtype) - t) * torch.exp(-s)).contiguous(), -s.sum(-1)
    return torch.addcmul(t, x.to(dtype), torch.exp(s)).contiguous(), s.sum(-1)


def composed_coupling_backward(
    grad_y: Tensor, grad_log_det: Tensor, kept: Tensor, params: Tensor, clamp: float, inverse: bool
) -> tuple[Tensor, Tensor]:
    _check(kept, params, clamp)
    dtype = _coupling_dtype(kept, params)
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


def _coupling_dtype(x: Tensor, params: Tensor) -> torch.dtype:
    return torch.promote_types(torch.promote_types(x.dtype, params.dtype), torch.float32)


@operator
def affine_coupling(
    x: Tensor, params: Tensor, clamp: float, inverse: bool
) -> tuple[Tensor, Tensor]:
    dtype = _coupling_dtype(x, params)
    return x.new_empty(x.shape, dtype=dtype), x.new_empty(x.shape[:-1], dtype=dtype)


@operator
def affine_coupling_backward(
    grad_y: Tensor, grad_log_det: Tensor, kept: Tensor, params: Tensor, clamp: float, inverse: bool
) -> tuple[Tensor, Tensor]:
    dtype = _coupling_dtype(kept, params)
    return kept.new_empty(kept.shape, dtype=dtype), params.new_empty(params.shape, dtype=dtype)


class _AffineCoupling(torch.autograd.Function):
    """The operator, with `affine_coupling_backward` as its derivative."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, params: Tensor, clamp: float, inverse: bool
    ) -> tuple[Tensor, Tensor]:
        y, log_det = _below_autograd(x, params, clamp, inverse)
        ctx.save_for_backward(y if inverse else x, params)
        ctx.options = clamp, inverse
        return y, log_det

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        arguments = (*grads, *ctx.saved_tensors)
        form: Any = affine_coupling_backward
        if is_followed(arguments):
            form = composed_coupling_backward
        of_x, of_params = form(*arguments, *ctx.options)
        return of_x, of_params, None, None


def _below_autograd(
    x: Tensor, params: Tensor, clamp: float, inverse: bool
) -> tuple[Tensor, Tensor]:
    with torch._C._AutoDispatchBelowAutograd():
        results: tuple[Tensor, Tensor] = affine_coupling(x, params, clamp, inverse)
    return results


def _autograd_kernel(
    x: Tensor, params: Tensor, clamp: float, inverse: bool
) -> tuple[Tensor, Tensor]:
    """Run the operator with its derivative if an argument needs it."""
    # Forward mode and torch.func differentiate the composed form, whose operations have all
    # derivatives.
    if is_followed((x, params)):
        return composed_coupling(x, params, clamp, inverse)
    if torch.is_grad_enabled() and (x.requires_grad or params.requires_grad):
        results: tuple[Tensor, Tensor] = _AffineCoupling.apply(x, params, clamp, inverse)
        return results
    return _below_autograd(x, params, clamp, inverse)


_LIBRARY = torch.library.Library("simcore", "IMPL")
_LIBRARY.impl("affine_coupling", _autograd_kernel, "Autograd")


def _keep_for_coupling(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    *tensors, ctx.clamp, ctx.inverse = inputs
    ctx.save_for_backward(*tensors)


def _backward_affine_coupling_backward(ctx: Any, a: Tensor, grad_params: Tensor) -> Any:
    """Return the gradients of the first derivative, computed by differentiable operations."""
    # The first derivative has three parts, the gradients of x, s_raw and t: ``(v e, (v x e + l) w,
    # v)`` forward and ``(v e, -(v y + l) w, -v e)`` inverse, with ``v = grad_y``, ``l =
    # grad_log_det``, ``w = ds / ds_raw``, and ``e = exp(s)`` forward, ``exp(-s)`` inverse; ``kept``
    # is x forward and y inverse. ``(a, b, c)`` are the cotangents of the three parts.
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
