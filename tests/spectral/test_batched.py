"""The spectral operators of a CUDA device on CPU tensors: the CPU tests' jobs and tolerances."""

import functools
import threading

import numpy as np
import pytest
import torch

import simcore.basis
import simcore.cca
from simcore import _top
from simcore._ops import spectral_batched
from simcore._ops.composed import full_float32
from simcore._ops.polar import iterated_norms, polar_steps
from support import measure_table, tolerance
from support.cases import Case, noted
from support.precision import LOWER, lower_precision, precisions

FAMILY = {"cca_grid", "svcca_grid", "pwcca_grid", "linreg_grid", "procrustes_grid", "mixedsim_grid"}
OF_FAMILY = [measure for measure in measure_table.MEASURES if measure.function in FAMILY]
pytestmark = pytest.mark.filterwarnings("ignore:.*canonical correlations are all 1")


@pytest.fixture
def device_operators(monkeypatch):
    for module, name in (
        (simcore.basis, "principal_components"),
        (simcore.cca, "nuclear_norms"),
        (_top, "pwcca"),
    ):
        monkeypatch.setattr(module, name, spectral_batched.OPERATORS[name])


@pytest.mark.parametrize("measure", OF_FAMILY, ids=str)
@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.deep)], ids=str
)
@pytest.mark.usefixtures("device_operators")
def test_grids_match_the_twins(dtype, measure):
    for case in (case for one, case in measure_table.JOBS if one is measure):
        x = measure.layers(case, dtype)
        y = measure.layers(Case(case.n, 10.0, widths=(12, 5)), dtype, seed=1)
        with noted(case):
            tolerance.assert_measure(measure(x), measure.twin(x), dtype)
            tolerance.assert_measure(measure(x, y), measure.twin(x, y), dtype)


@pytest.mark.parametrize("lowest", [1e-8, 1e-3])
def test_polar_steps_keep_what_they_state(lowest):
    steps, error = polar_steps(lowest)
    assert error < 2e-7
    for low, high, bound in ((lowest, 1.0, 1.01 * error + 1e-15), (0.0, lowest, 1.0)):
        x = np.linspace(low, high, 100_001)
        x = np.concatenate([x, np.geomspace(max(low, 1e-30), high, 100_001)])
        for a, b, c in steps:
            x = a * x + b * x**3 + c * x**5
        assert np.abs(1 - x).max() <= bound


@pytest.mark.parametrize("shape", [(3, 1, 1), (5, 7, 40), (4, 40, 7), (2, 200, 200), (0, 3, 3)])
@pytest.mark.parametrize("magnitude", [1e-15, 1.0, 1e15])
def test_nuclear_norms_by_products_alone(shape, magnitude):
    generator = torch.Generator().manual_seed(0)
    m = torch.randn(shape, generator=generator) * magnitude
    want = torch.linalg.svdvals(m.double()).sum(-1)
    torch.testing.assert_close(iterated_norms(m), want, rtol=tolerance.POLAR_RELATIVE, atol=0)


def test_spectra_that_decay_fall_short_by_what_is_stated():
    generator = torch.Generator().manual_seed(0)
    u, v = (torch.linalg.qr(torch.randn(100, 100, generator=generator)).Q for _ in range(2))
    for s in (torch.logspace(0, -12, 100), torch.eye(100)[0], torch.ones(100)):
        m = (u * s) @ v.mT
        error = iterated_norms(m[None])[0] - torch.linalg.svdvals(m.double()).sum()
        assert abs(float(error)) < tolerance.POLAR_RELATIVE * float(s.sum())


def test_zeros_have_norm_zero():
    assert iterated_norms(torch.zeros(2, 3, 4)).tolist() == [0.0, 0.0]


WIDTHS = (12, 40, 3, 12, 17, 1, 33, 40)  # several to a stack, several stacks


