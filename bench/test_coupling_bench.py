"""pytest-benchmark suite of affine couplings, which also keeps the contestants correct."""

import pytest
import torch

from bench import coupling, harness

SMALL = coupling.Job((2, 40, 34))
TOLERATED = 1e-5  # what these formulas reach in float32


@pytest.mark.parametrize("name", SMALL.contestants())
def test_contestant(name, benchmark):
    torch.set_num_threads(harness.THREADS)
    data = SMALL.data()
    contestant = SMALL.contestants()[name]
    got = benchmark(contestant.run, data)
    assert SMALL.error(got.double().numpy(), data, contestant) < TOLERATED
