"""`Basis` and `bases`: what they hold, where they are cut, how they are saved and reused."""

import warnings

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from simcore import Basis, bases, cca_grid, mixedsim_grid, reference, svcca_grid
from support import tolerance
from support.cases import DTYPES, HALVES, Case, exact, layers
from support.measure_table import LINREG, MIXEDSIM, ON_BASES, PROCRUSTES, PWCCA, SVCCA, rank_eps

CASE = Case(129, 10.0, True, (7, 1, 40, 24))
EASY = Case(150, 3.0, widths=(20, 7, 33))
REUSED = [measure for measure in ON_BASES if not measure.options.get("standardize")]


def centred(layer):
    return reference.center(exact([layer])[0])


@pytest.mark.parametrize("dtype", DTYPES + HALVES, ids=str)
@pytest.mark.parametrize("case", [EASY, CASE, Case(20, 1.0, widths=(64, 19, 20))], ids=str)
def test_vectors_values_and_components_make_the_centred_layer(case, dtype):
    for layer, basis in zip(layers(case, dtype), bases(layers(case, dtype)), strict=True):
        working = torch.float64 if dtype == torch.float64 else torch.float32
        assert basis.vectors.dtype == basis.components.dtype == working
        assert basis.spectrum.dtype == torch.float64
        want = centred(layer)
        made = basis.vectors.double() @ basis.singular_values.diag() @ basis.components.double()
        scale = float(basis.spectrum[0])
        tolerance.assert_measure(1 + made / scale, 1 + want / scale, dtype)
        for rows in (basis.vectors.T, basis.components):
            product = rows.double() @ rows.double().T
            tolerance.assert_measure(product, np.eye(basis.kept), dtype)
        mean = basis.vectors.double().mean(0)
        tolerance.assert_measure(1 + mean, np.ones(basis.kept), dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("standardize", [False, True])
def test_spectrum_is_that_of_the_twin(standardize, dtype):
    for layer, basis in zip(
        layers(CASE, dtype), bases(layers(CASE, dtype), standardize=standardize), strict=True
    ):
        x = exact([layer])[0]
        _, s, _ = reference.cca.svd(x, rank_eps([layer]), standardize=standardize)
        assert (basis.rank, basis.kept) == (len(s), len(s))
        tolerance.assert_measure(basis.spectrum / s[0], s / s[0], dtype)
        assert bool((basis.spectrum.diff() <= 0).all())


def beyond(x, factor, dtype):
    """The columns x and a combination of them, moved out of their span by ``factor`` cuts."""
    wide = torch.from_numpy(exact([x])[0])
    combination = wide.sum(1)
    direction = torch.from_numpy(exact(layers(Case(len(x), widths=(1,)), seed=3))[0])[:, 0]
    left = torch.cat([wide, torch.ones(len(x), 1)], 1)
    outside = direction - left @ torch.linalg.lstsq(left, direction[:, None]).solution[:, 0]
    cut = 16 * torch.finfo(dtype).eps / 2 * combination.norm()
    moved = combination + factor * cut * outside / outside.norm()
    return torch.cat([wide, moved[:, None]], 1).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rank_rule(dtype):
    x = layers(Case(129, 10.0, widths=(9,)), dtype)[0]
    for factor, rank in ((0.1, 9), (20.0, 10)):
        basis = bases([beyond(x, factor, dtype)])[0]
        assert (basis.rank, basis.kept, len(basis.components)) == (rank, rank, rank)
    assert bases([torch.cat([x, 1e-5 * layers(EASY, dtype)[0][:129, :1]], dim=1)])[0].rank == 10
    assert bases([torch.cat([x, x, 2 * x[:, :1]], dim=1)])[0].rank == 9
    assert bases([x + 1000])[0].rank == 9
    assert bases([torch.full((129, 3), 0.1, dtype=dtype)])[0].rank == 0
    assert bases([x[:, :1].repeat(1, 6)])[0].rank == 1
    assert bases([x[:5]])[0].rank == 4


def test_truncation_is_the_smallest_count_that_reaches_the_share():
    q = torch.from_numpy(np.linalg.qr(centred(layers(Case(60, widths=(4,)))[0]))[0])
    x = [q * torch.tensor([5.0, 3.0, 1.5, 0.5]).sqrt()]
    for truncation, kept in (
        (None, 4), (0.4, 1), (0.499, 1), (0.501, 2), (0.799, 2), (0.801, 3), (0.949, 3),
        (0.951, 4), (1.0, 4), (1, 1), (3, 3), (4, 4), (5, 4), (10**6, 4), ([2], 2), ((9,), 4),
        (np.int64(3), 3),
        (np.float32(1.0), 4),
        (np.array([2]), 2),
        (torch.tensor([3]), 3),
    ):  # fmt: skip
        basis = bases(x, truncation=truncation)[0]
        assert (basis.kept, basis.rank) == (kept, 4), truncation
        assert basis.vectors.shape == (60, kept)
        assert basis.components.shape == (kept, 4)
        assert basis.singular_values.shape == (kept,)
        if not isinstance(truncation, list | tuple | np.ndarray | torch.Tensor):
            assert bases(x)[0].truncate(truncation).kept == kept


def test_a_share_is_of_the_whole_spectrum_however_often_it_is_cut():
    full = bases(layers(EASY))[0]
    once = full.truncate(0.8)
    assert once.truncate(0.9).kept == once.kept
    assert full.truncate(0.9).truncate(0.8).kept == once.kept
    assert once.truncate(2).kept == 2
    with pytest.warns(UserWarning, match="keeps 6"):
        assert once.truncate(999) is once
    assert full.kept == full.rank == 20


def test_a_basis_that_keeps_fewer_than_wanted_says_so():
    (basis,) = bases(layers(Case(129, widths=(20,))), truncation=5)
    with pytest.warns(UserWarning, match="truncation: 8 is 8 components, .* keeps 5"):
        assert basis.truncate(8).kept == 5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert basis.truncate(None).kept == basis.truncate(5).kept == 5


def test_truncated_bases_do_not_hold_the_rest():
    full = bases(layers(EASY))[0]
    for cut in (full.truncate(3), bases(layers(EASY), truncation=3)[0]):
        assert cut.vectors.untyped_storage().nbytes() == cut.vectors.nbytes
        assert cut.components.untyped_storage().nbytes() == cut.components.nbytes
        assert cut.nbytes == cut.vectors.nbytes + cut.components.nbytes + cut.spectrum.nbytes
    duplicated = bases([torch.cat([layers(EASY)[0]] * 2, dim=1)])[0]
    assert duplicated.vectors.untyped_storage().nbytes() == duplicated.vectors.nbytes


def test_permuted_basis_is_the_basis_of_permuted_rows():
    x, y = layers(EASY), layers(Case(150, widths=(12, 5)), seed=1)
    order = torch.from_numpy(np.random.default_rng(0).permutation(150))
    permuted = [basis.permute(order) for basis in bases(x)]
    for measure in REUSED:
        want = measure([layer[order] for layer in x], y)
        tolerance.assert_measure(measure(permuted, y), want, torch.float64)
    made = permuted[0].vectors @ permuted[0].singular_values.diag() @ permuted[0].components
    tolerance.assert_measure(made, centred(x[0])[order], torch.float64)


@pytest.mark.parametrize("way", ["safetensors", "torch"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_saved_and_loaded_bases_give_the_same_grid(dtype, way, tmp_path):
    x = [*layers(EASY, dtype), torch.ones(150, 3, dtype=dtype)]
    held = [*bases(x, truncation=0.95), bases(x)[0]]
    loaded = []
    for i, basis in enumerate(held):
        path = tmp_path / str(i)
        if way == "safetensors":
            save_file(basis.state_dict(), path)
            loaded.append(Basis.from_state_dict(load_file(path)))
        else:
            torch.save(basis.state_dict(), path)
            loaded.append(Basis.from_state_dict(torch.load(path, weights_only=True)))
        assert loaded[-1].kept == basis.kept
        assert loaded[-1].rank == basis.rank
    with pytest.warns(UserWarning, match=r"X\[3\]"):
        want = cca_grid(held)
    with pytest.warns(UserWarning, match=r"X\[3\]"):
        np.testing.assert_array_equal(cca_grid(loaded), want)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("measure", REUSED, ids=str)
def test_bases_stand_for_layers(measure, dtype):
    x = layers(EASY, dtype)
    y = layers(Case(150, 10.0, widths=(12, 5)), dtype, seed=1)
    for left, right in ((bases(x), None), (bases(x), bases(y)), (x, bases(y)), (bases(x), y)):
        want = measure(x, None if right is None else y)
        tolerance.assert_measure(measure(left, right), want, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("measure", REUSED, ids=str)
@pytest.mark.filterwarnings("ignore:.*without variance:UserWarning")
def test_bases_stand_for_layers_with_constant_neurons_and_layers(measure, dtype):
    """What rounding leaves of a constant neuron in a basis is no neuron."""
    x = layers(EASY, dtype)
    x[0][:, 3], x[0][:, 11] = 0.1, -1000.3
    x[1] = torch.full_like(x[1], 0.1)
    y = layers(Case(150, widths=(12, 5)), dtype, seed=1)
    for left, right in ((bases(x), None), (bases(x), y), (y, bases(x)), (bases(y), bases(x))):
        side = [y if part is not None and len(part) == 2 else x for part in (left, right or x)]
        with pytest.warns(UserWarning, match="no variance"):
            want = measure(side[0], None if right is None else side[1])
        with pytest.warns(UserWarning, match="no variance"):
            got = measure(left, right)
        tolerance.assert_measure(got, want, dtype)


@pytest.mark.parametrize("measure", [PROCRUSTES, LINREG, MIXEDSIM], ids=str)
def test_truncated_bases_are_the_layers_they_hold(measure):
    x, y = layers(EASY), layers(Case(150, widths=(12, 5)), seed=1)
    held = bases(x, truncation=4)
    made = [b.vectors @ b.singular_values.diag() @ b.components for b in held]
    tolerance.assert_measure(measure(held, y), measure(made, y), torch.float64)


def test_truncation_applies_to_bases_too():
    x = layers(EASY)
    for truncation in (0.9, 5, [3, 4, 5]):
        want = svcca_grid(x, truncation=truncation)
        tolerance.assert_measure(svcca_grid(bases(x), truncation=truncation), want, torch.float64)
        want = PWCCA.grid(x, truncation=truncation)
        tolerance.assert_measure(PWCCA.grid(bases(x), truncation=truncation), want, torch.float64)
    standardized = bases(x, standardize=True)
    want = svcca_grid(x, standardize=True)
    tolerance.assert_measure(svcca_grid(standardized), want, torch.float64)
    tolerance.assert_measure(SVCCA(bases(x, truncation=0.99)), SVCCA(x), torch.float64)


def test_grids_of_bases_are_tensors_and_change_nothing():
    held = bases(exact(layers(EASY)))
    before = [{name: t.clone() for name, t in b.state_dict().items()} for b in held]
    for measure in REUSED:
        assert isinstance(measure(held), torch.Tensor)
        assert isinstance(measure(exact(layers(EASY)), held), torch.Tensor)
    for basis, copies in zip(held, before, strict=True):
        for name, copy in copies.items():
            assert torch.equal(basis.state_dict()[name], copy)


def test_bases_of_layers_that_want_gradients_hold_none():
    x = [layer.requires_grad_() for layer in layers(EASY)]
    for basis in bases(x):
        assert not any(tensor.requires_grad for tensor in basis.state_dict().values())


def test_memory_of_bases_is_bounded_by_what_is_kept():
    x = layers(Case(300, widths=(64,) * 8), torch.float32)
    torch.set_num_threads(1)
    limit = 4 * 2**20
    with pytest.raises(ValueError, match=r"max_memory: wanted at least \d+ bytes .* of 8 layers"):
        bases(x, max_memory=2**20)
    kept = bases(x, truncation=4, max_memory=limit)
    assert [basis.kept for basis in kept] == [4] * 8


def test_progress_is_shown(capfd):
    bases(layers(EASY), progress=True)
    assert "bases of X" in capfd.readouterr().err
    mixedsim_grid(layers(EASY), progress=True)
    shown = capfd.readouterr().err
    assert "bases of X" in shown
    assert "mixedsim_grid" in shown


@pytest.mark.parametrize("threads", [1, 2])
def test_layers_may_differ_in_n(threads):
    x = torch.randn(30, 5)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = bases([x[:20], x[:20, :3], x, x[:7], x])
    finally:
        torch.set_num_threads(before)
    assert [len(basis.vectors) for basis in found] == [20, 20, 30, 7, 30]
    assert torch.equal(found[2].vectors, bases([x])[0].vectors)


def test_pickles_name_the_public_module():
    assert Basis.__module__ == "simcore.basis"
