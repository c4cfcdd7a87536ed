"""Activation memory of invertible networks: with reversible=True it does not grow with blocks."""

import pytest
import torch

from bench.peak import in_subprocess
from simcore.nn import CouplingINN

GROWTH = 1.2  # of 16 blocks over 4: what users are promised

PROGRAM = """
import torch
from bench.peak import peak_during
from simcore.nn import CouplingINN
torch.set_num_threads(2)
def step(n_blocks, n, reversible):
    torch.manual_seed(0)
    inn = CouplingINN(64, n_blocks, 64, reversible={reversible}, mixing={mixing!r})
    x = torch.randn(n, 64)
    def run():
        inn(x).square().mean().backward()
    return run
step(2, 10, True)()  # libraries are started
run = step({n_blocks}, 40000, {reversible})
print(peak_during(run))
"""


def peak(n_blocks, *, reversible, mixing="none"):
    options = {"n_blocks": n_blocks, "reversible": reversible, "mixing": mixing}
    return int(in_subprocess(PROGRAM.format(**options)))


def test_peak_memory_of_a_training_step():
    few, many = (peak(n_blocks, reversible=True) for n_blocks in (4, 16))
    assert many < GROWTH * few
    assert peak(16, reversible=False) > 2 * many


def test_peak_memory_with_permutations():
    few, many = (peak(n, reversible=True, mixing="permutation") for n in (4, 16))
    assert many < GROWTH * few


def saved_bytes(n_blocks, *, reversible, inverse=False):
    """Bytes that the graph keeps for the backward pass, parameters aside."""
    inn = CouplingINN(16, n_blocks, 8, reversible=reversible)
    parameters = {p.untyped_storage().data_ptr() for p in inn.parameters()}
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = (inn.inverse if inverse else inn)(torch.randn(100, 16))
    assert result.requires_grad
    return sum(kept.values())


@pytest.mark.parametrize("inverse", [False, True])
def test_saved_tensors(inverse):
    few, many = (saved_bytes(n, reversible=True, inverse=inverse) for n in (4, 16))
    assert few == many == 100 * 16 * 4
    few, many = (saved_bytes(n, reversible=False, inverse=inverse) for n in (4, 16))
    assert many > 3 * few
