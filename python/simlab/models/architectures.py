"""The table of known architectures: places of layers and heads, and other differences, as data."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

from simlab.errors import UserError

if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PreTrainedConfig, PreTrainedModel

FIRST, LAST, FINAL, NONE = "first token", "last token", "last position", "none"
EAGER, ALWAYS = "eager", "always"
COUNT = "num_hidden_layers"
_NUMBERS = ("layers", "idxs", "indices", "indexes")  # ends of settings that list numbers of layers


@dataclass(frozen=True)
class Architecture:
    """The facts of an architecture that simlab needs."""

    name: str  # in tables
    model_types: tuple[str, ...]  # values of ``config.model_type``
    layers_path: str  # the list of layers, as a path below ``base_model``
    # Modules of a classifier or regressor after the layers, in order, as attribute paths of the
    # model; a pooler is listed and may be missing in a model.
    head_modules: tuple[str, ...]
    # The same for multiple choice; None if they are `head_modules`.
    choice_modules: tuple[str, ...] | None = None
    # The position that the head reads: the `FIRST` token of the text, its `LAST` token, or the
    # `FINAL` position, which is the last token if padding is on the left; `NONE` without a head.
    token: str = FIRST
    # Name of the number of layers in the configuration; ``num_hidden_layers`` works too.
    count: str = COUNT
    shared: bool = False  # each listed module stands for several consecutive layers (ALBERT)
    returns_tuple: bool = False  # a layer returns a tuple that begins with its states
    time_first: bool = False  # layers take and return states [t, b, p] and not [b, t, p]
    # Path, below ``base_model``, of a module that changes the output of the first layer (the
    # convolution of DeBERTa).
    after_first: str | None = None
    # Positions are counted from the padding token's number on (RoBERTa), so that fewer positions
    # are left for tokens.
    positions_after_padding: bool = False
    # `EAGER` if attention weights exist only with ``attn_implementation="eager"``, else `ALWAYS`.
    attention: str = EAGER
    examples: tuple[str, ...] = ()  # names of models on the hub

    def layers(self, model: PreTrainedModel) -> list[nn.Module]:
        """Return the layers of `model` in order; a module that several layers share is repeated."""
        modules = list(cast("nn.ModuleList", model.base_model.get_submodule(self.layers_path)))
        if not self.shared:
            return modules
        count = model.config.num_hidden_layers
        return [modules[layer * len(modules) // count] for layer in range(count)]

    def token_index(self, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return the position of the classifier token, int64 [b].

        `attention_mask` is [b, t], 0 at padding.
        """
        import torch

        width = attention_mask.shape[-1]
        if self.token == FINAL:
            return torch.full(attention_mask.shape[:-1], width - 1, device=attention_mask.device)
        seen = attention_mask.bool().int()
        if self.token == FIRST:
            return seen.argmax(-1)
        return width - 1 - seen.flip(-1).argmax(-1)

    def head(self, model: PreTrainedModel) -> dict[str, nn.Module]:
        """Return the modules of the head of `model` by their paths, in order."""
        several = type(model).__name__.endswith("ForMultipleChoice")
        stated = self.choice_modules if several and self.choice_modules else self.head_modules
        # The head of jiant reads the pooler of encoders whose own head has none.
        paths = dict.fromkeys((POOLER, *stated)) if POOLER not in stated else stated
        modules = {path: lookup(model, path) for path in paths}
        present = {path: module for path, module in modules.items() if module is not None}
        if all(path.startswith("base_model.") for path in present):
            raise UserError(
                f"model of type {model.config.model_type!r}: wanted a head "
                f"({', '.join(stated)}), found {type(model).__name__} without one"
            )
        return present

    def states_of(self, answer: Any) -> torch.Tensor:
        """Return the states [b, t, p] in `answer`, the return value of a layer."""
        states = answer[0] if isinstance(answer, list | tuple) else answer
        return states.transpose(0, 1) if self.time_first else states

    def answer_with(self, states: torch.Tensor) -> Any:
        """Return the value that a layer whose states are `states`, [b, t, p], would return."""
        if self.time_first:  # XLNet: a second stream, and attention weights if they are asked for
            return states.transpose(0, 1), None, states.new_zeros(1, 1, 1, 1)
        return (states, None) if self.returns_tuple else states

    def keep_layers(self, config: PreTrainedConfig, kept: Sequence[int]) -> PreTrainedConfig:
        """Return a copy of `config` for a model with only the layers `kept`, counted from 0."""
        smaller, whole = deepcopy(config), text_config(config)
        text, count = text_config(smaller), whole.num_hidden_layers
        text.num_hidden_layers = len(kept)
        names = [name for name in vars(whole) if not name.startswith("_")]
        for name in dict.fromkeys((*names, "layer_types")):
            values = getattr(whole, name, None)
            if not isinstance(values, list | tuple):
                continue
            if _is_by_layer(name, values, count):
                wanted = [values[layer] for layer in kept]
            elif _is_of_numbers(name, values, count):
                wanted = [place for place, layer in enumerate(kept) if layer in values]
            else:
                continue
            if list(getattr(text, name)) == wanted:
                continue
            try:
                setattr(text, name, type(values)(wanted))
            except AttributeError as error:  # Jamba computes the type of a layer of its number
                raise UserError(
                    f"model of type {config.model_type!r}: wanted layers that do not depend on "
                    f"their number in the model, found {name} that does"
                ) from error
        if getattr(whole, "attention_types", None):  # GPT-Neo writes its types of layers as runs
            text.attention_types = [[[kind], 1] for kind in text.attention_layers]
        return smaller


