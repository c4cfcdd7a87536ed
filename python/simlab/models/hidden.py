"""The hidden states of every layer, of which layer 0 is the input of the first block.

Models of transformers return ``hidden_states``. In most of them, entry k is the input of block
k + 1, and the last entry is the output of the model. Mamba and RWKV leave the embedding output
out: their entry 0 is the output of block 1, so that every later entry is one layer off. Nothing in
their output tells, so that `HiddenStates` compares the entries of the first example with the inputs
of the blocks, bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

from simlab.errors import UserError, argument
from simlab.models.recognise import blocks_of

if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PreTrainedModel

    Batch = Mapping[str, torch.Tensor]

T = TypeVar("T")


class HiddenStates:
    """The hidden states of a model, batch by batch.

    They are the ``hidden_states`` of the model if those begin with the input of the first block;
    else, the inputs of all blocks and the output of the model.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self._blocks = blocks_of(model)
        self._as_returned: bool | None = None  # unknown before the first batch
        self._at_blocks = False

    @overload
    def __call__(self, batch: Batch) -> Sequence[torch.Tensor]: ...

    @overload
    def __call__(self, batch: Batch, pool: Callable[[torch.Tensor], T]) -> Sequence[T]: ...

    def __call__(self, batch: Batch, pool: Callable[..., Any] | None = None) -> Sequence[Any]:
        """Return the states of every layer, [b, t, p] each, the embedding output first.

        With `pool`, return ``pool(states)`` for each layer in place of the states. Where blocks
        show them, states are pooled when a block is entered, and no other layer's are kept.
        """
        if self._as_returned is None:
            # One example shows it, and takes less memory than all layers of a batch.
            self._examine({name: values[:1] for name, values in batch.items()})
        if pool is None:
            return self._all(batch)
        if not self._at_blocks:
            return [pool(states) for states in self._all(batch)]
        # A block may be given more positions than the text has (Longformer).
        width = next(iter(batch.values())).shape[1]
        device = _device_of(batch)
        with _inputs_of(self._blocks, lambda s: pool(s[:, :width].to(device))) as pooled:
            output = self.model(**batch)
        return [*pooled, pool(output.last_hidden_state.to(device))]

    def _all(self, batch: Batch) -> Sequence[torch.Tensor]:
        device = _device_of(batch)
        if self._as_returned:
            states = self.model(**batch, output_hidden_states=True).hidden_states
            return [one.to(device) for one in states]
        with _inputs_of(self._blocks, lambda states: states.to(device)) as inputs:
            output = self.model(**batch, output_hidden_states=True)
        return self._from_inputs([one.to(device) for one in output.hidden_states], inputs)

    def _examine(self, batch: Batch) -> None:
        """Find out which states the layers give, and whether the blocks show them all."""
        import torch

        device, modules = _device_of(batch), self._blocks or _parts_of_lists(self.model)
        with _inputs_of(modules, lambda states: states.to(device)) as inputs:
            output = self.model(**batch, output_hidden_states=True)
        states = getattr(output, "hidden_states", None)
        if states is None:
            self._refuse("none")
        states = [one.to(device) for one in states]
        if self._blocks and not inputs:  # their parts are called, and not the blocks (SqueezeBERT)
            self._blocks = []
            self._examine(batch)
            return
        self._as_returned = self._begins_with_embeddings(states, inputs)
        if not self._as_returned:
            states = self._from_inputs(states, inputs)
        seen = [*inputs, getattr(self.model(**batch), "last_hidden_state", None)]
        self._at_blocks = len(seen) == len(states) and all(
            one is not None and one.shape == layer.shape and torch.equal(one, layer)
            for one, layer in zip(seen, states, strict=True)
        )

    def _begins_with_embeddings(
        self, states: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]
    ) -> bool:
        """Return whether entry k of the states is the input of block k + 1.

        Where no list of blocks is known, the module of a list that ran first is the first block.
        """
        checked = len(self._blocks) if self._blocks else 1
        return (
            len(inputs) >= checked
            and (not self._blocks or len(states) == checked + 1)
            and all(map(_is_input, states[:checked], inputs))
        )

    def _from_inputs(
        self, states: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        shapes = {tuple(one.shape) for one in (*inputs, states[-1])}
        if not self._blocks or len(inputs) != len(self._blocks) or len(shapes) != 1:
            self._refuse("others")
        return [*inputs, states[-1]]

    def _refuse(self, found: str) -> NoReturn:
        raise UserError(
            f"model of type {self.model.config.model_type!r}: wanted hidden states that begin "
            f"with the input of the first block, found {found}; {argument('modules')} records any "
            "module"
        )


def _is_input(states: torch.Tensor, given: torch.Tensor) -> bool:
    """Return whether `states` is the input `given` of a block, bit by bit.

    A block may take its axes in another order (XLNet), or more positions than the text has
    (Longformer pads to a multiple of its window).
    """
    import torch

    orders = [given, *(given.transpose(*axes) for axes in ((0, 1), (1, 2)) if given.ndim == 3)]
    for one in orders:
        if one.ndim == 3 and one.shape[1] > states.shape[1]:
            one = one[:, : states.shape[1]]
        if one.shape == states.shape and torch.equal(one.nan_to_num(), states.nan_to_num()):
            return True
    return False


def _device_of(batch: Batch) -> torch.device:
    """Return the device of a batch; blocks of a model that is spread have devices of their own."""
    return next(iter(batch.values())).device


@contextmanager
def _inputs_of(
    modules: Sequence[nn.Module], pool: Callable[..., Any] | None = None
) -> Iterator[list[Any]]:
    """Collect the states that `modules` are given inside the block, in the order of the calls.

    With `pool`, collect ``pool(states)``.
    """
    import torch

    inputs: list[Any] = []

    def enter(_module: object, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        values = [*arguments, *(options[n] for n in ("hidden_states", *options) if n in options)]
        states = next((one for one in values if isinstance(one, torch.Tensor)), None)
        if states is not None:
            inputs.append(states if pool is None else pool(states))

    with ExitStack() as hooks:
        for module in dict.fromkeys(modules):  # layers that share weights are one module
            hooks.enter_context(module.register_forward_pre_hook(enter, with_kwargs=True))
        yield inputs


def _parts_of_lists(model: PreTrainedModel) -> list[nn.Module]:
    """Return all modules that are, or lie in, an element of a list of modules."""
    from torch import nn

    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    return [part for modules in lists for one in modules for part in one.modules()]
