"""pytest-benchmark suite of measures of neighbours, which also keeps the contestants correct."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bench import harness, neighbour_formulas, neighbours

SMALL = {
    name: replace(job, layers=3, n=120, p=16) for name, job in neighbours.JOBS.items()
}  # fmt: skip
TOLERATED = 1e-4  # what these formulas reach in float32
CONTESTANTS = [
    (job, name) for job in SMALL for name in SMALL[job].contestants() if name != neighbours.CKA
]
ORACLE = Path(__file__).parents[1] / "tests" / "oracle"
KEYS = {
    "jaccard": "jaccard_cosine_10",
    "rank": "rank_similarity_cosine_10",
    "second_order": "second_order_cosine_10",
    "cknna": "cknna_10_unbiased",
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
def test_formulas_are_those_of_the_published_codes(name):
    data = np.load(ORACLE / "resi_a.npz")
    layers = [torch.from_numpy(data[key]).float() for key in sorted(data) if "layer" in key]
    values = np.array(json.loads((ORACLE / "resi_a.json").read_text())[KEYS[name]])
    pair = getattr(neighbour_formulas, name)
    got = [[pair(a, b) for b in layers] for a in layers]
    other = ~np.eye(len(layers), dtype=bool)
    assert np.abs(got - values)[other].max() < TOLERATED
