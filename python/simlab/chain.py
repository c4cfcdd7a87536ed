"""A model as a chain of layers, each of which can be left out, repeated or fed by hand.

What an architecture gives its layers besides the hidden states (masks, relative positions, rotary
embeddings, in whatever layout), and what it does before and after them, is its own business: here
the model's own forward runs, and only the layers are exchanged for stand-ins while it does. So the
arguments of a layer are those that the model gives it for a batch of that very size, and what
comes after the last layer (norm, pooler, classifier) is the model's own code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simlab.errors import UserError

if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PreTrainedModel

# How layers call the hidden states where they do not come first.
_STATES = "hidden_states"

Batch = Mapping[str, Any]
StandIn = Callable[[int, "torch.Tensor", "Call"], Any]


@dataclass(frozen=True)
class Call:
    """One layer's arguments without the hidden states, which come first or by name."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    by_name: bool

    @classmethod
    def split(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[torch.Tensor, Call]:
        """Part what a layer was called with into the hidden states and the rest."""
        if args:
            return args[0], cls(args[1:], kwargs, by_name=False)
        rest = {name: value for name, value in kwargs.items() if name != _STATES}
        return kwargs[_STATES], cls((), rest, by_name=True)

    def __call__(self, function: Callable[..., Any], states: torch.Tensor) -> Any:
        """Call `function` with `states` and these arguments."""
        if self.by_name:
            return function(**{_STATES: states}, **self.kwargs)
        return function(states, *self.args, **self.kwargs)


class LayerChain:
    """The layers of a model, called one by one as the model itself calls them.

    Parameters
    ----------
    model
        A task model in evaluation mode.
    layers
        Its layers in the order of their calls; one that is called again stands there again.
    name
        What error messages call the model.
    """

    def __init__(
        self, model: PreTrainedModel, layers: Sequence[nn.Module], name: str = "model"
    ) -> None:
        self.model, self.layers, self.name = model, list(layers), name

    def __len__(self) -> int:
        return len(self.layers)

    def on(self, batch: Batch) -> BatchChain:
        """Run the model on `batch` and keep what enters and leaves every layer.

        Raises
        ------
        UserError
            The layers do not follow one another: something else happens to the hidden states
            between two of them, so that none can be left out.
        """
        import torch

        states: list[torch.Tensor] = []
        calls: list[Call] = []
        extras: list[int | None] = []
        forwards = {layer: layer.forward for layer in self.layers}

        def record(number: int, entering: torch.Tensor, call: Call) -> Any:
            if not states:
                states.append(entering)
            elif entering is not states[-1] and not torch.equal(entering, states[-1]):
                raise UserError(
                    f"model {self.name}: wanted layers that follow one another, found that the "
                    f"output of layer {number} is changed before it enters layer {number + 1}"
                )
            output = call(forwards[self.layers[number]], entering)
            states.append(_states_of(output))
            calls.append(call)
            extras.append(None if output is states[-1] else len(output) - 1)
            return output

        logits = self.forward(batch, record)
        if len(calls) != len(self):
            raise UserError(
                f"model {self.name}: wanted {len(self)} layers that run once each, found "
                f"{len(calls)} calls"
            )
        return BatchChain(self, batch, states, logits, calls, extras)

    def forward(self, batch: Batch, stand_in: StandIn) -> torch.Tensor:
        """Logits of the model's own forward, in which ``stand_in(l, states, call)`` is layer l."""
        with self._replaced(stand_in), _without_cache(self.model):
            return self.model(**batch).logits

    @contextmanager
    def _replaced(self, stand_in: StandIn) -> Iterator[None]:
        number = iter(range(len(self)))

        def forward(*args: Any, **kwargs: Any) -> Any:
            position = next(number, None)
            if position is None:
                raise UserError(
                    f"model {self.name}: wanted {len(self)} layers that run once each, found more "
                    "calls"
                )
            return stand_in(position, *Call.split(args, kwargs))

        # An instance attribute hides the method of the class until it is deleted.
        distinct = dict.fromkeys(self.layers)
        for layer in distinct:
            layer.forward = forward
        try:
            yield
        finally:
            for layer in distinct:
                del layer.forward


class BatchChain:
    """A chain on one batch: its hidden states, and its layers on further ones of the same batch.

    Attributes
    ----------
    states
        What enters layer 0, 1, ... and what leaves the last: L + 1 tensors.
    logits
        The model's own.
    """

    def __init__(
        self,
        chain: LayerChain,
        batch: Batch,
        states: list[torch.Tensor],
        logits: torch.Tensor,
        calls: list[Call],
        extras: list[int | None],
    ) -> None:
        self.chain, self.batch = chain, batch
        self.states, self.logits = states, logits
        self._extras = extras
        self._calls = {1: calls}
        self._batch_dim: int | None = None

    def run(self, layer: int, entering: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Hidden states after `layer`, of all `entering` ones in a single call of it."""
        import torch

        call = self._calls_for(len(entering))[layer]
        stacked = entering[0] if len(entering) == 1 else torch.cat(list(entering), self._batch_dim)
        output = call(self.chain.layers[layer], stacked)
        states = _states_of(output)
        return (states,) if len(entering) == 1 else states.chunk(len(entering), self._batch_dim)

    def finish(self, leaving: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Logits of the model if `leaving` were the outputs of its last layer, at one go."""
        import torch

        count, last = len(leaving), len(self.chain) - 1
        if count > 1:
            self._calls_for(count)  # knows the dimension of the batch afterwards
        stacked = leaving[0] if count == 1 else torch.cat(list(leaving), self._batch_dim)

        def stand_in(number: int, states: torch.Tensor, call: Call) -> Any:
            return self._as_output(number, stacked if number == last else states)

        return self.chain.forward(self._copies(count), stand_in).chunk(count)

    def _calls_for(self, count: int) -> list[Call]:
        """What the model gives its layers when the batch stands in it `count` times."""
        if count not in self._calls:
            calls: list[Call] = []

            def stand_in(number: int, states: torch.Tensor, call: Call) -> Any:
                calls.append(call)
                if self._batch_dim is None:  # the one dimension that grew with the batch
                    sizes = zip(states.shape, self.states[0].shape, strict=True)
                    self._batch_dim = next(d for d, (now, before) in enumerate(sizes) if now > before)
                return self._as_output(number, states)

            self.chain.forward(self._copies(count), stand_in)
            self._calls[count] = calls
        return self._calls[count]

    def _copies(self, count: int) -> Batch:
        return {
            name: value.repeat(count, *[1] * (value.dim() - 1)) for name, value in self.batch.items()
        }

    def _as_output(self, number: int, states: torch.Tensor) -> Any:
        """`states` as layer `number` returns them; nobody reads the attention beside them."""
        extra = self._extras[number]
        return states if extra is None else (states, *[None] * extra)


def _states_of(output: Any) -> torch.Tensor:
    """The hidden states that a layer returned, alone or first of a tuple or list."""
    return output[0] if isinstance(output, tuple | list) else output


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


def layer_chain(model: PreTrainedModel, name: str = "model") -> LayerChain:
    """Interim: until the families are here."""
    from torch import nn

    base = model.base_model
    if model.config.model_type == "albert":
        (layer,) = base.encoder.albert_layer_groups[0].albert_layers
        return LayerChain(model, [layer] * model.config.num_hidden_layers, name)
    lists = [m for m in base.modules() if isinstance(m, nn.ModuleList)]
    return LayerChain(model, max(lists, key=len), name)
