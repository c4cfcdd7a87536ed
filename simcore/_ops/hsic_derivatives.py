"""The derivatives of `hsic_terms`: backward within `max_memory`, forward mode, second derivatives.

`LinearHsic` and `KernelHsic` hold the formulas. Kernels of distances have the backward pass alone,
and the linear kernel has all derivatives. A backward pass that is not differentiated again works on
as many rows and columns at a time as `max_memory` allows; every other derivative takes all of them
at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from simcore._grid.memory import memory_bound
from simcore._grid.one_operator import has_tangent, is_followed, one_operator
from simcore._ops.hsic import hsic_terms
from simcore._ops.hsic_gradients import Blocks, KernelHsic, LinearHsic, fitting_blocks

Terms = tuple[Tensor, Tensor, Tensor]
MEMORY_OPTION = 4  # the place of max_memory among the options of hsic_terms


class DifferentiableTerms(torch.autograd.Function):
    """``hsic_terms(layers[:count_x], layers[count_x:], *options)`` and its derivatives."""

    generate_vmap_rule = True  # torch.func.jacfwd and hessian map over tangents

    @staticmethod
    def forward(count_x: int, options: tuple[Any, ...], *layers: Tensor) -> Terms:
        return _below_autograd(layers[:count_x], layers[count_x:], *options)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Terms) -> None:
        ctx.count_x, ctx.options, *layers = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*layers)
        ctx.save_for_forward(*layers)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        layers = list(ctx.saved_tensors)
        weights = _pair_weights(grads, len(layers), ctx.count_x, layers[0])
        wanted = list(ctx.needs_input_grad[2:])
        kernel, estimator, bandwidth = ctx.options[:3]
        problem = (layers, weights, wanted, ctx.count_x)
        with torch.autocast(weights.device.type, enabled=False):
            if torch.is_grad_enabled() or is_followed([weights, *layers]):
                _require_linear(kernel)
                gradients = iter(_gradients(*problem, estimator))
            else:
                options = (kernel, estimator, bandwidth, ctx.options[MEMORY_OPTION])
                gradients = iter(_bounded_gradients(*problem, *options))
        return None, None, *(next(gradients) if want else None for want in wanted)

    @staticmethod
    def jvp(ctx: Any, _count: None, _options: None, *tangents: Tensor | None) -> Terms:
        """Return the derivatives of the three terms along ``tangents``; None is a tangent of 0."""
        layers, (kernel, estimator) = list(ctx.saved_tensors), ctx.options[:2]
        _require_linear(kernel)
        with torch.autocast(layers[0].device.type, enabled=False):
            slopes = LinearHsic(layers, estimator == "unbiased").slopes(tangents)
        pairs, count_x = slopes + slopes.T, ctx.count_x
        y = slice(count_x if count_x < len(layers) else 0, None)
        xx, yy = pairs.diagonal()[:count_x], pairs.diagonal()[y]
        return pairs[:count_x, y].clone(), xx.clone(), yy.clone()


def _below_autograd(x: Sequence[Tensor], y: Sequence[Tensor], *options: Any) -> Terms:
    with torch._C._AutoDispatchBelowAutograd():
        terms: Terms = hsic_terms(x, y, *options)
    return terms


def differentiable_hsic_terms(x: Sequence[Tensor], y: Sequence[Tensor], *options: Any) -> Terms:
    """Run `hsic_terms` in a form that autograd, torch.func and torch.compile differentiate."""
    # The operator finds its derivative under autograd and torch.compile, and starts sooner than an
    # autograd.Function, which the transforms of torch.func need.
    if torch._C._are_functorch_transforms_active() and not torch.compiler.is_compiling():
        terms: Terms = DifferentiableTerms.apply(len(x), options, *x, *y)
        return terms
    return hsic_terms(x, y, *options)


def _autograd_kernel(x: Sequence[Tensor], y: Sequence[Tensor], *options: Any) -> Terms:
    """Run the operator with its derivatives if an argument needs them, else without."""
    if any(tensor.requires_grad or has_tangent(tensor) for tensor in (*x, *y)):
        # `options` lacks the options that the caller left at their defaults.
        terms: Terms = DifferentiableTerms.apply(len(x), options, *x, *y)
        return terms
    return _below_autograd(x, y, *options)


_LIBRARY = torch.library.Library("simcore", "IMPL")
_LIBRARY.impl("hsic_terms", _autograd_kernel, "Autograd")


def _require_linear(kernel: str) -> None:
    if kernel != "linear":
        raise RuntimeError(
            "kernel: wanted 'linear' for a second derivative, or one in forward mode, got "
            f"{kernel!r}, which has a first derivative in reverse mode alone"
        )


def _pair_weights(grads: Sequence[Tensor | None], count: int, count_x: int, like: Tensor) -> Tensor:
    """Return the symmetric ``w`` with ``d loss = sum_ab w_ab / 2 * d HSIC(a, b)``."""
    # ``w`` is float64 ``[count, count]``; ``grads`` are the gradients of the loss by xy, xx and yy.
    count_y = count - count_x or count
    shapes = ((count_x, count_y), (count_x,), (count_y,))
    xy, xx, yy = (
        like.new_zeros(shape, dtype=torch.float64) if grad is None else grad
        for grad, shape in zip(grads, shapes, strict=True)
    )
    if count == count_x:
        weights = xy + torch.diag(xx + yy)
    else:
        top = torch.cat([torch.diag(xx), xy], dim=1)
        weights = torch.cat([top, torch.cat([torch.zeros_like(xy.T), torch.diag(yy)], dim=1)])
    return weights + weights.T


def _partners(a: int, count: int, count_x: int) -> tuple[int, ...]:
    """Return the layers b whose pair with a is in the result: the other side, and a itself."""
    if count_x == count:
        return tuple(range(count))
    other = range(count_x, count) if a < count_x else range(count_x)
    return (a, *other)


def _gradients(
    layers: list[Tensor],
    weights: Tensor,
    wanted: Sequence[bool],
    count_x: int,
    estimator: str,
    blocks: Blocks | None = None,
) -> list[Tensor]:
    """Return the gradients of ``sum_ab weights[a, b] / 2 * HSIC(a, b)`` by ``wanted`` layers."""
    hsic = LinearHsic(layers, estimator == "unbiased", blocks)
    count = len(layers)
    return [
        hsic.gradient(a, weights[a], _partners(a, count, count_x))
        for a, want in enumerate(wanted)
        if want
    ]


def _empty_gradients(
    like: Tensor, layers: list[Tensor], weights: Tensor, wanted: Sequence[bool], *_: Any
) -> list[Tensor]:
    pairs = zip(layers, wanted, strict=True)
    return [layer.new_empty(layer.shape) for layer, want in pairs if want]


def _all_outputs(outputs: list[Tensor], *_: Any) -> list[Tensor]:
    return outputs


# torch caches compiled backward passes on disk. They call this operator, but the cache key does not
# contain its signature: if the signature changes, its name has to change too.
@one_operator(_empty_gradients, _all_outputs, name="hsic_terms_gradients")
def _bounded_gradients(
    layers: list[Tensor],
    weights: Tensor,
    wanted: Sequence[bool],
    count_x: int,
    kernel: str,
    estimator: str,
    bandwidth: float,
    max_memory: int,
) -> list[Tensor]:
    """Return the gradients by ``wanted`` layers, computed in ``max_memory`` bytes beside them."""
    limit = memory_bound(max_memory, layers[0])
    if kernel != "linear":
        hsic = KernelHsic(layers, kernel, estimator == "unbiased", bandwidth, limit)
        return hsic.gradients(weights, wanted)
    count = len(layers)
    members = max(
        sum(layers[b].shape[1] for b in _partners(a, count, count_x))
        for a, want in enumerate(wanted)
        if want
    )
    blocks = fitting_blocks(layers, members, limit)
    return _gradients(layers, weights, wanted, count_x, estimator, blocks)
