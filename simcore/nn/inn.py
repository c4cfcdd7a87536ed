"""Invertible networks: stacks of affine coupling layers, and their backward pass.

A coupling layer can be undone: the backward pass of a stack that kept no activations starts at the
output and recomputes the inputs of one layer after the other, so that the activations of one layer
exist at a time (Gomez et al. 2017, RevNet, section 3.2).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from simcore._grid.one_operator import is_followed
from simcore._grid.options import check_choice, check_count
from simcore._ops.coupling import affine_coupling, affine_coupling_backward
from simcore.nn.coupling import AffineCoupling, Halves, on_rows
from simcore.nn.mlp import Activation

Pull = Callable[[Tensor], tuple[Tensor, dict[int, Tensor]]]
Mixing = Literal["none", "permutation"]


def run_reversibly(stack: CouplingINN, x: Tensor, inverse: bool) -> tuple[Tensor, Tensor]:
    """Run ``stack.run(x, inverse=inverse)``, keeping its output alone for the backward pass."""
    parameters = [p for p in stack.parameters() if p.requires_grad]
    return _Reversible.apply(stack, inverse, x, *parameters)


class _Reversible(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, stack: CouplingINN, inverse: bool, x: Tensor, *parameters: Tensor
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


class Permutation(nn.Module):
    """A fixed permutation of the columns; its log-determinant is 0.

    Column ``order[j]`` of the input is column j of the output.
    """

    order: Tensor

    def __init__(self, order: Tensor) -> None:
        super().__init__()
        self.register_buffer("order", order)

    def couple(self, halves: Halves, *, inverse: bool = False) -> tuple[Halves, None]:
        """Permute the columns of both halves, or put them back if ``inverse``."""
        order = self.order.argsort() if inverse else self.order
        columns = torch.cat(halves, dim=-1).index_select(-1, order)
        split = halves[0].shape[-1]
        return (columns[..., :split], columns[..., split:]), None


def _permutations(count: int, dim: int, seed: int) -> list[Permutation]:
    """Return a permutation for the front of each of ``count`` blocks, and one that undoes them."""
    generator = torch.Generator().manual_seed(seed)
    places = [torch.randperm(dim, generator=generator) for _ in range(count)]
    places = [torch.arange(dim), *places, torch.arange(dim)]
    return [Permutation(before.argsort()[after]) for before, after in pairwise(places)]


class CouplingINN(nn.Module):
    """An invertible network (BERT-INN): affine coupling layers whose halves alternate.

    Block i is an `AffineCoupling` with ``flip = i % 2``. The exact inverse costs as much as the
    forward pass; the log-determinant is the sum over the blocks. The initial map is the identity.

    Parameters
    ----------
    dim : int
        Columns of a row, at least 2; may be odd.
    n_blocks : int
        Number of coupling layers; two successive layers change every column once.
    hidden, depth, activation, clamp, output_gain : as in `AffineCoupling`
        With ``output_gain=1`` the initial map is random instead of the identity.
    batch : int
        Number of independent maps, which are trained at once on rows ``[batch, n, dim]``.
    mixing : {"none", "permutation"}
        "permutation" draws, for each block, which columns form its halves, and restores their order
        behind the last block, so that the initial map still is the identity. Without mixing, two
        columns of one half affect each other only as inputs of one perceptron. The permutations are
        buffers: they are saved with the state.
    seed : int
        Seed of the permutations.
    reversible : bool
        Whether the backward pass recomputes activations from the output instead of keeping them:
        memory then does not grow with the number of blocks, at the price of one more pass through
        each block. Second derivatives need ``reversible=False``; forward-mode differentiation and
        the transforms of `torch.func` keep activations in any case.

    Raises
    ------
    TypeError, ValueError
        An argument is of another type or out of range.

    Notes
    -----
    ``inverse(forward(x))`` differs from x by rounding errors, multiplied by the factor by which the
    map squeezes a direction. The difference stays below 1e-5 in float32 and 1e-10 in float64 for a
    network that was trained towards another such network, which squeezes little. It is larger for a
    network that was trained towards noise, which flattens directions. ``clamp`` bounds the factor.

    References
    ----------
    Ren et al. 2023, section 3.4; Dinh et al. 2017, section 3; Gomez et al. 2017 (reversible).
    """

    def __init__(
        self,
        dim: int,
        n_blocks: int,
        hidden: int,
        batch: int = 1,
        *,
        depth: int = 2,
        activation: Activation = "gelu",
        clamp: float = 1.0,
        output_gain: float = 0.0,
        mixing: Mixing = "none",
        seed: int = 0,
        reversible: bool = False,
    ) -> None:
        super().__init__()
        self.dim, self.batch = check_count(dim, "dim", 2), check_count(batch, "batch")
        n_blocks = check_count(n_blocks, "n_blocks")
        self.mixing = check_choice(mixing, "mixing", Mixing)
        self.reversible = reversible
        blocks = [
            AffineCoupling(
                dim,
                hidden,
                depth=depth,
                activation=activation,
                clamp=clamp,
                flip=i % 2 == 1,
                batch=batch,
                output_gain=output_gain,
            )
            for i in range(n_blocks)
        ]
        layers: list[nn.Module] = list(blocks)
        if mixing == "permutation":
            first, *others = _permutations(n_blocks, dim, seed)
            layers = [first]
            for block, permutation in zip(blocks, others, strict=True):
                layers += [block, permutation]
        self.layers = nn.ModuleList(layers)

    @on_rows
    def forward(self, x: Tensor) -> Tensor:
        """Return y, of the shape of x.

        Parameters
        ----------
        x : ``[n, dim]``, or ``[batch, n, dim]``
            Rows, in the dtype of the parameters.
        """
        return self._run(x, inverse=False)[0]

    @on_rows
    def inverse(self, y: Tensor) -> Tensor:
        """Return the x that `forward` maps to y."""
        return self._run(y, inverse=True)[0]

    @on_rows
    def log_abs_det(self, x: Tensor) -> Tensor:
        """Return the logarithm of the Jacobian's absolute determinant at every row, ``[n]``."""
        return self._run(x, inverse=False)[1]

    @on_rows
    def forward_and_log_abs_det(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return `forward` and `log_abs_det` of x, from one pass."""
        return self._run(x, inverse=False)

    @on_rows
    def inverse_and_log_abs_det(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return `inverse` of y, and the log-determinant of the inverse: minus `log_abs_det`."""
        return self._run(y, inverse=True)

    def unbatch(self) -> list[CouplingINN]:
        """Return the maps one by one, as copies with ``batch=1``."""
        maps = []
        for i in range(self.batch):
            one = copy.deepcopy(self)
            for module in one.modules():
                if isinstance(module, AffineCoupling | CouplingINN):
                    module.batch = 1
            for parameter in one.parameters():
                parameter.data = parameter.data[i : i + 1].clone()
                parameter.grad = None
            maps.append(one)
        return maps

    def ordered(self, inverse: bool) -> list[AffineCoupling | Permutation]:
        """Return the layers in the order in which rows pass them."""
        layers = list(self.layers)
        return layers[::-1] if inverse else layers  # type: ignore[return-value]

    def _run(self, x: Tensor, *, inverse: bool) -> tuple[Tensor, Tensor]:
        reversible = self.reversible and torch.is_grad_enabled()
        if reversible and not torch.compiler.is_compiling():
            reversible = not is_followed([x, *self.parameters()])
        if reversible:
            return run_reversibly(self, x, inverse)
        return self.run(x, inverse=inverse)

    def run(self, x: Tensor, *, inverse: bool) -> tuple[Tensor, Tensor]:
        """Apply all layers to ``[batch, n, dim]``; return the rows and their log-determinants."""
        split = self.dim - self.dim // 2
        halves: Halves = (x[..., :split], x[..., split:])
        total: Tensor | None = None
        for layer in self.ordered(inverse):
            halves, log_det = layer.couple(halves, inverse=inverse)
            if log_det is not None:
                total = log_det if total is None else total + log_det
        assert total is not None  # there is at least one block
        return torch.cat(halves, dim=-1), total