def layers_of(widths, seed=0):
    generator = torch.Generator().manual_seed(seed)
    # Rows for two layers beside each other: no space is shared, no two correlations are equal.
    return [torch.randn(120, width, generator=generator) for width in widths]


def vectors_of(widths, seed=0):
    return [torch.linalg.qr(layer - layer.mean(0)).Q for layer in layers_of(widths, seed)]


@pytest.mark.parametrize("against", [(), (5, 40, 12)], ids=["itself", "others"])
def test_memory_only_cuts_batches(against):
    x, y = layers_of(WIDTHS), layers_of(against, seed=1)
    norms = spectral_batched.OPERATORS["nuclear_norms"]
    with pytest.raises(ValueError, match="max_memory: wanted at least") as caught:
        norms(x, y, 1)
    least = int(str(caught.value).split("at least ")[1].split()[0])
    want = [[torch.linalg.svdvals((a - a.mean(0)).mT @ (b - b.mean(0))) for b in y or x] for a in x]
    want = torch.tensor([[float(values.double().sum()) for values in row] for row in want])
    for bound in (least, 2 * least, 10**9):
        got, *_ = norms(x, y, bound)
        torch.testing.assert_close(got, want.double(), rtol=tolerance.POLAR_RELATIVE, atol=0)


@pytest.mark.parametrize("bound", [1, 20_000, 10**9])
@pytest.mark.parametrize("against", [(), (5, 40, 12)], ids=["itself", "others"])
@pytest.mark.parametrize("filled", [False, True], ids=["own-widths", "filled-widths"])
def test_projection_weights_in_batches(bound, against, filled, monkeypatch):
    # Random bases have no vanishing correlation that LAPACK could mix with those of the filling.
    monkeypatch.setattr(spectral_batched, "_takes_jacobi", lambda *_: filled)
    if filled:  # in place of the device's kernel
        svd = functools.partial(torch.linalg.svd, full_matrices=False)
        monkeypatch.setattr(spectral_batched, "singular_systems", svd)
    x, y = vectors_of(WIDTHS), vectors_of(against, seed=1)
    weighted = [torch.randn(u.shape[1], 9 + i) for i, u in enumerate(x)]
    got = spectral_batched.OPERATORS["pwcca"](x, weighted, y, bound)
    want = torch.ops.simcore.pwcca(x, weighted, y, 10**9)
    torch.testing.assert_close(got[0], want[0], rtol=0, atol=tolerance.FLOAT32_CLOSE_CORRELATIONS)
    assert torch.equal(got[1] > 1e-5, want[1] > 1e-5)


@pytest.mark.parametrize("shape", [(3, 1, 1), (4, 5, 9), (4, 9, 5), (3, 200, 160)], ids=str)
@pytest.mark.parametrize("zeros", [False, True])
def test_singular_systems_of_one_eigenproblem(shape, zeros):
    m = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    m[0] *= 1e-20
    if zeros:
        m[1] = 0
        m[-1, 1:] = m[-1, :1]  # rank 1
    u, s, vt = spectral_batched.singular_systems(m)
    eps = 64 * torch.finfo(torch.float32).eps  # LAPACK: up to 50
    want = torch.linalg.svdvals(m.double())
    torch.testing.assert_close(s.double(), want, rtol=0, atol=eps * float(want[1:].max()))
    torch.testing.assert_close(s[0].double(), want[0], rtol=0, atol=eps * float(want[0].max()))
    torch.testing.assert_close((u * s[:, None]) @ vt, m, rtol=0, atol=eps * float(want.max()))
    for vectors in (u.mT @ u, vt @ vt.mT):
        one = torch.eye(len(vectors[0])).expand_as(vectors)
        torch.testing.assert_close(vectors, one, rtol=0, atol=1e-4)
    if shape[1] >= shape[2]:
        for got, part in zip(spectral_batched.composed_small_svd(m), (u, s, vt.mT), strict=True):
            assert got.equal(part)
            assert got.is_contiguous()


