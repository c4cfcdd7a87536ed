"""A model's layers as a chain: run one by one, on any hidden states of a batch.

What an architecture gives its layers besides the hidden states (masks, relative positions, rotary
embeddings, in whatever layout) is its own business: the model's own forward runs on as many copies
of the batch as a layer is to take at once, with stand-ins for its layers that keep what they are
given. That costs the embeddings and nothing is rebuilt here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simlab.errors import UserError
from simlab.models.families import family_of
from simlab.models.states import apply_head

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from simlab.models.architectures import Family

# How layers call the hidden states where they do not come first.
_STATES = "hidden_states"


@dataclass(frozen=True)
class _Call:
    """A layer's arguments without the hidden states, which come first or by name."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    by_name: bool

    def __call__(self, layer: Callable[..., Any], states: torch.Tensor) -> Any:
        if self.by_name:
            return layer(**{_STATES: states}, **self.kwargs)
        return layer(states, *self.args, **self.kwargs)


def _split(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[torch.Tensor, _Call]:
    if args:
        return args[0], _Call(args[1:], kwargs, by_name=False)
    rest = {name: value for name, value in kwargs.items() if name != _STATES}
    return kwargs[_STATES], _Call((), rest, by_name=True)


class LayerChain:
    """The layers of `model` on one batch.

    Making one runs the model's own forward once.

    Parameters
    ----------
    model
        A model with a head, in evaluation mode.
    batch
        Its keyword arguments: tensors whose first dimension is the batch.
    name
        What error messages call the model.

    Attributes
    ----------
    states
        What enters layer 0, 1, ... and what the last one gives: L + 1 tensors [b, t, p]; of
        multiple choice, b counts all choices of all examples.
    logits
        The model's own.

    Raises
    ------
    UserError
        Something happens to the hidden states between two layers, so that none can be left out.
    """

    def __init__(
        self, model: PreTrainedModel, batch: Mapping[str, torch.Tensor], name: str = "model"
    ) -> None:
        self.model, self.batch, self.name = model, batch, name
        self.family: Family = family_of(model)
        self.layers = self.family.layers(model)
        self.states: list[torch.Tensor] = []
        self._calls: dict[int, list[_Call]] = {}
        own = {layer: layer.forward for layer in self.layers}

        def answer(number: int, states: torch.Tensor, call: _Call) -> Any:
            self._append(states, number)
            found = call(own[self.layers[number]], states)
            self.states.append(self.family.states_of(found))
            return found

        self.logits = self._forward(1, answer)

    def run(self, layer: int, states: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """What `layer` makes of each of `states`, all of them in a single call of it."""
        import torch

        call = self._calls_for(len(states))[layer]
        entering = torch.cat(list(states)) if len(states) > 1 else states[0]
        if self.family.time_first:
            entering = entering.transpose(0, 1)
        return self.family.states_of(call(self.layers[layer], entering)).chunk(len(states))

    def finish(self, states: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Logits of the model if each of `states` were what its last layer gives."""
        import torch

        mask = self._copies(len(states))["attention_mask"]
        return apply_head(self.model, torch.cat(list(states)), mask).chunk(len(states))

    def _append(self, entering: torch.Tensor, number: int) -> None:
        """Note what enters layer `number`, which must be what the one before it gave."""
        import torch

        if self.family.time_first:
            entering = entering.transpose(0, 1)
        if not self.states:
            self.states.append(entering)
        elif not torch.equal(entering, self.states[-1]):
            raise UserError(
                f"model {self.name}: wanted layers that follow one another, found that what layer "
                f"{number} gives is changed before layer {number + 1} takes it"
            )

    def _calls_for(self, copies: int) -> list[_Call]:
        """How the model calls its layers when the batch stands in it `copies` times."""
        if copies not in self._calls:
            self._forward(copies, lambda _, states, __: self._echo(states))
        return self._calls[copies]

    def _echo(self, states: torch.Tensor) -> Any:
        return self.family.answer_with(self.family.states_of(states))

    def _copies(self, count: int) -> dict[str, torch.Tensor]:
        return {
            name: value.repeat(count, *[1] * (value.dim() - 1))
            for name, value in self.batch.items()
        }

    def _forward(self, copies: int, answer: Callable[..., Any]) -> torch.Tensor:
        """Run the model; layer l answers ``answer(l, states, call)``, and its call is kept."""
        calls: list[_Call] = []

        def forward(*args: Any, **kwargs: Any) -> Any:
            states, call = _split(args, kwargs)
            calls.append(call)
            return answer(len(calls) - 1, states, call)

        with _replaced(self.layers, forward), _without_cache(self.model):
            logits = self.model(**self._copies(copies)).logits
        if len(calls) != len(self.layers):
            raise UserError(
                f"model {self.name}: wanted {len(self.layers)} layers that run once each, found "
                f"{len(calls)} calls"
            )
        self._calls[copies] = calls
        return logits


@contextmanager
def _replaced(layers: Sequence[Any], forward: Callable[..., Any]) -> Iterator[None]:
    # An instance attribute hides the method of the class until it is deleted.
    for layer in layers:
        layer.forward = forward
    try:
        yield
    finally:
        for layer in dict.fromkeys(layers):
            del layer.forward


@contextmanager
def _without_cache(model: PreTrainedModel) -> Iterator[None]:
    """Decoders append the keys of every call to a cache; here a layer runs more than once."""
    before = getattr(model.config, "use_cache", None)
    if before is not None:
        model.config.use_cache = False
    try:
        yield
    finally:
        if before is not None:
            model.config.use_cache = before
