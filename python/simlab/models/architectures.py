"""The table of encoder families: what an experiment must know of an architecture, as data."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from simlab.errors import UserError

if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PreTrainedConfig, PreTrainedModel

FIRST, LAST, FINAL = "first token", "last token", "last position"
EAGER, ALWAYS = "eager", "always"
COUNT = "num_hidden_layers"


@dataclass(frozen=True)
class Family:
    """One architecture.

    Attributes
    ----------
    name
        How tables call it.
    model_types
        ``config.model_type`` of its members.
    layers_path
        The list of layers, below ``base_model``.
    head_modules
        What a classifier or regressor has after the layers, in order, as attribute paths of the
        model: with or without a pooler.
    choice_modules
        The same of a multiple-choice model where it is not the same.
    token
        The position the head reads: `FIRST` token of the text, its `LAST` token, or the `FINAL`
        position whatever is there, which is the last token if padding is on the left.
    count
        What the configuration calls the number of layers; ``num_hidden_layers`` always works too.
    shared
        The listed modules stand for consecutive layers that share their weights (ALBERT).
    returns_tuple
        A layer answers with a tuple that begins with its states, and not with the states alone.
    time_first
        Layers take and give [t, b, p] and not [b, t, p].
    after_first
        A module, below ``base_model``, that changes the first layer's output (DeBERTa's
        convolution).
    positions_after_padding
        Positions are numbered from the padding token's number on (RoBERTa), which leaves fewer.
    attention
        `EAGER` if weights exist only with ``attn_implementation="eager"``, else `ALWAYS`.
    examples
        Names on the hub.
    """

    name: str
    model_types: tuple[str, ...]
    layers_path: str
    head_modules: tuple[str, ...]
    choice_modules: tuple[str, ...] | None = None
    token: str = FIRST
    count: str = COUNT
    shared: bool = False
    returns_tuple: bool = False
    time_first: bool = False
    after_first: str | None = None
    positions_after_padding: bool = False
    attention: str = EAGER
    examples: tuple[str, ...] = ()

    def layers(self, model: PreTrainedModel) -> list[nn.Module]:
        """The layers in the order of their evaluation, one entry for each evaluation.

        Modules that several layers share are repeated.
        """
        modules = list(model.base_model.get_submodule(self.layers_path))
        if not self.shared:
            return modules
        count = model.config.num_hidden_layers
        return [modules[layer * len(modules) // count] for layer in range(count)]

    def token_index(self, attention_mask: torch.Tensor) -> torch.Tensor:
        """Position of the classifier token, int64 [b], for a mask [b, t] that is 0 at padding."""
        import torch

        width = attention_mask.shape[-1]
        if self.token == FINAL:
            return torch.full(attention_mask.shape[:-1], width - 1, device=attention_mask.device)
        seen = attention_mask.bool().int()
        if self.token == FIRST:
            return seen.argmax(-1)
        return width - 1 - seen.flip(-1).argmax(-1)

    def head(self, model: PreTrainedModel) -> dict[str, nn.Module]:
        """The modules of the head by their path in `model`, in order.

        Raises
        ------
        UserError
            `model` is an encoder without a head.
        """
        several = type(model).__name__.endswith("ForMultipleChoice")
        stated = self.choice_modules if several and self.choice_modules else self.head_modules
        found = {path: lookup(model, path) for path in stated}
        present = {path: module for path, module in found.items() if module is not None}
        if all(path.startswith("base_model.") for path in present):
            raise UserError(
                f"model of type {model.config.model_type!r}: wanted a head "
                f"({', '.join(stated)}), found {type(model).__name__} without one"
            )
        return present

    def states_of(self, answer: Any) -> torch.Tensor:
        """States [b, t, p] of what a layer answered."""
        states = answer[0] if isinstance(answer, list | tuple) else answer
        return states.transpose(0, 1) if self.time_first else states

    def answer_with(self, states: torch.Tensor) -> Any:
        """What a layer would answer if its states were `states`, [b, t, p]."""
        states = states.transpose(0, 1) if self.time_first else states
        return (states, None) if self.returns_tuple else states

    def keep_layers(self, config: PreTrainedConfig, kept: Sequence[int]) -> PreTrainedConfig:
        """A copy of `config` for a model of the layers numbered `kept` (from 0) alone."""
        smaller = deepcopy(config)
        smaller.num_hidden_layers = len(kept)
        kinds = getattr(config, "layer_types", None)  # ModernBERT: which layers attend to all
        if kinds is not None:
            smaller.layer_types = [kinds[layer] for layer in kept]
        return smaller


def lookup(model: nn.Module, path: str) -> nn.Module | None:
    """The module at an attribute path, None if there is none."""
    try:
        return attrgetter(path)(model)
    except AttributeError:
        return None


_ENCODER = "encoder.layer"
POOLER = "base_model.pooler"
_POOLED = (POOLER, "dropout", "classifier")
FAMILIES = (
    Family(
        "BERT",
        ("bert",),
        _ENCODER,
        _POOLED,
        examples=("bert-base-uncased", "google/multiberts-seed_{0..24}"),
    ),
    Family(
        "RoBERTa",
        ("roberta",),
        _ENCODER,
        ("classifier",),
        _POOLED,
        positions_after_padding=True,
        examples=("roberta-base",),
    ),
    Family(
        "ALBERT",
        ("albert",),
        "encoder.albert_layer_groups",
        _POOLED,
        shared=True,
        examples=("albert-base-v2",),
    ),
    Family(
        "ELECTRA",
        ("electra",),
        _ENCODER,
        ("classifier",),
        ("sequence_summary", "classifier"),
        examples=("google/electra-base-discriminator",),
    ),
    Family(
        "DistilBERT",
        ("distilbert",),
        "transformer.layer",
        ("pre_classifier", "dropout", "classifier"),
        count="n_layers",
        examples=("distilbert-base-uncased",),
    ),
    Family(
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
    Family(
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
    Family(
        "GPT-2",
        ("gpt2",),
        "h",
        ("score",),
        token=LAST,
        count="n_layer",
        examples=("gpt2",),
    ),
    Family(
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
    Family(
        "DeBERTa-v2",
        ("deberta-v2",),
        _ENCODER,
        ("pooler", "dropout", "classifier"),
        returns_tuple=True,
        after_first="encoder.conv",
        attention=ALWAYS,
        examples=("microsoft/deberta-v3-base",),
    ),
    Family(
        "ModernBERT",
        ("modernbert",),
        "layers",
        ("head", "drop", "classifier"),
        examples=("answerdotai/ModernBERT-base",),
    ),
)
