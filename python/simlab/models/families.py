"""Which family a model is of, and what that says of its tokens and positions.

An architecture that is not in `architectures.FAMILIES` works if it has a ``base_model`` with one
list of as many modules as its configuration has layers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from simlab.errors import UserError
from simlab.models.architectures import COUNT, FAMILIES, FINAL, FIRST, POOLER, Family

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedConfig, PreTrainedModel

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
    handle = layer.register_forward_hook(lambda *seen: answers.append(seen[-1]))
    try:
        with torch.no_grad():
            model.base_model(input_ids=torch.zeros(1, 2, dtype=torch.long, device=model.device))
    finally:
        handle.remove()
    return isinstance(answers[0], list | tuple)
