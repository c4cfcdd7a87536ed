"""`max_memory` bounds what the measures beside CKA take: peak of a process of its own."""

import pytest

from support.forks import in_fork

pytestmark = pytest.mark.slow

MB = 2**20
# What the process may need beside the workspace: stacks of the threads, the allocator's rounding,
# pages of libraries touched for the first time.
SLACK = 8 * MB

PROGRAM = """
import torch
from bench.peak import peak_during
from simcore import {function} as grid
torch.set_num_threads(2)
generator = torch.Generator().manual_seed(0)
def make(count, n, width):
    return list(torch.randn(count, n, width, generator=generator, dtype={dtype}))
options = {options!r}
# Libraries and threads are started, with matrices large enough for their blocked routines.
grid(make(4, 400, 300), **{{**options, "max_memory": None}})
layers = make({count}, {n}, {width})
for layer in layers[: {dependent}]:
    layer[:, -1] = layer[:, 0]
print(peak_during(lambda: grid(layers, **options)))
"""


def peak(function, *, count=12, n=1500, width=256, dtype="torch.float32", dependent=0, **options):
    """Peak memory beyond the inputs of one grid, of which some layers have dependent columns."""
    program = PROGRAM.format(
        function=function, options=options, dtype=dtype, count=count, n=n, width=width,
        dependent=dependent,
    )  # fmt: skip
    return int(in_fork(program))


# name: (function, limit, what else). Inputs are 18 MB; the limits are what bases and their
# decompositions need, and far below what one product of all pairs would take.
JOBS = {
    "svcca": ("svcca_grid", 96 * MB, {}),
    "pwcca": ("pwcca_grid", 96 * MB, {}),
    "neuronsim": ("neuronsim_grid", 24 * MB, {}),
    "rsa-spearman": ("rsa_grid", 45 * MB, {"correlation": "spearman", "n": 1000}),
    "rsa of wide layers": ("rsa_grid", 310 * MB, {"count": 2, "n": 500, "width": 20000}),
    "rsa in float32": ("rsa_grid", 74 * MB, {"count": 3, "n": 600, "width": 4000}),
    "rsa-spearman of wide layers": (
        "rsa_grid",
        54 * MB,
        {"count": 2, "n": 600, "width": 8000, "correlation": "spearman"},
    ),
    "linreg of one tall layer": ("linreg_grid", 100 * MB, {"count": 1, "n": 40000, "width": 64}),
    "spaces of dependent columns": (
        "eigenspace_overlap_grid",
        190 * MB,
        {"count": 40, "n": 2000, "width": 200, "dependent": 40},
    ),
    "procrustes in float64": ("procrustes_grid", 48 * MB, {"dtype": "torch.float64", "count": 3}),
}


@pytest.mark.parametrize("name", JOBS)
def test_max_memory_is_obeyed(name):
    function, limit, options = JOBS[name]
    assert peak(function, max_memory=limit, **options) <= limit + SLACK


@pytest.mark.parametrize("function", ["neuronsim_grid", "mixedsim_grid"])
def test_neurons_of_many_layers_stay_within_the_same_bound(function):
    """One number for every neuron and layer would be 72 MB here."""
    limit = {"neuronsim_grid": 24, "mixedsim_grid": 48}[function] * MB
    assert peak(function, count=300, n=104, width=100, max_memory=limit) <= limit + SLACK


def test_the_best_neurons_of_many_layers_are_found_in_parts():
    """The table of all neurons would be 64 MB here."""
    options = {"count": 200, "n": 24, "width": 100, "top_k": 5}
    assert peak("neuronsim_grid", max_memory=12 * MB, **options) <= 12 * MB + SLACK
