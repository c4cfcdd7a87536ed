"""Recording every layer of a model: what it adds to the forward pass.

All contestants run the same model on the same padded batch. Two of them give the means over tokens
of the embeddings and of every layer: `simcore.record`, and the ten lines that one writes without
it. "the forward pass alone" gives the mean of the last layer's states. The overhead of recording is
1 / (its `times_ours`) - 1.

    python -m bench.record --repeats 11
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bench import harness
from bench.harness import Contestant

VOCABULARY = 1000


@cache
def encoder(layers: int, width: int, heads: int, labels: int | None = None) -> Any:
    """Return a BERT of random weights, with a head for some labels; weights do not affect times."""
    from transformers import AutoModel, AutoModelForSequenceClassification, BertConfig

    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        num_labels=labels or 2,
    )
    torch.manual_seed(0)
    if labels is None:
        return AutoModel.from_config(config, add_pooling_layer=False).eval()
    return AutoModelForSequenceClassification.from_config(config).eval()


@contextmanager
def in_float64(model: Any) -> Iterator[Any]:
    """Give a model in float64, and float32 afterwards."""
    try:
        yield model.double()
    finally:
        model.float()


def drawn_tokens(*shape: int) -> Tensor:
    """Return token numbers ``[..., batch, tokens]``; a row in four is half padding, which is 0."""
    ids = torch.randint(1, VOCABULARY, shape, generator=torch.Generator().manual_seed(0))
    ids[..., ::4, shape[-1] // 2 :] = 0
    return ids


def mean(states: Tensor, mask: Tensor) -> Tensor:
    """Mean over the tokens of each example, as one writes it by hand."""
    weights = mask[..., None].to(states.dtype)
    return (states * weights).sum(1) / weights.sum(1)


def recorded(model: Any, batch: dict[str, Tensor]) -> Tensor:
    from simcore import record

    with record(model, ["embeddings", "encoder.layer.*"], pool="mean") as tape:
        model(**batch)
    return torch.stack(list(tape.layers().values()))


def by_hand(model: Any, batch: dict[str, Tensor]) -> Tensor:
    states = model(**batch, output_hidden_states=True).hidden_states
    return torch.stack([mean(layer, batch["attention_mask"]) for layer in states])


def alone(model: Any, batch: dict[str, Tensor]) -> Tensor:
    return mean(model(**batch).last_hidden_state, batch["attention_mask"])[None]


@dataclass(frozen=True)
class Job(harness.Job):
    """One batch of which a row in four is half padding."""

    layers: int
    width: int
    batch: int
    tokens: int
    timed: bool = True

    def _model(self) -> Any:
        return encoder(self.layers, self.width, self.width // 64)

    def contestants(self) -> Mapping[str, Contestant]:
        named = {
            "ours": recorded,
            "hidden states, pooled by hand": by_hand,
            "the forward pass alone": alone,
        }
        return {name: self._contestant(function) for name, function in named.items()}

    def _contestant(self, function: Callable[[Any, dict[str, Tensor]], Tensor]) -> Contestant:
        model = self._model()

        @torch.no_grad()
        def run(ids: Tensor) -> Tensor:
            return function(model, batch_of(ids))

        return Contestant(run)

    def data(self) -> Tensor:
        return drawn_tokens(self.batch, self.tokens)

    def tiny(self) -> Job:
        return replace(self, batch=1, tokens=4)

    def scaled(self, factor: float) -> Job:
        return replace(self, batch=max(1, int(self.batch * factor)))

    def error(self, grid: np.ndarray, x: Tensor, contestant: Contestant) -> float:
        """Against the same model in float64, over one example."""
        with in_float64(self._model()) as model, torch.no_grad():
            wanted = by_hand(model, batch_of(x[:1]))[-len(grid) :].numpy()
        return float(np.abs(grid[:, :1] - wanted).max())

    def floor_flops(self) -> float:
        """Return the flops of the forward pass."""
        per_token = 24 * self.width**2 + 4 * self.tokens * self.width
        return self.layers * per_token * self.batch * self.tokens


def batch_of(ids: Tensor) -> dict[str, Tensor]:
    """Token numbers as the model's arguments."""
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


JOBS = {"record13": Job(layers=12, width=768, batch=32, tokens=128)}

if __name__ == "__main__":
    harness.main({"record": JOBS}, __doc__)
