"""Backward through a stack of couplings that kept no activations.

A coupling layer can be undone, so the backward pass starts at the output and recomputes, layer by
layer, what the forward pass had there: activations of one layer exist at a time.

Source: Gomez et al. 2017 (RevNet), section 3.2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from simcore._ops.coupling import affine_coupling, affine_coupling_backward

if TYPE_CHECKING:
    from simcore.nn.coupling import AffineCoupling, Halves
    from simcore.nn.inn import CouplingINN

Pull = Callable[[Tensor], tuple[Tensor, dict[int, Tensor]]]


def run_reversibly(inn: CouplingINN, x: Tensor, inverse: bool) -> tuple[Tensor, Tensor]:
    """`CouplingINN.run` that saves its output and nothing else."""
    parameters = [p for p in inn.parameters() if p.requires_grad]
    return _Reversible.apply(inn, inverse, x, *parameters)


class _Reversible(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, inn: CouplingINN, inverse: bool, x: Tensor, *parameters: Tensor
    ) -> tuple[Tensor, Tensor]:
        y, log_det = inn.run(x, inverse=inverse)
        ctx.inn, ctx.inverse = inn, inverse
        # What autocast made of the perceptrons must be made of them again.
        device = x.device.type
        ctx.autocast = {
            "device_type": device,
            "dtype": torch.get_autocast_dtype(device),
            "enabled": torch.is_autocast_enabled(device),
        }
        ctx.save_for_backward(y, *parameters)
        return y, log_det

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: Tensor, grad_log_det: Tensor) -> Any:
        y, *parameters = ctx.saved_tensors
        found: dict[int, Tensor] = {}
        inn, split = ctx.inn, ctx.inn.dim - ctx.inn.dim // 2
        halves = (y[..., :split], y[..., split:])
        grads = (grad_y[..., :split], grad_y[..., split:])
        with torch.autocast(**ctx.autocast):
            for layer in inn.ordered(not ctx.inverse):
                if not any(True for _ in layer.parameters()):  # a permutation
                    halves, _ = layer.couple(halves, inverse=not ctx.inverse)
                    grads, _ = layer.couple(grads, inverse=not ctx.inverse)
                    continue
                halves, grads = _retrace(layer, halves, grads, grad_log_det, ctx.inverse, found)
        grad_x = torch.cat(grads, dim=-1) if ctx.needs_input_grad[2] else None
        return None, None, grad_x, *(found[id(p)] for p in parameters)


def _retrace(
    layer: AffineCoupling,
    halves: Halves,
    grads: Halves,
    grad_log_det: Tensor,
    inverse: bool,
    found: dict[int, Tensor],
) -> tuple[Halves, Halves]:
    """One coupling backwards: its inputs, their gradients, and in ``found`` the parameters'."""
    passive, active = halves[::-1] if layer.flip else halves
    grad_passive, grad_active = grads[::-1] if layer.flip else grads
    params, pull = _condition(layer, passive)
    before, _ = affine_coupling(active, params, layer.clamp, not inverse)
    kept = active if inverse else before
    grad_active, grad_params = affine_coupling_backward(
        grad_active, grad_log_det, kept, params, layer.clamp, inverse
    )
    through, of_parameters = pull(grad_params.to(params.dtype))
    found.update(of_parameters)
    grad_passive = grad_passive + through
    if layer.flip:
        return (before, passive), (grad_active, grad_passive)
    return (passive, before), (grad_passive, grad_active)


def _condition(layer: AffineCoupling, passive: Tensor) -> tuple[Tensor, Pull]:
    """s_raw and t from the half that passes, and the way from their gradient back.

    That way ends at the gradient of ``passive``, and at those of the parameters by their ids.
    """
    wanted = {n: p for n, p in layer.conditioner.named_parameters() if p.requires_grad}
    ids = [id(parameter) for parameter in wanted.values()]
    if torch.compiler.is_compiling():  # which does not follow torch.autograd.grad

        def condition(rows: Tensor, weights: dict[str, Tensor]) -> Tensor:
            rows = rows.to(layer.conditioner.head.weight.dtype)
            return torch.func.functional_call(layer.conditioner, weights, (rows,))

        params, pull, *_ = torch.func.vjp(condition, passive, wanted)

        def traced(grad: Tensor) -> tuple[Tensor, dict[int, Tensor]]:
            through, grads = pull(grad)
            return through, dict(zip(ids, grads.values(), strict=True))

        return params, traced

    with torch.enable_grad():
        passive = passive.detach().requires_grad_()
        params = layer.condition(passive)

    def recorded(grad: Tensor) -> tuple[Tensor, dict[int, Tensor]]:
        inputs = [passive, *wanted.values()]
        through, *grads = torch.autograd.grad(params, inputs, grad)
        return through, dict(zip(ids, grads, strict=True))

    return params.detach(), recorded
