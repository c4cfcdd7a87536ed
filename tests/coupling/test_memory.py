"""Activation memory of invertible networks: with reversible=True it does not grow with blocks."""

import pytest
import torch

from bench.peak import in_subprocess
from simcore.nn import CouplingINN

pytestmark = pytest.mark.slow

GROWTH = 1.2  # of 16 blocks over 4: what users are promised

# What is freed goes back to the system at once: glibc otherwise keeps freed activations of this
# size in a heap of changing holes, and its mark is not of what is held. Then one process will do.
PROGRAM = """
import ctypes
M_MMAP_THRESHOLD = -3
assert ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 65536) == 1
import torch
from bench.peak import peak_during
from simcore.nn import CouplingINN
torch.set_num_threads(2)
def step(n_blocks, n, **options):
    torch.manual_seed(0)
    inn = CouplingINN(64, n_blocks, 64, depth=1, **options)
    x = torch.randn(n, 64)
    return lambda: inn(x).square().mean().backward()
step(2, 10, reversible=True)()  # libraries are started
for n_blocks, options in {jobs!r}:
    print(peak_during(step(n_blocks, 20000, **options)))
"""


def peaks(*jobs):
    return [int(line) for line in in_subprocess(PROGRAM.format(jobs=jobs)).split()]


def test_peak_memory_of_a_training_step():
    reversible, permuted = {"reversible": True}, {"reversible": True, "mixing": "permutation"}
    few, many, few_permuted, many_permuted, plain = peaks(
        (4, reversible), (16, reversible), (4, permuted), (16, permuted), (16, {})
    )
    assert many < GROWTH * few
    assert many_permuted < GROWTH * few_permuted
    assert plain > 2 * many


def saved_bytes(n_blocks, *, reversible, inverse=False, compiled=False):
    """Bytes that the graph keeps for the backward pass, parameters aside."""
    inn = CouplingINN(16, n_blocks, 8, reversible=reversible)
    parameters = {p.untyped_storage().data_ptr() for p in inn.parameters()}
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    function = inn.inverse if inverse else inn.forward
    if compiled:
        torch.compiler.reset()
        function = torch.compile(function, fullgraph=True, backend="aot_eager")
        function(torch.randn(100, 16))  # traced before there are hooks, which torch.func refuses
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = function(torch.randn(100, 16))
    assert result.requires_grad
    return sum(kept.values())


@pytest.mark.parametrize("inverse", [False, True])
def test_saved_tensors(inverse):
    few, many = (saved_bytes(n, reversible=True, inverse=inverse) for n in (4, 16))
    assert few == many == 100 * 16 * 4
    few, many = (saved_bytes(n, reversible=False, inverse=inverse) for n in (4, 16))
    assert many > 3 * few


def test_compiled_networks_keep_no_activations_either():
    few, many = (saved_bytes(n, reversible=True, compiled=True) for n in (1, 3))
    assert few == many <= 2 * 100 * 16 * 4
    few, many = (saved_bytes(n, reversible=False, compiled=True) for n in (1, 3))
    assert many > 2 * few
