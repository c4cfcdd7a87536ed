"""The derivatives of `hsic_terms`: backward within `max_memory`, forward mode, and both again.

The formulas are those of `LinearHsic`. A backward pass that nobody differentiates works on as many
rows and columns at a time as `max_memory` allows; every other derivative takes them all at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from simcore._devices import memory_bound
from simcore._hsic_gradients import Blocks, LinearHsic, fitting_blocks
from simcore._one_operator import has_tangent, one_operator

hsic_terms = torch.ops.simcore.hsic_terms
Terms = tuple[Tensor, Tensor, Tensor]
MEMORY_OPTION = 4  # its place among the options of hsic_terms


class HsicTerms(torch.autograd.Function):
    """``hsic_terms(layers[:count_x], layers[count_x:], *options)`` and its derivatives."""

    generate_vmap_rule = True  # torch.func.jacfwd and hessian map over tangents

    @staticmethod
    def forward(count_x: int, options: tuple[Any, ...], *layers: Tensor) -> Terms:
        """The operator itself, below its own derivative."""
        with torch._C._AutoDispatchBelowAutograd():
            terms: Terms = hsic_terms(layers[:count_x], layers[count_x:], *options)
        return terms

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Terms) -> None:
        """Keep the layers themselves."""
        ctx.count_x, ctx.options, *layers = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*layers)
        ctx.save_for_forward(*layers)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        """Gradients of the layers that need one."""
        layers, unbiased = _differentiable(ctx)
        weights = _pair_weights(grads, len(layers), ctx.count_x, layers[0])
        wanted = ctx.needs_input_grad[2:]
        problem = (layers, weights, wanted, ctx.count_x, unbiased)
        with torch.autocast(weights.device.type, enabled=False):
            if _is_recorded([weights, *layers]):
                found = iter(_gradients(*problem))
            else:
                found = iter(_bounded_gradients(*problem, ctx.options[MEMORY_OPTION]))
        return None, None, *(next(found) if want else None for want in wanted)

    @staticmethod
    def jvp(ctx: Any, _count: None, _options: None, *tangents: Tensor | None) -> Terms:
        """Derivatives of the three terms along ``tangents``; None: along 0."""
        layers, unbiased = _differentiable(ctx)
        with torch.autocast(layers[0].device.type, enabled=False):
            slopes = LinearHsic(layers, unbiased).slopes(tangents)
        pairs, count_x = slopes + slopes.T, ctx.count_x
        y = slice(count_x if count_x < len(layers) else 0, None)
        xx, yy = pairs.diagonal()[:count_x], pairs.diagonal()[y]
        return pairs[:count_x, y].clone(), xx.clone(), yy.clone()


def hsic_terms_autograd(x: Sequence[Tensor], y: Sequence[Tensor], *options: Any) -> Terms:
    """`hsic_terms` with all its derivatives."""
    # Options that the caller left at their defaults are not in the list.
    terms: Terms = HsicTerms.apply(len(x), options, *x, *y)
    return terms


_LIBRARY = torch.library.Library("simcore", "IMPL")
_LIBRARY.impl("hsic_terms", hsic_terms_autograd, "Autograd")


def _differentiable(ctx: Any) -> tuple[list[Tensor], bool]:
    """The layers, and whether the estimator is the unbiased one."""
    kernel, estimator, *_ = ctx.options
    if kernel != "linear":
        raise RuntimeError(
            f"kernel: wanted 'linear' for a derivative, got {kernel!r}, which has none here"
        )
    return list(ctx.saved_tensors), estimator == "unbiased"


def _is_recorded(tensors: Sequence[Tensor]) -> bool:
    """Whether torch differentiates, or maps over a batch, what is computed with ``tensors`` now."""
    return (
        torch.is_grad_enabled()
        or torch._C._are_functorch_transforms_active()
        or any(map(has_tangent, tensors))
    )


def _pair_weights(
    grads: Sequence[Tensor | None], count: int, count_x: int, like: Tensor
) -> Tensor:
    """Symmetric ``w`` with ``d loss = sum_ab w_ab / 2 * d HSIC(a, b)``, float64 ``[count, count]``.

    ``grads`` are those of xy, xx and yy.
    """
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
    """The layers b whose pair with a is in the result: the other side, and a itself."""
    if count_x == count:
        return tuple(range(count))
    other = range(count_x, count) if a < count_x else range(count_x)
    return (a, *other)


def _gradients(
    layers: list[Tensor],
    weights: Tensor,
    wanted: Sequence[bool],
    count_x: int,
    unbiased: bool,
    blocks: Blocks | None = None,
) -> list[Tensor]:
    """Gradients of ``sum_ab weights[a, b] / 2 * HSIC(a, b)``, of the ``wanted`` layers alone."""
    hsic = LinearHsic(layers, unbiased, blocks)
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


@one_operator(_empty_gradients, _all_outputs, name="hsic_gradients")
def _bounded_gradients(
    layers: list[Tensor],
    weights: Tensor,
    wanted: Sequence[bool],
    count_x: int,
    unbiased: bool,
    max_memory: int,
) -> list[Tensor]:
    """`_gradients` in ``max_memory`` bytes beside the result."""
    count = len(layers)
    members = max(
        sum(layers[b].shape[1] for b in _partners(a, count, count_x))
        for a, want in enumerate(wanted)
        if want
    )
    blocks = fitting_blocks(layers, members, memory_bound(max_memory, layers[0]))
    return _gradients(layers, weights, wanted, count_x, unbiased, blocks)
