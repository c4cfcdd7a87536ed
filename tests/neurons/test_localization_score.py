"""`localization_score` against its twin, and what it leaves out."""

import warnings

import numpy as np
import pytest
import torch

from simcore import localization_score, neuronsim_grid, reference, svcca_grid
from support import tolerance
from support.cases import Case, exact, layers


def grids(n=90, widths=(12, 7, 20, 9)):
    x = layers(Case(n, 10.0, widths=widths))
    return neuronsim_grid(x), svcca_grid(x)


def test_against_the_twin():
    neuronsim, svsim = grids()
    got = localization_score(neuronsim, svsim)
    assert got.dtype == torch.float64
    want = reference.localization_score(*exact([neuronsim, svsim]))
    tolerance.assert_close(got, want, torch.float64)
    tolerance.assert_close(got + svsim.mean(), want + float(svsim.mean()), torch.float64)


def test_standardised_means_against_the_twin():
    neuronsim, svsim = grids()
    got = localization_score(neuronsim, svsim, standardize=True)
    want = reference.localization_score(*exact([neuronsim, svsim]), standardize=True)
    tolerance.assert_close(got + 10, want + 10, torch.float64)
    shifted = localization_score(3 * neuronsim + 1, svsim, standardize=True)
    tolerance.assert_close(shifted + 10, want + 10, torch.float64)
    assert not np.allclose(got, localization_score(neuronsim, svsim))


def test_equal_means_cannot_be_standardised():
    neuronsim, _ = grids()
    equal = torch.full_like(neuronsim, 0.1)
    assert localization_score(neuronsim, equal, standardize=True).isnan().all()


def test_against_other_layers():
    neuronsim, svsim = grids()
    got = localization_score(neuronsim[:2], svsim[:2], same=False)
    want = reference.localization_score(*exact([neuronsim[:2], svsim[:2]]), same=False)
    tolerance.assert_close(got, want, torch.float64)
    want = exact([neuronsim])[0].mean(0) - exact([svsim])[0].mean(0)
    tolerance.assert_close(localization_score(neuronsim, svsim, same=False), want, torch.float64)


def test_a_layer_itself_is_left_out():
    neuronsim = torch.tensor([[9.0, 0.6], [0.8, 9.0]], dtype=torch.float64)
    got = localization_score(neuronsim, torch.full((2, 2), 0.5))
    tolerance.assert_close(got, [0.3, 0.1], torch.float64)


def test_undefined_layers_are_left_out_and_stay_undefined():
    neuronsim, svsim = grids()
    keep = [0, 1, 3]
    known = [grid[keep][:, keep] for grid in (neuronsim, svsim)]
    for grid in (neuronsim, svsim):
        grid[2], grid[:, 2] = torch.nan, torch.nan
    for standardize in (False, True):
        got = localization_score(neuronsim, svsim, standardize=standardize)
        assert got[2].isnan()
        want = localization_score(*known, standardize=standardize)
        tolerance.assert_close(got[keep] + 10, want + 10, torch.float64)


@pytest.mark.parametrize("standardize", [False, True])
def test_a_single_layer_has_nothing_to_be_compared_with(standardize):
    for count in (0, 1):
        grid = torch.ones(count, count)
        got = localization_score(grid, grid, standardize=standardize)
        assert got.isnan().tolist() == [True] * count


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_arrays_in_arrays_out_and_nothing_is_modified(dtype):
    neuronsim, svsim = (grid.to(dtype) for grid in grids())
    before = neuronsim.clone(), svsim.clone()
    want = localization_score(neuronsim, svsim)
    arrays = [neuronsim.numpy().copy(), svsim.numpy().copy()]
    for array in arrays:
        array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = localization_score(*arrays)
    assert isinstance(got, np.ndarray)
    assert got.dtype == np.float64
    np.testing.assert_array_equal(got, want)
    assert torch.equal(neuronsim, before[0])
    assert torch.equal(svsim, before[1])


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("same", [False, True])
def test_gradcheck(same, standardize):
    inputs = [torch.as_tensor(grid).double().requires_grad_() for grid in grids()]

    def score(neuronsim, svsim):
        return localization_score(neuronsim, svsim, same=same, standardize=standardize)

    assert torch.autograd.gradcheck(score, inputs)
