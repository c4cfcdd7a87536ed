"""pytest-benchmark suite of matched neurons, which also keeps the contestants correct."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bench import harness, matching, matching_formulas

SMALL = {name: replace(job, layers=3, n=120, p=16) for name, job in matching.JOBS.items()}
TOLERATED = 1e-4  # what these formulas reach in float32
CONTESTANTS = [
    (job, name) for job in SMALL for name in SMALL[job].contestants() if name != matching.BARE
]
ORACLE = Path(__file__).parents[1] / "tests" / "oracle"
KEYS = {
    "hard": "hard_correlation_match",
    "soft": "soft_correlation_match",
    "permutation": "permutation_procrustes",
    "aligned_cosine": "aligned_cosine",
}


@pytest.mark.parametrize(("job", "name"), CONTESTANTS)
def test_contestant(job, name, benchmark):
    torch.set_num_threads(harness.THREADS)
    x = SMALL[job].data()
    contestant = SMALL[job].contestants()[name]
    grid = torch.as_tensor(benchmark(contestant.run, x)).double().numpy()
    assert SMALL[job].error(grid, x, contestant) < TOLERATED
    assert np.isfinite(grid[0]).all()


@pytest.mark.parametrize("name", KEYS)
def test_formulas_are_those_of_the_published_code(name):
    """Of layers of one width: this code pads the narrower layer first."""
    data = np.load(ORACLE / "resi_a.npz")
    layers = [torch.from_numpy(data[f"layer_{i}"]) for i in (0, 1)]
    values = np.array(json.loads((ORACLE / "resi_a.json").read_text())[KEYS[name]])
    got = getattr(matching_formulas, name)(*layers)
    assert abs(got - values[0, 1]) < TOLERATED
