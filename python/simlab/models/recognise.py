"""Recognise the architecture of a model, and tell its classifier token, padding and positions.

A model whose architecture is not in `KNOWN_ARCHITECTURES` works if its ``base_model`` has exactly
one list with as many modules as its configuration has layers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from simlab.errors import UserError
from simlab.models.architectures import (
    COUNT,
    FINAL,
    FIRST,
    KNOWN_ARCHITECTURES,
    POOLER,
    Architecture,
)

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedConfig, PreTrainedModel

_BY_TYPE = {
    model_type: architecture
    for architecture in KNOWN_ARCHITECTURES
    for model_type in architecture.model_types
}
# Usual names of head modules, for an unknown architecture.
_USUAL_HEAD = (POOLER, "pooler", "pre_classifier", "dropout", "head", "classifier", "score")


def architecture_of(model_or_config: PreTrainedModel | PreTrainedConfig) -> Architecture:
    """Return the architecture of a model, or of a configuration of a known architecture.

    Raises
    ------
    UserError
        The architecture is unknown, and the argument is a configuration (without modules) or a
        model that does not have exactly one list with as many modules as layers.
    """
    config: Any = getattr(model_or_config, "config", model_or_config)
    known = _BY_TYPE.get(config.model_type)
    if known is not None:
        return known
    if config is model_or_config:
        raise UserError(
            f"architecture {config.model_type!r}: wanted one of {', '.join(sorted(_BY_TYPE))}"
        )
    return _inspect(cast("PreTrainedModel", model_or_config))


def classifier_token(config: PreTrainedConfig) -> str:
    """Return which token the head reads; for an unknown architecture, the first token."""
    known = _BY_TYPE.get(config.model_type)
    return known.token if known else FIRST


def padding_side(config: PreTrainedConfig) -> str:
    """Return the side, left or right, to pad on so that the head reads its classifier token."""
    return "left" if classifier_token(config) == FINAL else "right"


def position_limit(config: PreTrainedConfig) -> int | None:
    """Return the most tokens that the model has positions for; None if there is no limit."""
    positions = getattr(config, "max_position_embeddings", None)
    if positions is None or positions <= 0:  # as in XLNet
        return None
    known = _BY_TYPE.get(config.model_type)
    return positions - (config.pad_token_id + 1 if known and known.positions_after_padding else 0)


def _inspect(model: PreTrainedModel) -> Architecture:
    """Find the list of layers of an unknown architecture, and the type that a layer returns."""
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
    architecture = Architecture(config.model_type, (config.model_type,), fitting[0], _USUAL_HEAD)
    return replace(
        architecture, returns_tuple=_answers_in_tuples(model, architecture.layers(model)[0])
    )


def _answers_in_tuples(model: PreTrainedModel, layer: nn.Module) -> bool:
    """Run `model` on two tokens, and return whether `layer` returns a tuple."""
    import torch

    answers: list[Any] = []
    handle = layer.register_forward_hook(lambda *seen: answers.append(seen[-1]))
    try:
        with torch.no_grad():
            model.base_model(input_ids=torch.zeros(1, 2, dtype=torch.long, device=model.device))
    finally:
        handle.remove()
    return isinstance(answers[0], list | tuple)
