"""Encoder families: what an experiment must know of an architecture, stated once for each.

Where the layers are, which token the head reads, what the head consists of and how attention
weights are obtained differ between architectures; everything else is asked of the model's own
code. So a head is never rebuilt here: `apply_head` lets every layer answer with the given states
and runs the model, whose code after the layers (final norm, pooler, dropout, classifier) does the
rest.

An architecture that is not in `FAMILIES` works if it has a ``base_model`` with one list of as many
modules as its configuration has layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from simlab.errors import UserError
from simlab.models.architectures import COUNT, FAMILIES, FINAL, FIRST, LAST, POOLER, Family, lookup

if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PreTrainedConfig, PreTrainedModel

__all__ = [
    "FAMILIES",
    "FINAL",
    "FIRST",
    "LAST",
    "Family",
    "apply_head",
    "classifier_token",
    "encoder_output",
    "family_of",
    "layer_states",
    "padding_side",
    "position_limit",
    "random_twin",
]

_BY_TYPE = {model_type: family for family in FAMILIES for model_type in family.model_types}
# Of an architecture that nobody stated, what its head may be called.
_USUAL_HEAD = (POOLER, "pooler", "pre_classifier", "dropout", "head", "classifier", "score")


def family_of(model_or_config: PreTrainedModel | PreTrainedConfig) -> Family:
    """The family of a model, or of a configuration whose architecture is stated.

    Raises
    ------
    UserError
        An unknown architecture: of a model without exactly one list of as many modules as it has
        layers, or of a configuration, which has no modules to look at.
    """
    config = getattr(model_or_config, "config", model_or_config)
    known = _BY_TYPE.get(config.model_type)
    if known is not None:
        return known
    if config is model_or_config:
        raise UserError(
            f"architecture {config.model_type!r}: wanted one of {', '.join(sorted(_BY_TYPE))}"
        )
    return _look_at(model_or_config)


def classifier_token(config: PreTrainedConfig) -> str:
    """Which token the head reads; of an architecture that nobody stated, the first."""
    known = _BY_TYPE.get(config.model_type)
    return known.token if known else FIRST


def padding_side(config: PreTrainedConfig) -> str:
    """Where the tokenizer must pad for the head to read the right token: left or right."""
    return "left" if classifier_token(config) == FINAL else "right"


def position_limit(config: PreTrainedConfig) -> int | None:
    """The most tokens that the model has positions for, None if it does not say or any number."""
    positions = getattr(config, "max_position_embeddings", None)
    if positions is None or positions <= 0:  # XLNet
        return None
    known = _BY_TYPE.get(config.model_type)
    return positions - (config.pad_token_id + 1 if known and known.positions_after_padding else 0)


def random_twin(auto_class: Any, config: PreTrainedConfig, seed: int, **how: Any) -> Any:
    """A model of `auto_class` whose weights its own architecture's rule draws with `seed`."""
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return auto_class.from_config(config, **how)


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


def _look_at(model: PreTrainedModel) -> Family:
    """Find the layers of an architecture that nobody stated, and how they answer."""
    from torch import nn

    config, base = model.config, model.base_model
    count = getattr(config, COUNT, None)
    lists = {path: m for path, m in base.named_modules() if isinstance(m, nn.ModuleList)}
    fitting = [path for path, modules in lists.items() if len(modules) == count]
    if len(fitting) != 1:
        found = ", ".join(f"{path} ({len(modules)})" for path, modules in lists.items()) or "none"
        raise UserError(
            f"architecture {config.model_type!r}: wanted one of {', '.join(sorted(_BY_TYPE))}, or "
            f"a base_model with one list of {COUNT} = {count} modules, found {found}"
        )
    family = Family(config.model_type, (config.model_type,), fitting[0], _USUAL_HEAD)
    return replace(family, returns_tuple=_answers_in_tuples(model, family.layers(model)[0]))


def _answers_in_tuples(model: PreTrainedModel, layer: nn.Module) -> bool:
    """Run `model` on two tokens and see what `layer` gives."""
    import torch

    answers: list[Any] = []
    with _removed_afterwards() as handles, torch.no_grad():
        handles.append(layer.register_forward_hook(lambda *seen: answers.append(seen[-1])))
        model.base_model(input_ids=torch.zeros(1, 2, dtype=torch.long, device=model.device))
    return isinstance(answers[0], list | tuple)
