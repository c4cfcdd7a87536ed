"""Recognise the architecture of a model, and tell its classifier token and positions.

A model whose architecture is not in `KNOWN_ARCHITECTURES` works if its ``base_model`` has exactly
one list with as many modules as its configuration has layers; in a model of texts and pictures,
the language model is searched alone. The head of an unknown causal language model reads the last
token, any other unknown head the first one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from simlab.errors import UserError
from simlab.models.architectures import (
    COUNT,
    FINAL,
    FIRST,
    KNOWN_ARCHITECTURES,
    LAST,
    POOLER,
    Architecture,
    text_config,
)

if TYPE_CHECKING:
    import torch
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

    A model of an unknown architecture needs exactly one list with as many modules as layers.
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
    """Return which token the head reads, by the table, or else by the kind of model.

    A type of the library that has a causal head and no masked one (BERT has both) is a decoder,
    whose classifiers read the last token.
    """
    known = _BY_TYPE.get(config.model_type)
    if known is not None:
        return known.token
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    )

    types = {config.model_type, text_config(config).model_type}
    causal = types & MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.keys()
    return LAST if causal and not types & MODEL_FOR_MASKED_LM_MAPPING_NAMES.keys() else FIRST


def attend_the_same(model: PreTrainedModel) -> PreTrainedModel:
    """Let the attention of a model depend on its input alone, with a head or without; return it.

    The first token of a Longformer attends to all tokens, and all to it: its classifiers do so by
    themselves, and its encoder does not. A BigBird that was given a short text would attend
    without blocks to every text after it.
    """
    if model.config.model_type == "longformer":
        model.base_model.register_forward_pre_hook(_attend_to_the_first, with_kwargs=True)
    elif model.config.model_type == "big_bird":
        model.base_model.register_forward_pre_hook(
            lambda module, _: module.set_attention_type(module.config.attention_type)
        )
    return model


def _attend_to_the_first(
    _module: object, arguments: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    name, ids = "global_attention_mask", options.get("input_ids")
    if ids is None or options.get(name) is not None:
        return None
    everywhere = ids.new_zeros(ids.shape)
    everywhere[:, 0] = 1
    return arguments, {**options, name: everywhere}


def padding_side(config: PreTrainedConfig) -> str:
    """Return the side, left or right, to pad on so that the head reads its classifier token."""
    return "left" if classifier_token(config) == FINAL else "right"


def position_limit(config: PreTrainedConfig) -> int | None:
    """Return the most tokens that the model has positions for; None if there is no limit.

    A model that counts positions from the padding token's number on, as RoBERTa does, has fewer
    positions than its table of them has rows.
    """
    text = text_config(config)
    positions = getattr(text, "max_position_embeddings", None)
    if positions is None or positions <= 0:  # as in XLNet
        return None
    known = _BY_TYPE.get(config.model_type)
    if known is not None:
        return positions - (text.pad_token_id + 1 if known.positions_after_padding else 0)
    if getattr(text, "rope_parameters", None) is not None:  # computed, so there is no table
        return positions
    # `to_json_string` writes infinity as a dict, which no configuration takes back.
    return positions - _unused_positions(json.dumps(config.to_dict()))


@cache
def _unused_positions(description: str) -> int:
    """Return the number of rows of the table of positions that no token of a text can have.

    The model is built without weights. Its table of positions is the embedding of
    ``max_position_embeddings`` rows; one with a padding index gives this row to padding, and the
    rows after it to tokens.
    """
    import torch
    from torch import nn
    from transformers import AutoConfig, AutoModel

    config = AutoConfig.for_model(**json.loads(description))
    positions = text_config(config).max_position_embeddings
    with torch.device("meta"):
        model = AutoModel.from_config(config)
    padding = [
        module.padding_idx
        for path, module in model.named_modules()
        if isinstance(module, nn.Embedding)
        and "position" in path.rpartition(".")[2]
        and module.num_embeddings == positions
    ]
    return max((index + 1 for index in padding if index is not None), default=0)


def find_layers(model: PreTrainedModel) -> str:
    """Return the path, below ``base_model``, of the list of layers of an unknown architecture.

    The model has to have exactly one list with as many modules as its configuration has layers. A
    list inside a fitting one (experts) does not count.
    """
    from torch import nn

    config, base = model.config, model.base_model
    if config.is_encoder_decoder:
        raise UserError(
            f"architecture {config.model_type!r}: wanted an encoder or a decoder, found an "
            "encoder-decoder, which has two lists of layers"
        )
    count = getattr(text_config(config), COUNT, None)
    lists = {path: m for path, m in base.named_modules() if isinstance(m, nn.ModuleList)}
    if text_config(config) is not config:  # texts and pictures: both halves may have as many layers
        words = cast("Any", base).get_decoder()
        inside = [f"{path}." for path, module in base.named_modules() if path and module is words]
        lists = {path: m for path, m in lists.items() if path.startswith(tuple(inside) or "")}
    fitting = [path for path, modules in lists.items() if len(modules) == count]
    fitting = [p for p in fitting if not any(p.startswith(f"{other}.") for other in fitting)]
    if len(fitting) != 1:
        found = ", ".join(f"{path} ({len(modules)})" for path, modules in lists.items()) or "none"
        raise UserError(
            f"architecture {config.model_type!r}: wanted one of {', '.join(sorted(_BY_TYPE))}, or "
            f"a base_model with one list of {COUNT} = {count} modules, found {found}"
        )
    return fitting[0]


def blocks_of(model: PreTrainedModel) -> list[nn.Module]:
    """Return the layers of `model` in the order of their calls; none if no list of them is known.

    The model may read texts, pictures or sounds.
    """
    known = _BY_TYPE.get(model.config.model_type)
    try:
        if known is not None:
            return known.layers(model)
        return list(cast("nn.ModuleList", model.base_model.get_submodule(find_layers(model))))
    except (UserError, AttributeError):  # a wrapper has the configuration, and other paths
        return []


@contextmanager
def without_cache(model: PreTrainedModel) -> Iterator[None]:
    """Switch off the cache of decoders, which would grow with every further call of a layer."""
    config = text_config(model.config)
    before = getattr(config, "use_cache", None)
    if before is not None:
        config.use_cache = False
    try:
        yield
    finally:
        if before is not None:
            config.use_cache = before


def _inspect(model: PreTrainedModel) -> Architecture:
    """Describe an unknown architecture: its list of layers, its head, the type of its answers."""
    kind = model.config.model_type
    token = classifier_token(model.config)
    architecture = Architecture(kind, (kind,), find_layers(model), _USUAL_HEAD, token=token)
    return replace(
        architecture, returns_tuple=_answers_in_tuples(model, architecture.layers(model)[0])
    )


class _Answered(Exception):
    """Ends a pass as soon as its layer has answered."""


def first_call(model: Any, layer: nn.Module, batch: Any) -> tuple[torch.Tensor, Any]:
    """Run `model` up to the end of `layer`; return the states that `layer` took, and its answer."""
    import torch

    seen: list[tuple[torch.Tensor, Any]] = []

    def leave(
        _module: object, arguments: tuple[Any, ...], options: dict[str, Any], answer: Any
    ) -> None:
        seen.append((arguments[0] if arguments else options["hidden_states"], answer))
        raise _Answered

    hook = layer.register_forward_hook(leave, with_kwargs=True)
    try:
        with hook, torch.no_grad(), without_cache(model):
            model(**batch)
    except _Answered:
        return seen[0]
    raise _odd(model, "layers whose parts alone are called")


def _answers_in_tuples(model: PreTrainedModel, layer: nn.Module) -> bool:
    """Run `model` on two tokens up to `layer`, and return whether `layer` returns a tuple."""
    import torch

    device = next((one.device for one in model.parameters() if not one.is_meta), "cpu")
    batch = {"input_ids": torch.zeros(1, 2, dtype=torch.long, device=device)}
    try:
        _, answer = first_call(model.base_model, layer, batch)
    except (RuntimeError, TypeError, ValueError) as error:
        raise _odd(model, f"{type(error).__name__}: {error}") from error
    return isinstance(answer, list | tuple)


def _odd(model: PreTrainedModel, found: str) -> UserError:
    return UserError(
        f"architecture {model.config.model_type!r}: wanted a base_model that calls its layers on "
        f"two tokens, found {found}"
    )
