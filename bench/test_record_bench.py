"""pytest-benchmark suite of recording, which also keeps the contestants correct."""

import pytest
import torch

from bench import harness, record

SMALL = record.Job(layers=3, width=128, batch=4, tokens=8)


@pytest.mark.parametrize("name", SMALL.contestants())
def test_contestant(name, benchmark):
    torch.set_num_threads(harness.THREADS)
    ids = SMALL.data()
    contestant = SMALL.contestants()[name]
    means = benchmark(contestant.run, ids)
    assert means.shape == (1 if "alone" in name else 4, 4, 128)
    assert SMALL.error(means.numpy(), ids, contestant) < 1e-5
