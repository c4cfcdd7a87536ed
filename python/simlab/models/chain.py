"""A model's layers as a chain: run single layers on any hidden states of a batch.

Besides the hidden states, a layer takes arguments that differ between architectures (masks,
relative positions, rotary embeddings). `LayerChain` records these arguments: it runs the model's
own forward with stand-ins for the layers, which store their arguments. So no code of a model is
rebuilt here, and recording costs no more than the embeddings. If a layer shall run on n copies of a
batch at once, the recording runs on n copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simlab.errors import UserError
from simlab.models.recognise import architecture_of, without_cache
from simlab.models.states import apply_head

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from simlab.models.architectures import Architecture

# Name of the hidden states where a layer takes them by keyword.
_STATES = "hidden_states"


@dataclass(frozen=True)
class Call:
    """The arguments of a layer except the hidden states, which come first or by name."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    by_name: bool

    def __call__(self, layer: Callable[..., Any], states: torch.Tensor) -> Any:
        """Call `layer` with these arguments and `states`."""
        if self.by_name:
            return layer(**{_STATES: states}, **self.kwargs)
        return layer(states, *self.args, **self.kwargs)


def split_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[torch.Tensor, Call]:
    """Return the hidden states among the arguments of a layer, and the other arguments."""
    if args:
        return args[0], Call(args[1:], kwargs, by_name=False)
    rest = {name: value for name, value in kwargs.items() if name != _STATES}
    return kwargs[_STATES], Call((), rest, by_name=True)


class LayerCalls:
    """The arguments of the layers of a model on one batch: layers and head run on any states.

    `model` has a head and is in evaluation mode. `batch` has its keyword arguments: tensors whose
    first dimension is the batch.
    """

    def __init__(
        self, model: PreTrainedModel, batch: Mapping[str, torch.Tensor], name: str = "model"
    ) -> None:
        self.model, self.batch, self.name = model, batch, name
        self.architecture: Architecture = architecture_of(model)
        self.layers = self.architecture.layers(model)
        self._calls: dict[int, list[Call]] = {}

    def run(self, layer: int, states: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Return the output of layer number `layer` for each of `states`, in a single call."""
        import torch

        call = self._calls_for(len(states))[layer]
        entering = torch.cat(list(states)) if len(states) > 1 else states[0]
        if self.architecture.time_first:
            entering = entering.transpose(0, 1)
        return self.architecture.states_of(call(self.layers[layer], entering)).chunk(len(states))

    def finish(self, states: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Return the model's logits with each of `states` as the output of its last layer."""
        import torch

        mask = self._copies(len(states))["attention_mask"]
        return apply_head(self.model, torch.cat(list(states)), mask).chunk(len(states))

    def _calls_for(self, copies: int) -> list[Call]:
        """Return the calls of all layers for a batch that is repeated `copies` times."""
        if copies not in self._calls:
            self._forward(copies, lambda _, states, __: self._echo(states))
        return self._calls[copies]

    def _echo(self, states: torch.Tensor) -> Any:
        return self.architecture.answer_with(self.architecture.states_of(states))

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

        with replaced(self.layers, forward), without_cache(self.model):
            logits = self.model(**self._copies(copies)).logits
        if len(calls) != len(self.layers):
            raise UserError(
                f"model {self.name}: wanted {len(self.layers)} layers that run once each, found "
                f"{len(calls)} calls"
            )
        self._calls[copies] = calls
        return logits


class LayerChain(LayerCalls):
    """The layers of a model, ready to run on one batch.

    The constructor runs the model's own forward once. A model that changes the hidden states
    between two layers is refused, because no layer of it can be left out.
    """

    def __init__(
        self, model: PreTrainedModel, batch: Mapping[str, torch.Tensor], name: str = "model"
    ) -> None:
        super().__init__(model, batch, name)
        # The inputs of layers 0, 1, ... and the output of the last layer: L + 1 tensors [b, t, p].
        # For multiple choice, b counts all choices of all examples.
        self.states: list[torch.Tensor] = []
        own = {layer: layer.forward for layer in self.layers}

        def answer(number: int, states: torch.Tensor, call: Call) -> Any:
            self._append(states, number)
            output = call(own[self.layers[number]], states)
            self.states.append(self.architecture.states_of(output))
            return output

        self.logits = self._forward(1, answer)  # of the whole model

    def _append(self, entering: torch.Tensor, number: int) -> None:
        """Store the input of layer `number`; it must equal the output of the layer before."""
        import torch

        if self.architecture.time_first:
            entering = entering.transpose(0, 1)
        if not self.states:
            self.states.append(entering)
        elif not torch.equal(entering, self.states[-1]):
            raise changed_between(self.name, number)


def changed_between(name: str, number: int) -> UserError:
    """Return the error for a model that changes the output of layer `number`, counted from 1."""
    return UserError(
        f"model {name}: wanted layers that follow one another, found that the output of layer "
        f"{number} is changed before layer {number + 1} reads it"
    )


@contextmanager
def replaced(layers: Sequence[Any], forward: Callable[..., Any]) -> Iterator[None]:
    """Let `forward` run in place of every layer inside the block."""
    # An instance attribute hides the method of the class until it is deleted.
    for layer in layers:
        layer.forward = forward
    try:
        yield
    finally:
        for layer in dict.fromkeys(layers):
            del layer.forward
