"""The jobs of bench.gpu run at tiny sizes on the CPU, and their contestants agree."""

import math

import pytest
import torch

from bench import gpu_jobs


@pytest.mark.parametrize("name", gpu_jobs.JOBS)
def test_contestants_run(name):
    job = gpu_jobs.TINY[name]("cpu")
    assert set(gpu_jobs.TINY) == set(gpu_jobs.JOBS)
    results = {}
    for contestant, function in job.contestants.items():
        if not contestant.startswith("compiled"):
            results[contestant] = function()
    if name == "attention":
        for other in results.values():
            torch.testing.assert_close(other.double(), results["ours"], rtol=0, atol=1e-5)
    if name == "coupling":
        for got, want in zip(results["torch half"], results["ours"], strict=True):
            torch.testing.assert_close(got, want)
    if name == "training":
        assert math.isfinite(float(results["ours"]))
    if name == "together":
        losses = results["ours, one after another"]
        assert len(losses) == 2
        assert all(math.isfinite(float(loss)) for loss in losses)
