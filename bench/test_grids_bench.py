"""pytest-benchmark suite of the measures beyond CKA, which also keeps the contestants correct."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bench import formulas, grids, harness, measure_formulas, published
from numerics.distributions import DISTRIBUTIONS

SMALL = {
    name: replace(job, layers=3, n=120, p=16, source=None)
    for name, job in grids.JOBS.items()
    if name != "rtd2"
}
TOLERATED = 1e-4  # what these formulas reach in float32
CONTESTANTS = [
    (job, name)
    for job in SMALL
    for name, contestant in SMALL[job].contestants().items()
    if contestant.is_measure
]
ORACLE = Path(__file__).parents[1] / "tests" / "oracle"
KEYS = {
    "match_hard": "hard_correlation_match",
    "match_soft": "soft_correlation_match",
    "permutation_procrustes": "permutation_procrustes",
    "aligned_cosine": "aligned_cosine",
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
    assert np.isfinite(grid[0, -1])
    assert name.startswith("published") or np.isfinite(grid).all()


@pytest.mark.parametrize("name", [grids.ROW, grids.PAIR])
def test_published_code_warms_up_on_fewer_layers(name):
    """The harness runs a contestant on a tiny input before it measures the job's own."""
    job = next(job for job in grids.JOBS.values() if name in job.contestants())
    assert np.isfinite(job.contestants()[name].run(job.tiny().data())[0, -1])


@pytest.mark.parametrize(
    ("formula", "name", "error"),
    [
        (formulas.gram_rbf, "sink_row_100000", 5e-5),
        (measure_formulas.rsa_spearman, "massive_5000_shared", 1e-4),
        (measure_formulas.mixedsim, "rank_4", 1e-2),
    ],
)
def test_float32_formulas_miss_the_contract(formula, name, error):
    """What docs/performance.md says of them, and why those in float64 compete."""
    x = torch.from_numpy(np.stack(DISTRIBUTIONS[name].layers())).float()
    apart = formula(x) - formula(x.double())
    assert apart[0, 1].abs() > error


def test_layers_of_a_source_have_the_shape_of_the_job():
    job = replace(grids.JOBS["svcca_large4"], n=40, p=8)
    assert job.data().shape == (4, 40, 8)


@pytest.mark.parametrize("name", KEYS)
def test_formulas_are_those_of_the_published_codes(name):
    """Of the two first layers, which have one width: the code pads the narrower layer."""
    data = np.load(ORACLE / "resi_a.npz")
    layers = [torch.from_numpy(data[f"layer_{i}"]).float() for i in (0, 1)]
    values = np.array(json.loads((ORACLE / "resi_a.json").read_text())[KEYS[name]])
    assert abs(getattr(published, name)(*layers) - values[0, 1]) < TOLERATED
