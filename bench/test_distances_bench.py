"""pytest-benchmark suite of the distances, which also keeps the published formulations correct."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from bench import distances, harness

SMALL = {
    name: replace(job, layers=3, n=120, p=16)
    for name, job in distances.JOBS.items()
    if name.endswith("13")
}
TOLERATED = 1e-3  # of values up to some hundreds, in float32
CONTESTANTS = [
    (job, name) for job in SMALL for name in SMALL[job].contestants() if name != "cka grid"
]


@pytest.mark.parametrize(("job", "name"), CONTESTANTS)
def test_contestant(job, name, benchmark):
    torch.set_num_threads(harness.THREADS)
    x = SMALL[job].data()
    contestant = SMALL[job].contestants()[name]
    grid = torch.as_tensor(benchmark(contestant.run, x)).double().numpy()
    assert SMALL[job].error(grid, x, contestant) < TOLERATED
    assert np.isfinite(grid).all()