def _is_by_layer(name: str, values: Sequence[Any], count: int) -> bool:
    """Return whether a setting has a value for each of `count` layers."""
    named = "layer" in name or name.endswith("types")
    words = all(isinstance(value, str) for value in values)  # pos_att_type lists kinds of positions
    return len(values) == count and (named or not words) and not name.endswith("token_id")


def _is_of_numbers(name: str, values: Sequence[Any], count: int) -> bool:
    """Return whether a setting lists the numbers of some of `count` layers."""
    of_layers = name.endswith(_NUMBERS) and all(isinstance(value, int) for value in values)
    return of_layers and all(0 <= value < count for value in values)


def text_config(config: Any) -> Any:
    """Return the part of a configuration that describes the reading of texts.

    It is `config` itself unless the model reads pictures or sounds too.
    """
    try:
        return config.get_text_config()
    except ValueError:  # several parts read texts
        return config


def lookup(model: nn.Module, path: str) -> nn.Module | None:
    """Return the module of `model` at an attribute path, or None if there is no such module."""
    try:
        return attrgetter(path)(model)
    except AttributeError:
        return None


_ENCODER = "encoder.layer"
POOLER = "base_model.pooler"
_POOLED = (POOLER, "dropout", "classifier")
KNOWN_ARCHITECTURES = (
    Architecture(
        "BERT",
        ("bert",),
        _ENCODER,
        _POOLED,
        examples=("bert-base-uncased", "google/multiberts-seed_{0..24}"),
    ),
    Architecture(
        "RoBERTa",
        ("roberta",),
        _ENCODER,
        ("classifier",),
        _POOLED,
        positions_after_padding=True,
        examples=("roberta-base",),
    ),
    Architecture(
        "ALBERT",
        ("albert",),
        "encoder.albert_layer_groups",
        _POOLED,
        shared=True,
        examples=("albert-base-v2",),
    ),
    Architecture(
        "ELECTRA",
        ("electra",),
        _ENCODER,
        ("classifier",),
        ("sequence_summary", "classifier"),
        examples=("google/electra-base-discriminator",),
    ),
    Architecture(
        "DistilBERT",
        ("distilbert",),
        "transformer.layer",
        ("pre_classifier", "dropout", "classifier"),
        count="n_layers",
        examples=("distilbert-base-uncased",),
    ),
    Architecture(
        "MPNet",
        ("mpnet",),
        _ENCODER,
        ("classifier",),
        _POOLED,
        returns_tuple=True,
        attention=ALWAYS,
        positions_after_padding=True,
        examples=("microsoft/mpnet-base",),
    ),
    Architecture(
        "XLNet",
        ("xlnet",),
        "layer",
        ("sequence_summary", "logits_proj"),
        token=FINAL,
        count="n_layer",
        returns_tuple=True,
        time_first=True,
        attention=ALWAYS,
        examples=("xlnet-base-cased",),
    ),
    Architecture(
        "GPT-2",
        ("gpt2",),
        "h",
        ("score",),
        token=LAST,
        count="n_layer",
        examples=("gpt2",),
    ),
    Architecture(
        "OpenAI GPT",
        ("openai-gpt",),
        "h",
        ("score",),
        token=LAST,
        count="n_layer",
        returns_tuple=True,
        attention=ALWAYS,
        examples=("openai-gpt",),
    ),
    Architecture(
        "Llama, Mistral, Qwen",
        ("llama", "mistral", "qwen2", "qwen3"),
        "layers",
        ("score",),
        token=LAST,
        examples=("meta-llama/Llama-3.2-1B", "mistralai/Mistral-7B-v0.1", "Qwen/Qwen3-0.6B"),
    ),
    Architecture(
        "DeBERTa-v2",
        ("deberta-v2",),
        _ENCODER,
        ("pooler", "dropout", "classifier"),
        returns_tuple=True,
        after_first="encoder.conv",
        attention=ALWAYS,
        examples=("microsoft/deberta-v3-base",),
    ),
    Architecture(
        "ModernBERT",
        ("modernbert",),
        "layers",
        ("head", "drop", "classifier"),
        examples=("answerdotai/ModernBERT-base",),
    ),
)
