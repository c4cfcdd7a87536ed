"""The hidden states of a model, others in their place, and its own head on any of them.

Where the layers are and how they answer differs between architectures (`architectures`);
everything else is asked of the model's own code. So a head is never rebuilt here: `apply_head`
lets every layer answer with the given states and runs the model, whose code after the layers
(final norm, pooler, dropout, classifier) does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from simlab.models.architectures import lookup
from simlab.models.families import family_of

if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PreTrainedModel

    from simlab.models.architectures import Family


def layer_states(model: PreTrainedModel, batch: Mapping[str, Any]) -> list[torch.Tensor]:
    """Run `model` and return what enters every layer, and last what the last one gives.

    Returns
    -------
    list of Tensor
        [b, t, p] each, embedding output first, one more than layers. Unlike the library's
        ``hidden_states`` the last is not yet normed where a norm follows the layers (GPT-2,
        ModernBERT), so that any of them can stand for any other, and for `apply_head`'s.
        Of multiple choice, b counts all choices of all examples.
    """
    family = family_of(model)
    states: list[torch.Tensor] = []
    latest: list[torch.Tensor] = []

    def enter(_module, arguments, options):
        given = arguments[0] if arguments else options["hidden_states"]
        states.append(given.transpose(0, 1) if family.time_first else given)

    def leave(_module, _arguments, answer):
        latest[:] = [family.states_of(answer)]

    with _removed_afterwards() as handles:
        for layer in dict.fromkeys(family.layers(model)):
            handles.append(layer.register_forward_pre_hook(enter, with_kwargs=True))
            handles.append(layer.register_forward_hook(leave))
        if (between := _between(family, model)) is not None:
            handles.append(between.register_forward_hook(leave))
        model(**batch)
    return [*states, *latest]


def apply_head(
    model: PreTrainedModel, hidden: torch.Tensor, attention_mask: torch.Tensor
) -> torch.Tensor:
    """Logits of `model` if its last layer had given `hidden`: the model's own code after it.

    Parameters
    ----------
    hidden
        [b, t, p], one of `layer_states`; of multiple choice [b, c, t, p].
    attention_mask
        [b, t], 0 at padding; of multiple choice [b, c, t].

    Returns
    -------
    Tensor
        [b, labels]; of multiple choice [b, c].
    """
    with _layers_answer(model, hidden):
        return model(**_stand_in(model, attention_mask)).logits


def encoder_output(
    model: PreTrainedModel, hidden: torch.Tensor, attention_mask: torch.Tensor
) -> torch.Tensor:
    """What the head is given if the last layer had given `hidden`.

    The parameters are those of `apply_head`. The result, [b, t, p] (b counts all choices), is
    `hidden` itself, or `hidden` normed where a norm follows the layers.
    """
    with _layers_answer(model, hidden):
        inputs = _stand_in(model, attention_mask.flatten(0, -2))
        return model.base_model(**inputs).last_hidden_state


@contextmanager
def replaced_states(
    model: PreTrainedModel, layer: int, change: Callable[[torch.Tensor], torch.Tensor]
) -> Iterator[None]:
    """Inside the block `model` goes on from ``change(states)`` at `layer`.

    `change` gets and gives the states [b, t, p] that enter layer `layer` (counted from 0), or that
    the last one gave if `layer` is the number of layers.
    """
    family = family_of(model)
    modules = family.layers(model)
    entered, left = count(), count()

    def turned(states: torch.Tensor) -> torch.Tensor:
        return states.transpose(0, 1) if family.time_first else states

    def enter(_module, arguments, options):
        if next(entered) != layer:
            return None
        if arguments:
            return (turned(change(turned(arguments[0]))), *arguments[1:]), options
        return (), {**options, "hidden_states": turned(change(turned(options["hidden_states"])))}

    def leave(_module, _arguments, answer):
        if next(left) != len(modules) - 1:
            return None
        states = change(family.states_of(answer))
        return (turned(states), *answer[1:]) if isinstance(answer, tuple) else turned(states)

    with _removed_afterwards() as handles:
        for module in dict.fromkeys(modules):  # layers that share weights are one, called often
            if layer < len(modules):
                handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
            else:
                handles.append(module.register_forward_hook(leave))
        yield


@contextmanager
def _layers_answer(model: PreTrainedModel, hidden: torch.Tensor) -> Iterator[None]:
    """Every layer answers with `hidden` inside the block, and is not run."""
    family = family_of(model)
    states = hidden.flatten(0, -3)
    answer = family.answer_with(states)
    layers = list(dict.fromkeys(family.layers(model)))
    between = _between(family, model)
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
    """Inputs of the right shape: their embeddings are not used, but where padding is may be."""
    import torch

    padding = model.config.pad_token_id
    if padding is None:
        return {"input_ids": torch.zeros_like(attention_mask), "attention_mask": attention_mask}
    ids = torch.where(attention_mask.bool(), 0 if padding else 1, padding)
    return {"input_ids": ids, "attention_mask": attention_mask}


def _between(family: Family, model: PreTrainedModel) -> nn.Module | None:
    return lookup(model.base_model, family.after_first) if family.after_first else None


@contextmanager
def _removed_afterwards() -> Iterator[list[Any]]:
    handles: list[Any] = []
    try:
        yield handles
    finally:
        for handle in handles:
            handle.remove()
