"""Freeze layers during fine-tuning (Wu et al. 2020, section 6 and appendix D).

``bottom:K`` freezes everything on which the output of layer K depends: the first K layers, the
embeddings, and parameters that the layers share (relative positions of MPNet and DeBERTa). So the
hidden states up to layer K stay as in the initial model. The paper does not say whether it froze
the embeddings, but it must have: it reports that freezing the bottom six of twelve layers saves
more than half of the backpropagation, and gradients of the embeddings would have to pass through
all twelve layers.

``top:K`` freezes the last K layers and nothing else. The head, pooler included, is always trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from simlab.errors import UserError, argument

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel

    from simlab.models.architectures import Architecture
    from simlab.models.sources import ModelSource

NONE, BOTTOM, TOP = "none", "bottom", "top"


@dataclass(frozen=True)
class Freeze:
    """The layers not to train: `count` layers from `side`, ``bottom`` or ``top``."""

    side: str
    count: int


def parse_freeze(text: str) -> Freeze | None:
    """Parse ``bottom:K`` or ``top:K``, K >= 1; return None for ``none``."""
    if text == NONE:
        return None
    side, _, count = text.partition(":")
    if side not in (BOTTOM, TOP) or not count.isdecimal() or int(count) < 1:
        raise UserError(
            f"{argument('freeze', text)}: wanted none, bottom:K or top:K with K at least 1"
        )
    return Freeze(side, int(count))


def freeze_layers(model: PreTrainedModel, freeze: Freeze | None, name: str) -> None:
    """Freeze the parameters of `model` that belong to the layers in `freeze`."""
    if freeze is None:
        return
    layers = _layers(model, freeze, name)
    if freeze.side == BOTTOM:
        frozen = _behind_layer(model, freeze.count)
    else:
        frozen = [p for layer in layers[-freeze.count :] for p in layer.parameters()]
    for parameter in frozen:
        parameter.requires_grad = False


def require_freezable(source: ModelSource, freezes: Sequence[str]) -> None:
    """Check, by the model's configuration alone, that `freeze_layers` accepts each of `freezes`.

    A model of an unknown architecture is checked when its weights are loaded.
    """
    from simlab.models.load import load_config
    from simlab.models.recognise import architecture_of

    wanted = [freeze for freeze in map(parse_freeze, freezes) if freeze is not None]
    if not wanted:
        return
    config = load_config(source)
    try:
        architecture = architecture_of(config)
    except UserError:
        return
    for freeze in wanted:
        _check(freeze, source.name, architecture, getattr(config, architecture.count))


def _layers(model: PreTrainedModel, freeze: Freeze, name: str) -> list[nn.Module]:
    from simlab.models.recognise import architecture_of

    architecture = architecture_of(model)
    layers = architecture.layers(model)
    _check(freeze, name, architecture, len(layers))
    return layers


def _check(freeze: Freeze, name: str, architecture: Architecture, layers: int) -> None:
    option = f"{argument('freeze', f'{freeze.side}:{freeze.count}')}: model {name}"
    if freeze.count > layers:
        raise UserError(f"{option} wanted at least {freeze.count} layers, found {layers}")
    if architecture.shared:
        raise UserError(
            f"{option} wanted layers with weights of their own, found architecture "
            f"{architecture.name}, whose layers share their weights"
        )


def parameter_counts(model: PreTrainedModel) -> tuple[int, int]:
    """Return the number of trained parameters, and the number of all parameters."""
    counts = [(p.numel() if p.requires_grad else 0, p.numel()) for p in model.parameters()]
    trained, every = (sum(column) for column in zip(*counts, strict=True))
    return trained, every


def _behind_layer(model: PreTrainedModel, layer: int) -> list[nn.Parameter]:
    """Return the parameters on which the output of layer `layer`, counted from 1, depends.

    They are the parameters with a gradient, so no names of embeddings need to be known.
    """
    import torch

    from simlab.models.states import layer_states

    parameters = list(model.base_model.parameters())
    ids = torch.zeros(1, 2, dtype=torch.long, device=model.device)
    encoder = cast("PreTrainedModel", model.base_model)
    states = layer_states(encoder, {"input_ids": ids})[layer]
    gradients = torch.autograd.grad(states.sum(), parameters, allow_unused=True)
    return [p for p, grad in zip(parameters, gradients, strict=True) if grad is not None]
