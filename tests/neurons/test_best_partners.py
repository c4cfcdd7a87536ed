"""The best partner of every neuron: values and which neuron it is."""

import numpy as np
import pytest
import torch

from simcore import mixedsim_grid, neuron_partners, neuronsim_grid, reference
from support import tolerance
from support.cases import DTYPES, HALVES, Case, exact
from support.measure_table import NEURONSIM


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("dtype", DTYPES + HALVES, ids=str)
def test_best_partners(dtype, cross):
    x = NEURONSIM.layers(Case(129, 10.0, widths=(7, 1, 40)), dtype)
    y = NEURONSIM.layers(Case(129, outlier=True, widths=(12, 5)), dtype, seed=1) if cross else None
    grid, best, partner = neuron_partners(x, y)
    tolerance.assert_measure(grid, NEURONSIM.twin(x, y), dtype)
    for i, layer in enumerate(exact(x)):
        for j, other in enumerate(exact(y or x)):
            want, which = reference.best_partners(layer, other)
            tolerance.assert_measure(best[i][:, j], want, dtype)
            # Where two neurons are as good as each other, rounding decides.
            at_partner = np.abs(reference.neurons.correlations(layer, other))[
                np.arange(layer.shape[1]), partner[i][:, j]
            ]
            tolerance.assert_measure(at_partner, want, dtype)
            if dtype == torch.float64 and not (i == j and not cross):
                np.testing.assert_array_equal(partner[i][:, j], which)
    assert {values.dtype for values in best} == {torch.float64}
    assert {values.dtype for values in partner} == {torch.int64}


def test_a_neuron_without_variance_is_nobody_s_partner():
    """Even where the only other neuron is correlated by no more than rounding."""
    x, y = np.random.default_rng(0).standard_normal((2, 60, 5))
    basis, _ = np.linalg.qr(x - x.mean(0))
    alone = y[:, 3] - y[:, 3].mean()
    y[:] = 2.0
    y[:, 3] = alone - basis @ (basis.T @ alone)
    for dtype in DTYPES:
        sides = [[torch.from_numpy(layer).to(dtype)] for layer in (x, y)]
        assert neuron_partners(*sides).partner[0].flatten().tolist() == [3] * 5


def test_equal_partners_give_the_first():
    x = NEURONSIM.layers(Case(40, widths=(3,)))[0]
    doubled = torch.cat([x, x, -x], dim=1)
    for dtype in DTYPES:
        mixed = doubled.to(dtype)[:, [0, 3, 6, 1, 4, 7, 2, 5, 8]]
        assert neuron_partners([x.to(dtype)], [mixed]).partner[0].flatten().tolist() == [0, 3, 6]


def test_many_rows_lose_no_digits():
    """Float32 products of few columns run over all rows in one go."""
    generator = torch.Generator().manual_seed(0)
    shared = torch.randn(300_000, 1, generator=generator)
    x, y = (shared + 0.01 * torch.randn(300_000, 4, generator=generator) for _ in range(2))
    want = neuronsim_grid([x.double()], [y.double()])
    tolerance.assert_measure(neuronsim_grid([x], [y]), want, torch.float32)


def test_terms_of_equal_rows_do_not_add_up_their_rounding():
    """Sums over rows of which most are equal, of layers that have one direction."""
    generator = torch.Generator().manual_seed(1)
    places = torch.rand(2, 3000, generator=generator) > 0.95
    x = [torch.randn(2, 40, generator=generator)[rows.int()] for rows in places]
    for grid in (mixedsim_grid, neuronsim_grid):
        error = grid(x) - grid([layer.double() for layer in x])
        assert error.abs().max() < 1e-6
