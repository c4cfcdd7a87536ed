"""pytest-benchmark suite of attention grids, which also keeps the contestants correct."""

import numpy as np
import pytest
import torch

from bench import attention, harness
from simcore import attention_grid, reference

SMALL = {
    name: attention.Job(job.measure, 3, 4, 5, 16, job.contestants)
    for name, job in attention.JOBS.items()
}
TOLERATED = 1e-4  # what these formulas reach in float32


@pytest.fixture(scope="module")
def x():
    torch.set_num_threads(harness.THREADS)
    return SMALL["js12"].data()


def twin(x, measure):
    layers = [list(layer.double().numpy()) for layer in x]
    return reference.attention_grid(layers, measure=measure)


CONTESTANTS = [(job, name) for job in SMALL for name in SMALL[job].contestants()]


@pytest.mark.parametrize(("job", "name"), CONTESTANTS)
def test_contestant(job, name, x, benchmark):
    grid = benchmark(SMALL[job].contestants()[name].run, x)
    np.testing.assert_allclose(grid, twin(x, SMALL[job].measure), atol=TOLERATED)


@pytest.mark.parametrize("measure", attention.EXACT)
def test_what_errors_are_measured_against(measure, x):
    got = attention.EXACT[measure](x.double())
    np.testing.assert_allclose(got, twin(x, measure), atol=1e-7)


@pytest.mark.parametrize("measure", attention.EXACT)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_grid(dtype, measure, x, benchmark):
    assert benchmark(attention_grid, x.to(dtype), measure=measure).isfinite().all()
