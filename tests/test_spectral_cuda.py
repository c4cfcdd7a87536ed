"""The spectral operators of a CUDA device on CPU tensors: the CPU tests' jobs and tolerances."""

import numpy as np
import pytest
import test_measures_accuracy
import tolerance
import torch
from cases import DTYPES, Case

import simcore.basis
import simcore.cca
from simcore import _spectral_cuda
from simcore._spectral_cuda import nuclear_norms_of, polar_steps

FAMILY = {"cca_grid", "svcca_grid", "pwcca_grid", "linreg_grid", "procrustes_grid", "mixedsim_grid"}
JOBS = [job for job in test_measures_accuracy.JOBS if job[0].function in FAMILY]
pytestmark = pytest.mark.filterwarnings("ignore:.*canonical correlations are all 1")


@pytest.fixture
def device_operators(monkeypatch):
    for module, name in (
        (simcore.basis, "principal_components"),
        (simcore.cca, "nuclear_norms"),
        (simcore.cca, "pwcca"),
    ):
        monkeypatch.setattr(module, name, _spectral_cuda.OPERATORS[name])


@pytest.mark.parametrize(("measure", "case"), JOBS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.usefixtures("device_operators")
def test_grids_match_the_twins(dtype, measure, case):
    x = measure.layers(case, dtype)
    tolerance.assert_measure(measure(x), measure.twin(x), dtype)
    y = measure.layers(Case(case.n, 10.0, widths=(12, 5)), dtype, seed=1)
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
    torch.testing.assert_close(nuclear_norms_of(m), want, rtol=2e-6, atol=0)


def test_spectra_that_decay_fall_short_by_what_is_stated():
    generator = torch.Generator().manual_seed(0)
    u, v = (torch.linalg.qr(torch.randn(100, 100, generator=generator)).Q for _ in range(2))
    for s in (torch.logspace(0, -12, 100), torch.eye(100)[0], torch.ones(100)):
        m = (u * s) @ v.mT
        error = nuclear_norms_of(m[None])[0] - torch.linalg.svdvals(m.double()).sum()
        assert abs(float(error)) < 2e-6 * float(s.sum())


def test_zeros_have_norm_zero():
    assert nuclear_norms_of(torch.zeros(2, 3, 4)).tolist() == [0.0, 0.0]


@pytest.mark.usefixtures("device_operators")
def test_memory_only_cuts_batches():
    x = torch.randn(5, 60, 12, generator=torch.Generator().manual_seed(0))
    want = simcore.svcca_grid(x)
    got = simcore.svcca_grid(x, max_memory=400_000)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-6)


def test_precision_of_the_caller_is_left_alone():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        _spectral_cuda.OPERATORS["principal_components"]([torch.randn(10, 3)], False)
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)
