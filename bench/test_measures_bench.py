"""pytest-benchmark suite of the measures beyond CKA, which also keeps the contestants correct."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from bench import harness, measures

SMALL = {
    name: replace(job, layers=3, n=120, p=16, source=measures.JOBS["svcca13"].source)
    for name, job in measures.JOBS.items()
}
TOLERATED = 1e-4  # what these formulas reach in float32
CONTESTANTS = [
    (job, name) for job in SMALL for name in SMALL[job].contestants() if name != "bare products"
]


@pytest.mark.parametrize(("job", "name"), CONTESTANTS)
def test_contestant(job, name, benchmark):
    torch.set_num_threads(harness.THREADS)
    x = SMALL[job].data()
    contestant = SMALL[job].contestants()[name]
    grid = torch.as_tensor(benchmark(contestant.run, x)).double().numpy()
    assert SMALL[job].error(grid, x, contestant) < TOLERATED
    assert np.isfinite(grid).all()
