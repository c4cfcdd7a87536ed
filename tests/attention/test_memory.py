"""Memory of attention grids beyond the inputs, measured in a process of its own."""

import pytest

from support.forks import in_fork

pytestmark = pytest.mark.slow

MB = 2**20
# Views of the sentences, stacks of the threads, pages of libraries touched for the first time.
SLACK = 4 * MB

PROGRAM = """
import torch
from bench.peak import peak_during
from simcore import attention_grid
torch.set_num_threads(2)
def layers(count, sentences, heads, words):
    shape = (count, sentences, heads, words, words)
    weights = torch.rand(shape, dtype={dtype})
    return [weights[l, :, :, :words - 1, :words - 1] for l in range(count)]
options = {options!r}
attention_grid(layers(2, 2, 2, 4), **{{**options, "max_memory": None}})  # libraries are started
weights = layers({count}, {sentences}, {heads}, {words})
print(peak_during(lambda: attention_grid(weights, **options)))
"""


def peak(count, sentences, heads, words, *, dtype="torch.float32", **options):
    """Peak memory beyond inputs that are parts of larger arrays: a copy would show."""
    shape = {"count": count, "sentences": sentences, "heads": heads, "words": words}
    return int(in_fork(PROGRAM.format(dtype=dtype, options=options, **shape)))


# name: (layers, sentences, heads, words, limit, options). The inputs hold 118 MB or more (float32),
# which is also what one head compared with all others would take.
JOBS = {
    "12 layers of 12 heads": (12, 200, 12, 33, 16 * MB, {}),
    "frobenius": (12, 200, 12, 33, 16 * MB, {"measure": "frobenius"}),
    "causal": (12, 200, 12, 33, 16 * MB, {"causal": True}),
    "long sentences": (4, 2, 12, 513, 16 * MB, {}),
    "float64": (12, 100, 12, 33, 16 * MB, {"dtype": "torch.float64"}),
    "a small limit": (12, 200, 12, 33, 4 * MB, {}),
}


@pytest.mark.parametrize("name", JOBS)
def test_max_memory_is_obeyed(name):
    *shape, limit, options = JOBS[name]
    assert peak(*shape, max_memory=limit, **options) <= limit + SLACK


def test_by_default_little_is_taken():
    assert peak(12, 200, 12, 33) <= 32 * MB
