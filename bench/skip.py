"""Skipping every span of layers: one sweep beside a forward pass for each span.

Both run the same model on the same padded batches and give the logits of the model and of the model
without each contiguous span. The loop's pass leaves the layers of a span out and runs all others.

    python -m bench.skip --repeats 5
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bench import harness
from bench.harness import Contestant
from bench.record import batch_of, drawn_tokens, encoder, in_float64
from simlab.experiments.skip import skip_logits, spans, states_per_call
from simlab.models.recognise import architecture_of
from simlab.models.states import LayerChain

LABELS = 2


@contextmanager
def left_out(model: Any, start: int, end: int) -> Iterator[None]:
    """The model without layers `start` to `end` - 1."""
    encoder_module = model.bert.encoder
    whole = encoder_module.layer
    encoder_module.layer = torch.nn.ModuleList([*whole[:start], *whole[end:]])
    try:
        yield
    finally:
        encoder_module.layer = whole


def sweep(model: Any, ids: Tensor) -> Tensor:
    """``[spans, n, labels]``, all spans together."""
    batch = batch_of(ids)
    found = skip_logits(LayerChain(model, batch), states_per_call(batch))
    return torch.stack([found[span] for span in spans(len(architecture_of(model).layers(model)))])


def loop(model: Any, ids: Tensor) -> Tensor:
    """``[spans, n, labels]``, one forward pass for each span."""
    logits = []
    for start, end in spans(len(architecture_of(model).layers(model))):
        with left_out(model, start, end):
            logits.append(model(**batch_of(ids)).logits)
    return torch.stack(logits)


def sweep_evaluations(layers: int) -> int:
    """Return how many runs of a layer on a batch `skip_logits` takes (see its module)."""
    return layers + (layers - 1) * layers * (layers + 1) // 6


def loop_evaluations(layers: int) -> int:
    """Return how many runs of a layer a forward pass for every span would take."""
    return layers + (layers - 1) * layers * (layers + 1) // 3


@dataclass(frozen=True)
class Job(harness.Job):
    """Batches of `tokens` tokens of which some are padding."""

    layers: int
    width: int
    batches: int
    batch: int
    tokens: int
    timed: bool = True

    def _model(self) -> Any:
        return encoder(self.layers, self.width, heads=12, labels=LABELS)

    def contestants(self) -> Mapping[str, Contestant]:
        return {"ours": self._contestant(sweep), "a pass for each span": self._contestant(loop)}

    def _contestant(self, function: Callable[[Any, Tensor], Tensor]) -> Contestant:
        model = self._model()

        @torch.inference_mode()
        def run(ids: Tensor) -> Tensor:
            return torch.cat([function(model, batch) for batch in ids], dim=1)

        return Contestant(run)

    def data(self) -> Tensor:
        return drawn_tokens(self.batches, self.batch, self.tokens)

    def tiny(self) -> Job:
        return replace(self, batches=1, batch=1, tokens=4)

    def scaled(self, factor: float) -> Job:
        return replace(self, batch=max(1, int(self.batch * factor)))

    def error(self, grid: np.ndarray, x: Tensor, contestant: Contestant) -> float:
        """Against a pass for each span in float64, over one example."""
        with in_float64(self._model()) as model, torch.inference_mode():
            wanted = loop(model, x[0, :1]).numpy()
        return float(np.abs(grid[:, :1] - wanted).max())

    def floor_flops(self) -> float:
        """Return the flops of the layers that have to run at least once, scores included."""
        tokens = self.batches * self.batch * self.tokens
        per_token = 24 * self.width**2 + 4 * self.tokens * self.width
        return sweep_evaluations(self.layers) * per_token * tokens


JOBS = {
    "skip6": Job(layers=6, width=384, batches=2, batch=64, tokens=48),
    "skip12": Job(layers=12, width=384, batches=1, batch=64, tokens=48),
}

if __name__ == "__main__":
    for name, job in JOBS.items():
        least = sweep_evaluations(job.layers) / loop_evaluations(job.layers)
        print(f"{name}: layers of the sweep over layers of the loop {least:.3f}")
    harness.main({"skip": JOBS}, __doc__)
