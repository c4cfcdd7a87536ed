"""`simcore.Track`: the time that a recorded step adds to a training.

A BERT of random weights is trained by AdamW on random tokens. A track compares the means over
tokens of all layers with their start and with the last recorded step, on `examples` texts. `added`
is the time of ``track.step`` over that of a training step; a training that records each k-th step
is slower by the k-th part of it. `forward_s` is one pass of the model over the same texts without
recording, which no track can do without.

    python -m bench.track
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from bench.record import VOCABULARY, encoder
from bench.rows import measure_rows


@dataclass(frozen=True)
class Job:
    """A BERT, the batch that it is trained on, and the texts of the track."""

    layers: int
    width: int
    batch: int
    tokens: int
    examples: int


JOBS = {
    "6 x 384, 256 texts": Job(layers=6, width=384, batch=16, tokens=32, examples=256),
    "6 x 384, 1,000 texts": Job(layers=6, width=384, batch=16, tokens=32, examples=1000),
    "12 x 768, 256 texts": Job(layers=12, width=768, batch=16, tokens=32, examples=256),
}


@dataclass(frozen=True)
class Row:
    """Medians of `repeats` steps, in seconds, after one that is not counted."""

    job: str
    step_s: float
    track_s: float
    forward_s: float
    added: float
    times_forward: float
    repeats: int


def run(label: str, job: Job, repeats: int) -> Row:
    """Return the row of one job."""
    from simcore import Track

    model = encoder(job.layers, job.width, job.width // 64).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    draw = torch.Generator().manual_seed(0)

    def texts(count: int) -> dict[str, torch.Tensor]:
        ids = torch.randint(VOCABULARY, (count, job.tokens), generator=draw)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    batch = texts(job.batch)
    watched = [texts(min(64, job.examples - at)) for at in range(0, job.examples, 64)]
    track = Track(model, ["embeddings", "encoder.layer.*"], watched, pool="mean")
    numbers = iter(range(1, repeats + 2))

    def step() -> None:
        optimizer.zero_grad()
        model(**batch).last_hidden_state.square().mean().backward()
        optimizer.step()

    def forward() -> None:
        model.eval()
        with torch.no_grad():
            for one in watched:
                model(**one)
        model.train()

    found = {}
    functions: dict[str, Callable[[], object]] = {
        "step": step,
        "forward": forward,
        "track": lambda: track.step(next(numbers)),
    }
    for name, function in functions.items():
        times = []
        for _ in range(repeats + 1):
            started = time.perf_counter()
            function()
            times.append(time.perf_counter() - started)
        found[name] = statistics.median(times[1:])
    return Row(
        job=label,
        step_s=found["step"],
        track_s=found["track"],
        forward_s=found["forward"],
        added=found["track"] / found["step"],
        times_forward=found["track"] / found["forward"],
        repeats=repeats,
    )


if __name__ == "__main__":
    measure_rows("track", JOBS, run, __doc__)
