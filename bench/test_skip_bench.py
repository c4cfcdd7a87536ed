"""pytest-benchmark suite of skipped spans, which also keeps the contestants correct."""

import pytest
import torch

from bench import harness, skip

SMALL = skip.Job(layers=4, width=24, batches=2, batch=3, tokens=8)


@pytest.mark.parametrize("name", SMALL.contestants())
def test_contestant(name, benchmark):
    torch.set_num_threads(harness.THREADS)
    ids = SMALL.data()
    contestant = SMALL.contestants()[name]
    logits = benchmark(contestant.run, ids)
    assert logits.shape == (11, 6, skip.LABELS)
    assert SMALL.error(logits.numpy(), ids, contestant) < 1e-6
