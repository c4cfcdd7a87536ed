"""cuSOLVER's interface, as far as a library that computes nothing can show it."""

import torch

from simcore._ops.eigh import KINDS, UPPER, VECTORS, _Solver

ON_DEVICE, ON_HOST = 64, 16


class Library:
    """Notes the calls of cuSOLVER, and asks for workspaces of fixed sizes."""

    def __init__(self):
        self.calls = {}

    def __getattr__(self, name):
        def call(*arguments):
            self.calls[name] = arguments
            if name.endswith("_bufferSize"):
                for place, size in zip(arguments[-3:], (ON_DEVICE, ON_HOST), strict=False):
                    place._obj.value = size
            return 0

        return call


def test_a_build_without_its_libraries_has_no_solver(monkeypatch, tmp_path):
    monkeypatch.setattr(torch, "__file__", str(tmp_path / "__init__.py"))
    assert _Solver.of(torch.device("cuda", 77)) is None


def test_a_workspace_lies_on_the_device_of_its_matrices():
    """A tensor of the device "meta" has no address; one of the host has."""
    vectors = torch.empty(3, 5, 5, dtype=torch.float64, device="meta")
    values, states = vectors[..., 0], vectors.new_empty(3, dtype=torch.int32)
    library = Library()
    _Solver(library)._solve(vectors, values, states)
    arguments = library.calls["cusolverDnXsyevBatched"]
    workspace, size, host, host_size, states_at, count = arguments[-6:]
    assert (workspace.value, size.value) == (None, ON_DEVICE)
    assert (len(host), host_size.value) == (ON_HOST, ON_HOST)
    assert (states_at.value, count.value) == (None, 3)
    assert arguments[2:4] == (VECTORS, UPPER)
    assert (arguments[4].value, arguments[5]) == (5, KINDS[torch.float64])
