"""Read the hidden states of a model, replace them, and run the model's own head on any states.

Architectures differ in the place of the layers and in the values that layers return
(`architectures`); the model's own code does everything else. So no head is rebuilt here:
`apply_head` makes every layer return the given states and runs the model, whose code after the
layers (final norm, pooler, dropout, classifier) then computes the logits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from simlab.models.architectures import lookup, text_config
from simlab.models.recognise import architecture_of

if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PreTrainedModel

    from simlab.models.architectures import Architecture


def layer_states(model: PreTrainedModel, batch: Mapping[str, Any]) -> list[torch.Tensor]:
    """Run `model`, and return the input of every layer and the output of the last layer.

    They are [b, t, p] each, the embedding output first; for multiple choice, b counts all choices
    of all examples. Unlike in the ``hidden_states`` of transformers, no final norm (GPT-2,
    ModernBERT) is applied to the last tensor, so each of them may take the place of another, or be
    the `hidden` of `apply_head`.
    """
    architecture = architecture_of(model)
    states: list[torch.Tensor] = []
    latest: list[torch.Tensor] = []
    device = next(iter(batch.values())).device  # a model that is spread has several

    def enter(_module: object, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        given = (arguments[0] if arguments else options["hidden_states"]).to(device)
        states.append(given.transpose(0, 1) if architecture.time_first else given)

    def leave(_module: object, _arguments: object, answer: Any) -> None:
        latest[:] = [architecture.states_of(answer).to(device)]

    with ExitStack() as hooks:
        for layer in dict.fromkeys(architecture.layers(model)):
            hooks.enter_context(layer.register_forward_pre_hook(enter, with_kwargs=True))
            hooks.enter_context(layer.register_forward_hook(leave))
        if (between := between_blocks(architecture, model)) is not None:
            hooks.enter_context(between.register_forward_hook(leave))
        model(**batch)
    return [*states, *latest]


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
def replaced_states(
    model: PreTrainedModel, layer: int, change: Callable[[torch.Tensor], torch.Tensor]
) -> Iterator[None]:
    """Make `model` continue from ``change(states)`` at layer `layer`, inside the block.

    `change` takes and returns states [b, t, p]: the input of layer `layer`, counted from 0, or the
    output of the last layer if `layer` is the number of layers.
    """
    architecture = architecture_of(model)
    modules = architecture.layers(model)
    entered, left = count(), count()

    def turned(states: torch.Tensor) -> torch.Tensor:
        return states.transpose(0, 1) if architecture.time_first else states

    def enter(_module: object, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if next(entered) != layer:
            return None
        if arguments:
            return (turned(change(turned(arguments[0]))), *arguments[1:]), options
        return (), {**options, "hidden_states": turned(change(turned(options["hidden_states"])))}

    def leave(_module: object, _arguments: object, answer: Any) -> Any:
        if next(left) != len(modules) - 1:
            return None
        states = change(architecture.states_of(answer))
        several = isinstance(answer, list | tuple)
        return (turned(states), *answer[1:]) if several else turned(states)

    with ExitStack() as hooks:
        for module in dict.fromkeys(modules):  # layers that share weights are one module
            if layer < len(modules):
                hooks.enter_context(module.register_forward_pre_hook(enter, with_kwargs=True))
            else:
                hooks.enter_context(module.register_forward_hook(leave))
        yield


@contextmanager
def _layers_answer(model: PreTrainedModel, hidden: torch.Tensor) -> Iterator[None]:
    """Make every layer return `hidden` inside the block, without running the layers."""
    architecture = architecture_of(model)
    states = hidden.flatten(0, -3)
    answer = architecture.answer_with(states)
    layers = list(dict.fromkeys(architecture.layers(model)))
    between = between_blocks(architecture, model)
    replaced = dict.fromkeys(layers, answer) | ({between: states} if between else {})
    # An instance attribute hides the method of the class until it is deleted.
    for module, given in replaced.items():
        module.forward = lambda *_, _given=given, **__: _given
    try:
        yield
    finally:
        for module in replaced:
            del module.forward


def _stand_in(model: PreTrainedModel, attention_mask: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return inputs of the right shape and padding; the model ignores their embeddings."""
    import torch

    padding = text_config(model.config).pad_token_id
    if padding is None:
        return {"input_ids": torch.zeros_like(attention_mask), "attention_mask": attention_mask}
    ids = torch.where(attention_mask.bool(), 0 if padding else 1, padding)
    return {"input_ids": ids, "attention_mask": attention_mask}


def between_blocks(architecture: Architecture, model: PreTrainedModel) -> nn.Module | None:
    """Return the module that changes the output of the first layer, if there is one."""
    return lookup(model.base_model, architecture.after_first) if architecture.after_first else None