@pytest.mark.parametrize("most", [1, 4, 100])
@pytest.mark.parametrize("upper", [False, True])
def test_runs_hold_every_pair_once_and_no_more_than_asked(most, upper):
    batches = list(spectral_batched._runs(5, 5, most, upper))
    pairs = [[(i, j) for i, first, end in runs for j in range(first, end)] for runs in batches]
    assert all(len(batch) == most for batch in pairs[:-1])
    assert 0 < len(pairs[-1]) <= most
    wanted = [(i, j) for i in range(5) for j in range(i + 1 if upper else 0, 5)]
    assert [pair for batch in pairs for pair in batch] == wanted


def test_chunks_hold_every_layer_once_and_no_more_than_asked():
    side = spectral_batched._Side([16, 48, 16, 16, 48], [10, 30, 10, 10, 30], lambda members: None)
    assert side.chunks(1000) == [[[0, 2, 3], [1, 4]]]
    assert side.chunks(50) == [[[0, 2, 3]], [[1]], [[4]]]
    assert side.chunks(60) == [[[0, 2, 3], [1]], [[4]]]
    assert side.chunks(1) == [[[0]], [[2]], [[3]], [[1]], [[4]]]


@pytest.mark.parametrize("bound", [1, 50, 1000])
@pytest.mark.parametrize("others", [None, 3])
def test_stacks_meet_once(bound, others):
    def side(widths):
        return spectral_batched._Side(widths, [10] * len(widths), tuple)

    x, y = side([16, 48, 16, 32]), others and side([16] * others)
    met = [
        tuple(sorted(pair)) if y is None else pair
        for a, b in spectral_batched._stack_pairs(x, y, bound)
        for pair in ((i, j) for i in a for j in b if a is not b or i <= j)
    ]
    wanted = [(i, j) for i in range(4) for j in (range(i, 4) if y is None else range(others))]
    assert sorted(met) == wanted


def test_every_layer_is_centred_once(monkeypatch):
    centred = []
    of_one = spectral_batched.centred_columns
    monkeypatch.setattr(
        spectral_batched, "centred_columns", lambda x: centred.append(x) or of_one(x)
    )
    spectral_batched.OPERATORS["nuclear_norms"](layers_of(WIDTHS), [], 10**9)
    assert len(centred) == len(WIDTHS)


@pytest.mark.parametrize("interface", LOWER)
def test_precision_of_the_caller_is_left_alone(interface):
    with lower_precision(interface):
        chosen = precisions()
        spectral_batched.OPERATORS["principal_components"]([torch.randn(10, 3)], False)
        assert precisions() == chosen
        if interface == "set_float32_matmul_precision":
            assert torch.get_float32_matmul_precision() == "medium"
            assert torch.backends.cuda.matmul.allow_tf32  # reads both interfaces
        if interface == "backends.fp32_precision":  # products still follow it
            torch.backends.fp32_precision = "ieee"
            assert precisions() == ["ieee", "ieee"]


@pytest.mark.parametrize("interface", ["set_float32_matmul_precision", "allow_tf32"])
def test_the_older_interface_can_be_read_inside(interface):
    """torch reads it within products on a GPU, and refuses where its interfaces disagree."""
    with lower_precision(interface):
        chosen = precisions()
        with full_float32():
            assert not torch.backends.cuda.matmul.allow_tf32
            assert precisions()[0] == "ieee"
        assert torch.backends.cuda.matmul.allow_tf32
        assert precisions() == chosen


def test_threads_that_overlap_leave_the_precision_as_it_was():
    inside, leave = threading.Event(), threading.Event()

    def other():
        with full_float32():
            inside.set()
            leave.wait(10)

    with lower_precision("matmul.fp32_precision"):
        thread = threading.Thread(target=other)
        with full_float32():
            thread.start()
            assert inside.wait(10)
        assert precisions() == ["ieee", "ieee"]  # the other thread still needs it
        leave.set()
        thread.join()
        assert precisions() == ["tf32", "tf32"]
