"""Orthonormal columns by a Cholesky factor: where they serve, and that bases serve elsewhere.

Grids take them on CUDA devices; here the CPU stands for one.
"""

import pytest
import torch

import simcore
from simcore import bases, reference
from simcore._column_spaces import orthonormal, whitening_bytes
from simcore._grid.basis import Basis, Factored
from simcore._grid.side import Side
from support.cases import Case, exact, layers

PLENTY = 1 << 30
CASE = Case(60, 1000.0, True, (7, 24))


@pytest.fixture(autouse=True)
def by_factors(monkeypatch):
    monkeypatch.setattr("simcore._column_spaces.BY_FACTORS", ("cpu", "cuda"))


def columns_of(given, bound=PLENTY):
    return orthonormal("cca_grid", Side("X", given), bound)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_columns_are_orthonormal_and_make_the_centred_layer(dtype):
    case = CASE if dtype == torch.float32 else Case(60, 3.0, True, (7, 24))
    for layer in layers(case, dtype):
        (columns,), left = columns_of([layer])
        assert isinstance(columns, Factored)
        assert left == PLENTY - columns.nbytes
        u = columns.vectors.double()
        assert (u.T @ u - torch.eye(u.shape[1])).abs().max() < 1e-6
        made, want = u @ columns.coordinates.double(), torch.from_numpy(centred(layer))
        made *= want.norm() / made.norm()
        assert (made - want).abs().max() < 1e-6 * want.abs().max()


def centred(layer):
    return reference.center(exact([layer])[0])


def test_layers_without_a_certain_rank_are_decomposed_in_their_places():
    x = layers(CASE, torch.float32)[0]
    dependent, constant = torch.cat([x, x[:, :1]], 1), torch.full((60, 3), 0.1)
    found, _ = columns_of([dependent, x, constant, x[:, :2]])
    assert [type(columns) for columns in found] == [Basis, Factored, Basis, Factored]
    assert [columns.kept for columns in found] == [7, 7, 0, 2]
    for layer in (x.double(), x[:5], x[:7]):
        (columns,), _ = columns_of([layer])
        assert isinstance(columns, Basis)


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e6])
def test_a_column_of_another_scale_counts(scale):
    x = layers(Case(129, widths=(9,)), torch.float32)[0]
    x = torch.cat([x, scale * layers(Case(129, widths=(1,)), torch.float32, seed=3)[0]], 1)
    (columns,), _ = columns_of([x])
    assert isinstance(columns, Factored)
    assert columns.kept == bases([x])[0].kept == 10


def test_bounds_hold_before_a_layer_is_factored(monkeypatch):
    x = layers(CASE, torch.float32)
    held = sum(4 * (t.numel() + t.shape[1] ** 2) for t in x)
    enough = held + whitening_bytes(*x[1].shape)
    found, left = columns_of(x, enough)
    assert {type(columns) for columns in found} == {Factored}
    assert left == enough - held
    asked = []
    monkeypatch.setattr("simcore._column_spaces.whiten", asked.append)
    with pytest.raises(ValueError, match=r"max_memory: wanted at least \d+ bytes for the bases"):
        columns_of(x, enough - 1)
    assert asked == []


def test_grids_of_the_cpu_have_the_bits_of_grids_of_bases(monkeypatch):
    monkeypatch.undo()
    x = layers(CASE, torch.float32)
    assert simcore.cca_grid(x).equal(simcore.cca_grid(bases(x)))


@pytest.mark.parametrize("name", ["cca", "pwcca", "linreg", "mixedsim", "gulp"])
def test_grids_of_independent_columns_decompose_no_layer(name, monkeypatch):
    x = layers(CASE, torch.float32)
    grid = getattr(simcore, f"{name}_grid")
    want = grid(bases(x)) if name != "gulp" else grid([t.double() for t in x])
    monkeypatch.setattr("simcore.basis.principal_components", None)
    assert torch.allclose(grid(x), want, rtol=0, atol=1e-5)
