"""The states of layers: read them, replace them, and run any layer or the model's own head on them.

Layer 0 is the input of the first block. `HiddenStates` gives the states of all layers, with or
without the final norm that some models (GPT-2, ModernBERT, Llama) apply to the last one.
Architectures differ in the place of the layers and in the values that layers return
(`architectures`); the model's own code does everything else, so no head and no layer is rebuilt
here. `apply_head` makes every layer return the given states and runs the model, whose code after
the layers (final norm, pooler, dropout, classifier) then computes the logits. `LayerChain` runs the
model with stand-ins for the layers, which store the other arguments of each layer (masks, relative
positions, rotary embeddings).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, NoReturn

from simlab.errors import UserError, argument
from simlab.models.architectures import lookup, text_config
from simlab.models.recognise import architecture_of, blocks_of, first_call, without_cache

if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PreTrainedModel

    from simlab.models.architectures import Architecture

    Batch = Mapping[str, torch.Tensor]
    Pool = Callable[[torch.Tensor], Any]

_STATES = "hidden_states"  # the name of the states where a layer takes them by keyword


class HiddenStates:
    """The states of every layer of a model, batch by batch, the embedding output first.

    With `final_norm`, the last states are the output of the model, as in the ``hidden_states`` of
    transformers. Mamba and RWKV leave the embedding output out of those, so that every later entry
    is one layer off, and nothing in their output tells. So the entries of the first example are
    compared with the inputs of the blocks, bit by bit; where they differ, the states are the inputs
    of the blocks and the output of the model.

    Without `final_norm`, the last states are the output of the last layer, so that each of the
    states may take the place of another, or be the `hidden` of `apply_head`.
    """

    def __init__(self, model: PreTrainedModel, *, final_norm: bool = True) -> None:
        self.model = model
        self._read: Callable[[Batch, Pool], list[Any]] | None = None  # before the first batch
        if final_norm:
            self._blocks = blocks_of(model)
        else:
            self._architecture, self._read = architecture_of(model), self._without_norm
            self._blocks = self._architecture.layers(model)

    def __call__(self, batch: Batch, pool: Pool = lambda states: states) -> list[Any]:
        """Return ``pool(states)`` of every layer; the states are [b, t, p].

        For multiple choice, b counts all choices of all examples. Where blocks show them, states
        are pooled when a block is entered, and no other layer's are kept.
        """
        if self._read is None:
            # One example shows it, and takes less memory than all layers of a batch.
            self._read = self._examine({name: values[:1] for name, values in batch.items()})
        device = next(iter(batch.values())).device  # blocks of a model that is spread have others
        return self._read(batch, lambda states: pool(states.to(device)))

    def _returned(self, batch: Batch, pool: Pool) -> list[Any]:
        return [pool(one) for one in self.model(**batch, output_hidden_states=True).hidden_states]

    def _at_blocks(self, batch: Batch, pool: Pool) -> list[Any]:
        # A block may be given more positions than the text has (Longformer).
        width = next(iter(batch.values())).shape[-1]
        with _inputs_of(self._blocks, lambda states: pool(states[:, :width])) as pooled:
            output = self.model(**batch)
        return [*pooled, pool(output.last_hidden_state)]

    def _without_norm(self, batch: Batch, pool: Pool) -> list[Any]:
        architecture = self._architecture
        latest: list[torch.Tensor] = []

        def leave(_module: object, _arguments: object, answer: Any) -> None:
            latest[:] = [architecture.states_of(answer)]

        with ExitStack() as hooks:
            given = _inputs_of(self._blocks, lambda states: pool(architecture.turned(states)))
            pooled = hooks.enter_context(given)
            for module in (*self._blocks, *_between(architecture, self.model)):
                hooks.enter_context(module.register_forward_hook(leave))
            self.model(**batch)
        return [*pooled, pool(latest[0])]

    def _examine(self, batch: Batch) -> Callable[[Batch, Pool], list[Any]]:
        """Find out where the states of the layers are to be had."""
        import torch

        device = next(iter(batch.values())).device
        modules = self._blocks or _parts_of_lists(self.model)
        with _inputs_of(modules, lambda states: states.to(device)) as inputs:
            output = self.model(**batch, output_hidden_states=True)
        if self._blocks and not inputs:  # their parts are called, and not the blocks (SqueezeBERT)
            self._blocks = []
            return self._examine(batch)
        if (returned := getattr(output, "hidden_states", None)) is None:
            self._refuse("none")
        states = [one.to(device) for one in returned]
        last = getattr(output, "last_hidden_state", None)
        seen = inputs if last is None else [*inputs, last.to(device)]
        checked = len(self._blocks) or 1  # without blocks, the first module that ran
        if (
            len(inputs) >= checked
            and (not self._blocks or len(states) == checked + 1)
            and all(map(_is_input, states[:checked], inputs))
        ):
            alike = len(seen) == len(states) and all(map(torch.equal, seen, states))
            return self._at_blocks if alike else self._returned
        if len(seen) == checked + 1 and self._blocks and len({one.shape for one in seen}) == 1:
            return self._at_blocks
        self._refuse("others")

    def _refuse(self, found: str) -> NoReturn:
        raise UserError(
            f"model of type {self.model.config.model_type!r}: wanted hidden states that begin "
            f"with the input of the first block, found {found}; {argument('modules')} records any "
            "module"
        )


def layer_states(model: PreTrainedModel, batch: Batch) -> list[torch.Tensor]:
    """Return the `HiddenStates` of a batch without the final norm."""
    return HiddenStates(model, final_norm=False)(batch)


def first_states(model: PreTrainedModel, batch: Batch) -> list[torch.Tensor]:
    """Return the input and the output of the first layer [b, t, p]; no later layer runs."""
    architecture = architecture_of(model)
    states, answer = first_call(model, architecture.layers(model)[0], batch)
    return [architecture.turned(states), architecture.states_of(answer)]


def apply_head(
    model: PreTrainedModel, hidden: torch.Tensor, attention_mask: torch.Tensor
) -> torch.Tensor:
    """Return the logits [b, labels] of `model` with `hidden` as the output of its last layer.

    `hidden` is one of `layer_states`, [b, t, p], and `attention_mask` [b, t] is 0 at padding; for
    multiple choice they are [b, c, t, p] and [b, c, t], and the logits [b, c].
    """
    with _layers_answer(model, hidden):
        return model(**_stand_in(model, attention_mask)).logits


def encoder_output(
    model: PreTrainedModel, hidden: torch.Tensor, attention_mask: torch.Tensor
) -> Any:
    """Return what the encoder returns with `hidden` as the output of the last layer.

    The parameters are as for `apply_head`. ``last_hidden_state``, [b, t, p] (b counts all choices),
    is `hidden` itself, or `hidden` after the final norm if the model has one; ``pooler_output`` is
    there if the encoder has a pooler.
    """
    with _layers_answer(model, hidden):
        return model.base_model(**_stand_in(model, attention_mask.flatten(0, -2)))


@contextmanager
def replaced_states(model: PreTrainedModel, layer: int, change: Pool) -> Iterator[None]:
    """Make `model` continue from ``change(states)`` at layer `layer`, inside the block.

    `change` takes and returns states [b, t, p]: the input of layer `layer`, counted from 0, or the
    output of the last layer if `layer` is the number of layers.
    """
    architecture = architecture_of(model)
    modules, turned = architecture.layers(model), architecture.turned
    entered, left = count(), count()

    def enter(_module: object, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if next(entered) != layer:
            return None
        states, call = split_call(arguments, options)
        return call.with_states(turned(change(turned(states))))

    def leave(_module: object, _arguments: object, answer: Any) -> Any:
        if next(left) != len(modules) - 1:
            return None
        states = turned(change(architecture.states_of(answer)))
        return (states, *answer[1:]) if isinstance(answer, list | tuple) else states

    with ExitStack() as hooks:
        for module in dict.fromkeys(modules):  # layers that share weights are one module
            if layer < len(modules):
                hooks.enter_context(module.register_forward_pre_hook(enter, with_kwargs=True))
            else:
                hooks.enter_context(module.register_forward_hook(leave))
        yield


@dataclass(frozen=True)
class Call:
    """The arguments of a layer except the hidden states, which come first or by name."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    by_name: bool

    def with_states(self, states: torch.Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return all arguments, with `states` among them."""
        if self.by_name:
            return self.args, {_STATES: states, **self.kwargs}
        return (states, *self.args), self.kwargs


def split_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[torch.Tensor, Call]:
    """Return the hidden states among the arguments of a layer, and the other arguments."""
    if args:
        return args[0], Call(args[1:], kwargs, by_name=False)
    rest = {name: value for name, value in kwargs.items() if name != _STATES}
    return kwargs[_STATES], Call((), rest, by_name=True)


class LayerChain:
    """The layers of a model as a chain on one batch: layers and head run on any states.

    `model` has a head and is in evaluation mode. `batch` has its keyword arguments: tensors whose
    first dimension is the batch. The constructor runs the model's own forward once. A model that
    changes the hidden states between two layers is refused, because no layer of it can be left out.
    """

    def __init__(self, model: PreTrainedModel, batch: Batch, name: str = "model") -> None:
        import torch

        self.model, self.batch, self.name = model, batch, name
        self.architecture: Architecture = architecture_of(model)
        self.layers = self.architecture.layers(model)
        self._calls: dict[int, list[Call]] = {}  # of all layers, by the copies of the batch
        # Without the final norm, L + 1 tensors [b, t, p]; b counts all choices of all examples.
        self.states: list[torch.Tensor] = []
        own = {layer: layer.forward for layer in self.layers}

        def answer(number: int, states: torch.Tensor, call: Call) -> Any:
            entering = self.architecture.turned(states)
            if not self.states:
                self.states.append(entering)
            elif not torch.equal(entering, self.states[-1]):
                raise UserError(
                    f"model {name}: wanted layers that follow one another, found that the output "
                    f"of layer {number} is changed before layer {number + 1} reads it"
                )
            args, kwargs = call.with_states(states)
            output = own[self.layers[number]](*args, **kwargs)
            self.states.append(self.architecture.states_of(output))
            return output

        self.logits = self._forward(1, answer)  # of the whole model

    def run(self, layer: int, states: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Return the output of layer number `layer` for each of `states`, in a single call."""
        import torch

        entering = torch.cat(list(states)) if len(states) > 1 else states[0]
        call = self._calls_for(len(states))[layer]
        args, kwargs = call.with_states(self.architecture.turned(entering))
        output = self.layers[layer](*args, **kwargs)
        return self.architecture.states_of(output).chunk(len(states))

    def finish(self, states: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Return the model's logits with each of `states` as the output of its last layer."""
        import torch

        mask = self._copies(len(states))["attention_mask"]
        return apply_head(self.model, torch.cat(list(states)), mask).chunk(len(states))

    def _calls_for(self, copies: int) -> list[Call]:
        """Return the calls of all layers for a batch that is repeated `copies` times."""

        def echo(_: int, states: torch.Tensor, __: Call) -> Any:
            return self.architecture.answer_with(self.architecture.states_of(states))

        if copies not in self._calls:
            self._forward(copies, echo)
        return self._calls[copies]

    def _copies(self, count: int) -> dict[str, torch.Tensor]:
        return {
            name: value.repeat(count, *[1] * (value.dim() - 1))
            for name, value in self.batch.items()
        }

    def _forward(self, copies: int, answer: Callable[..., Any]) -> torch.Tensor:
        """Run the model with ``answer(l, states, call)`` in place of layer l; keep the calls."""
        calls: list[Call] = []

        def forward(*args: Any, **kwargs: Any) -> Any:
            states, call = split_call(args, kwargs)
            calls.append(call)
            return answer(len(calls) - 1, states, call)

        with _replaced(self.layers, forward), without_cache(self.model):
            logits = self.model(**self._copies(copies)).logits
        if len(calls) != len(self.layers):
            raise UserError(
                f"model {self.name}: wanted {len(self.layers)} layers that run once each, found "
                f"{len(calls)} calls"
            )
        self._calls[copies] = calls
        return logits


@contextmanager
def _replaced(modules: Iterable[nn.Module], forward: Callable[..., Any]) -> Iterator[None]:
    """Let `forward` run in place of every module inside the block."""
    # An instance attribute hides the method of the class until it is deleted. accelerate's hooks
    # are such attributes too, and come back.
    before = {module: vars(module).get("forward") for module in modules}
    for module in before:
        module.forward = forward
    try:
        yield
    finally:
        for module, own in before.items():
            del module.forward
            if own is not None:
                module.forward = own


@contextmanager
def _layers_answer(model: PreTrainedModel, hidden: torch.Tensor) -> Iterator[None]:
    """Make every layer return `hidden` inside the block, without running the layers."""
    architecture = architecture_of(model)
    states = hidden.flatten(0, -3)
    answer, between = architecture.answer_with(states), _between(architecture, model)
    with (
        _replaced(architecture.layers(model), lambda *_, **__: answer),
        _replaced(between, lambda *_, **__: states),
    ):
        yield


def _stand_in(model: PreTrainedModel, attention_mask: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return inputs of the right shape and padding; the model ignores their embeddings."""
    import torch

    padding = text_config(model.config).pad_token_id
    ids = torch.zeros_like(attention_mask)
    if padding is not None:
        ids = torch.where(attention_mask.bool(), 0 if padding else 1, padding)
    return {"input_ids": ids, "attention_mask": attention_mask}


def _between(architecture: Architecture, model: PreTrainedModel) -> list[nn.Module]:
    """Return the module that changes the output of the first layer, if there is one."""
    module = lookup(model.base_model, architecture.after_first)
    return [] if module is None else [module]


def _is_input(states: torch.Tensor, given: torch.Tensor) -> bool:
    """Return whether `states` is the input `given` of a block, bit by bit.

    A block may take its axes in another order (XLNet), or more positions than the text has
    (Longformer pads to a multiple of its window).
    """
    import torch

    orders = [given, *(given.transpose(*axes) for axes in ((0, 1), (1, 2)) if given.ndim == 3)]
    for one in orders:
        one = one[:, : states.shape[1]] if one.ndim == 3 else one
        if one.shape == states.shape and torch.equal(one.nan_to_num(), states.nan_to_num()):
            return True
    return False


@contextmanager
def _inputs_of(modules: Iterable[nn.Module], pool: Pool) -> Iterator[list[Any]]:
    """Collect ``pool(states)`` of what `modules` are given inside the block, call by call."""
    import torch

    inputs: list[Any] = []

    def enter(_module: object, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        values = [*arguments, *(options[n] for n in (_STATES, *options) if n in options)]
        states = next((one for one in values if isinstance(one, torch.Tensor)), None)
        if states is not None:
            inputs.append(pool(states))

    with ExitStack() as hooks:
        for module in dict.fromkeys(modules):  # layers that share weights are one module
            hooks.enter_context(module.register_forward_pre_hook(enter, with_kwargs=True))
        yield inputs


def _parts_of_lists(model: PreTrainedModel) -> list[nn.Module]:
    """Return all modules that are, or lie in, an element of a list of modules."""
    from torch import nn

    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    return [part for modules in lists for one in modules for part in one.modules()]
