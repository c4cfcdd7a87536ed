"""Values whose gradients are computed by a function of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

# Takes detached layers, the gradients of a loss by the values, and which layers need a gradient.
# Returns a gradient for each layer; None where it needs none.
Gradients = Callable[[list[Tensor], Sequence[Tensor], Sequence[bool]], Sequence[Tensor | None]]


def with_gradients(
    function: str, values: tuple[Tensor, ...], layers: Sequence[Tensor], gradients: Gradients
) -> tuple[Tensor, ...]:
    """Return values that were computed without autograd, and whose gradients reach the layers."""
    # The backward pass calls ``gradients``. It refuses to be differentiated again, with an error
    # that names ``function``: torch would take the second derivative to be 0.
    if not torch.is_grad_enabled() or not any(layer.requires_grad for layer in layers):
        return values
    grids: tuple[Tensor, ...] = _WithGradients.apply(
        function, gradients, len(values), *values, *layers
    )
    return grids


class _WithGradients(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, function: str, gradients: Gradients, count: int, *tensors: Tensor
    ) -> tuple[Any, ...]:
        ctx.function, ctx.gradients, ctx.count = function, gradients, count
        ctx.save_for_backward(*tensors[count:])
        return tuple(value.clone() for value in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                f"{ctx.function}: wanted create_graph=False, because the grid has a first "
                "derivative alone, got True"
            )
        layers = [layer.detach() for layer in ctx.saved_tensors]
        wanted = ctx.needs_input_grad[3 + ctx.count :]
        with torch.no_grad(), torch.autocast(layers[0].device.type, enabled=False):
            by_layer = ctx.gradients(layers, grads, wanted)
        cast = [
            None if grad is None else grad.to(layer.dtype)
            for grad, layer in zip(by_layer, layers, strict=True)
        ]
        return None, None, None, *(None for _ in range(ctx.count)), *cast


def root(values: Tensor) -> Tensor:
    """Return the square root; its derivative is 0 where the value is 0, and not infinite."""
    positive = values > 0
    ends = values.detach().clamp(min=0)  # clamp has a derivative of 1 at its limit
    return torch.where(positive, torch.where(positive, values, 1.0).sqrt(), ends)
