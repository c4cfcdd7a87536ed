"""The backward pass of a stack of couplings that kept no activations.

A coupling layer can be undone: the backward pass starts at the output and recomputes the inputs of
one layer after the other, so that the activations of one layer exist at a time.

Source: Gomez et al. 2017 (RevNet), section 3.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from simcore._ops.coupling import affine_coupling, affine_coupling_backward
from simcore.nn.coupling import AffineCoupling, Halves

Pull = Callable[[Tensor], tuple[Tensor, dict[int, Tensor]]]


class _Layer(Protocol):
    """A coupling, or a permutation of the columns, which has no parameters."""

    def couple(self, halves: Halves, *, inverse: bool = False) -> tuple[Halves, Tensor | None]: ...


class _Stack(Protocol):
    """The part of `CouplingINN` that the backward pass needs."""

    dim: int

    def parameters(self) -> Iterator[nn.Parameter]: ...
    def ordered(self, inverse: bool) -> Sequence[_Layer]: ...
    def run(self, x: Tensor, *, inverse: bool) -> tuple[Tensor, Tensor]: ...


def run_reversibly(stack: _Stack, x: Tensor, inverse: bool) -> tuple[Tensor, Tensor]:
    """Run ``stack.run(x, inverse=inverse)``, keeping its output alone for the backward pass."""
    parameters = [p for p in stack.parameters() if p.requires_grad]
    return _Reversible.apply(stack, inverse, x, *parameters)


class _Reversible(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, stack: _Stack, inverse: bool, x: Tensor, *parameters: Tensor
    ) -> tuple[Tensor, Tensor]:
        y, log_det = stack.run(x, inverse=inverse)
        ctx.stack, ctx.inverse = stack, inverse
        # The backward pass runs the perceptrons again, in the precision that autocast chose here.
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
        by_id: dict[int, Tensor] = {}
        split = ctx.stack.dim - ctx.stack.dim // 2
        halves = (y[..., :split], y[..., split:])
        grads = (grad_y[..., :split], grad_y[..., split:])
        with torch.autocast(**ctx.autocast):
            for layer in ctx.stack.ordered(not ctx.inverse):
                if not isinstance(layer, AffineCoupling):  # a permutation
                    halves, _ = layer.couple(halves, inverse=not ctx.inverse)
                    grads, _ = layer.couple(grads, inverse=not ctx.inverse)
                    continue
                halves, grads = _retrace(layer, halves, grads, grad_log_det, ctx.inverse, by_id)
        grad_x = torch.cat(grads, dim=-1) if ctx.needs_input_grad[2] else None
        return None, None, grad_x, *(by_id[id(p)] for p in parameters)


def _retrace(
    layer: AffineCoupling,
    halves: Halves,
    grads: Halves,
    grad_log_det: Tensor,
    inverse: bool,
    by_id: dict[int, Tensor],
) -> tuple[Halves, Halves]:
    """Return the halves before one coupling and their gradients."""
    passive, active = halves[::-1] if layer.flip else halves
    grad_passive, grad_active = grads[::-1] if layer.flip else grads
    params, pull = _condition(layer, passive)
    before, _ = affine_coupling(active, params, layer.clamp, not inverse)
    kept = active if inverse else before
    grad_active, grad_params = affine_coupling_backward(
        grad_active, grad_log_det, kept, params, layer.clamp, inverse
    )
    through, of_parameters = pull(grad_params.to(params.dtype))
    by_id.update(of_parameters)
    grad_passive = grad_passive + through
    if layer.flip:
        return (before, passive), (grad_active, grad_passive)
    return (passive, before), (grad_passive, grad_active)


def _condition(layer: AffineCoupling, passive: Tensor) -> tuple[Tensor, Pull]:
    """Return s_raw and t, computed from the half that passes, and a function that pulls back."""
    # The function takes the gradient of s_raw and t, and returns the gradient of ``passive`` and
    # the gradients of the parameters by their ids.
    wanted = {n: p for n, p in layer.conditioner.named_parameters() if p.requires_grad}
    ids = [id(parameter) for parameter in wanted.values()]
    if torch.compiler.is_compiling():  # torch.compile does not trace torch.autograd.grad

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
