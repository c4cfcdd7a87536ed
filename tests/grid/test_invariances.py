"""Identities of the measures, and values that are known because the layers were built so."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore import neuron_partners
from support import tolerance
from support.cases import DTYPES, Case, exact
from support.changes import changed
from support.correlated import orthonormal, pair_with_correlations
from support.measure_table import (
    CCA,
    CCA_R2,
    CKAS,
    LINEAR,
    LINREG,
    MEASURES,
    MIXEDSIM,
    NEURONSIM,
    PROCRUSTES,
    PWCCA,
    RSA,
    RSA_SPEARMAN,
    SVCCA,
    Measure,
)

FLOAT64 = torch.float64


@st.composite
def pairs(draw):
    """Two lists of layers narrow enough that no two of them fill the space of the examples."""
    n = draw(st.integers(40, 70))
    widths = st.lists(st.integers(5, 9), min_size=1, max_size=3).map(tuple)
    offset, outlier = draw(st.sampled_from([0.0, 3.0, 100.0])), draw(st.booleans())
    case = Case(n, offset, outlier, draw(widths))
    x = SVCCA.layers(case, seed=draw(st.integers(0, 99)))
    y = SVCCA.layers(Case(n, widths=draw(widths)), seed=draw(st.integers(100, 199)))
    return x, y


def assert_same(got, want):
    """The squared condition of an outlier dimension is what invariance may cost."""
    tolerance.assert_measure(got, want, FLOAT64, condition=tolerance.DRAWN_CONDITION)


few = settings(max_examples=4)
ROWS = (*MEASURES, *CKAS)
EVERY = pytest.mark.parametrize("measure", ROWS, ids=str)


@EVERY
@few
@given(pair=pairs(), shift=st.floats(-50, 50), scale=st.floats(0.01, 100))
def test_translation_and_isotropic_scale(measure, pair, shift, scale):
    x, y = pair
    want = measure(x, y)
    for factor in (scale, -scale) if measure.any_translation else (scale,):
        moved = [factor * layer + shift for layer in x]
        if measure.any_translation:
            moved = [layer + torch.arange(layer.shape[1]) for layer in moved]
        assert_same(measure(moved, y), want)
    assert_same(measure(y, [scale * layer + shift for layer in x]), measure(y, x))


@EVERY
@few
@given(pair=pairs(), seed=st.integers(0, 99))
def test_invariances_of_either_argument(measure, pair, seed):
    x, y = pair
    want = measure(x, y)
    for kind in measure.invariant_x:
        assert_same(measure([changed(kind, layer, seed) for layer in x], y), want)
    for kind in measure.invariant_y:
        assert_same(measure(x, [changed(kind, layer, seed) for layer in y]), want)


@EVERY
def test_what_a_measure_is_not_invariant_to(measure):
    """Measures that ignore more than they should would pass the test above."""
    case = Case(60, widths=(6, 9))
    x, y = measure.layers(case), measure.layers(case, seed=1)
    want = measure(x, y)

    def change(got):
        return float((got - want).abs().max())

    for kind in LINEAR - measure.invariant_x:
        found = change(measure([changed(kind, layer, 3) for layer in x], y))
        assert found > tolerance.CHANGE, f"X: {kind}"
    for kind in LINEAR - measure.invariant_y:
        found = change(measure(x, [changed(kind, layer, 3) for layer in y]))
        assert found > tolerance.CHANGE, f"Y: {kind}"


@EVERY
@few
@given(pair=pairs())
def test_symmetry_range_and_self_similarity(measure, pair):
    x, y = pair
    grid, back = measure(x, y), measure(y, x)
    if measure.symmetric:
        assert_same(back.T, grid)
    assert_same(measure(x).diagonal(), np.ones(len(x)))
    estimated = measure.options.get("estimator") == "unbiased"
    least = -1 if measure.function == "rsa_grid" or estimated else 0
    assert bool(((grid >= least) & (grid <= 1)).all())


@pytest.mark.parametrize("measure", [m for m in MEASURES if not m.symmetric], ids=str)
def test_asymmetric_measures_are_asymmetric(measure):
    x, y = measure.layers(Case(60, widths=(4, 4))), measure.layers(Case(60, widths=(9,)), seed=1)
    assert float((measure(x, y) - measure(y, x).T).abs().max()) > tolerance.CHANGE


@EVERY
@few
@given(pair=pairs(), seed=st.integers(0, 99))
def test_order_of_the_examples_does_not_matter(measure, pair, seed):
    x, y = pair
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(x[0])))
    shuffled = measure([layer[order] for layer in x], [layer[order] for layer in y])
    assert_same(shuffled, measure(x, y))


@EVERY
@few
@given(pair=pairs())
def test_drawn_grids_agree_with_the_twin(measure, pair):
    x, y = pair
    assert_same(measure(x, y), measure.twin(x, y))


RHO = np.array([0.95, 0.7, 0.5, 0.25, 0.0])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_canonical_correlations_are_recovered(dtype):
    x, y = ([torch.from_numpy(side).to(dtype)] for side in pair_with_correlations(RHO))
    tolerance.assert_measure(CCA(x, y), [[RHO.mean()]], dtype)
    tolerance.assert_measure(CCA_R2(x, y), [[np.mean(RHO**2)]], dtype)
    # Each of them: the directions of x one after another.
    for kept in range(1, 5):
        want = [[RHO[:kept].mean()]]
        narrow = [torch.from_numpy(orthonormal(60, 10)[:, :kept]).to(dtype)]
        tolerance.assert_measure(CCA(narrow, y), want, dtype)
        tolerance.assert_measure(CCA(x, narrow), [[1.0]], dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("measure", [m for m in MEASURES if m.function != "rsa_grid"], ids=str)
def test_orthogonal_spaces_have_nothing_in_common(measure, dtype):
    q = torch.from_numpy(orthonormal(80, 9)).to(dtype)
    x, y = [q[:, :4] * torch.arange(1, 5)], [q[:, 4:]]
    for pair in ((x, y), (y, x)):
        grid = measure(*pair)
        # Beside 1, which the tolerance of float64 is relative to.
        tolerance.assert_measure([[1.0 + grid.item()]], [[1.0]], dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_pwcca_where_every_correlation_is_exactly_zero(dtype):
    x = torch.tensor([[1.0, -1, 0, 0], [0, 0, 1, -1]], dtype=dtype).T
    y = torch.tensor([[1.0], [1], [-1], [-1]], dtype=dtype)
    for pair in (([x], [y]), ([y], [x])):
        # Beside 1, which the tolerance of float64 is relative to.
        tolerance.assert_measure([[1.0 + PWCCA(*pair).item()]], [[1.0]], dtype)


@pytest.mark.parametrize("smallest", [1.2e-2, 5e-3, 1.2e-3, 1e-5])
def test_pwcca_of_small_correlations(smallest):
    """Their squares, which one decomposition works on, are as near as rounding to each other."""
    rho = np.geomspace(0.999, smallest, 40)
    q = orthonormal(600, 80)
    lengths = np.random.default_rng(0).permutation(np.linspace(1, 50, 40))
    x = torch.from_numpy(q[:, :40] * lengths).float()
    y = torch.from_numpy(q[:, :40] * rho + q[:, 40:] * np.sqrt(1 - rho**2)).float()
    error = tolerance.max_error(PWCCA([x], [y]), PWCCA.twin([x], [y]))
    assert error <= tolerance.FLOAT32_CLOSE_CORRELATIONS


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("measure", [LINREG, MIXEDSIM, CCA, CCA_R2, PWCCA], ids=str)
def test_a_layer_is_explained_by_every_layer_that_contains_it(measure, dtype):
    x = measure.layers(Case(90, 10.0, widths=(6,)), dtype)
    more = measure.layers(Case(90, widths=(14,)), dtype, seed=1)[0]
    y = [changed("linear", torch.cat([x[0], more], dim=1), 0)]
    tolerance.assert_measure(measure(x, y), [[1.0]], dtype)
    assert measure(y, x).item() < 1 - tolerance.CHANGE or measure in (CCA, CCA_R2, PWCCA)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_share_of_variance_and_weights(dtype):
    """Two orthogonal neurons of length 3 and 1, of which the other layer holds the first."""
    q = torch.from_numpy(orthonormal(50, 4)).to(dtype)
    x, y = [q[:, :2] * torch.tensor([3.0, 1.0])], [q[:, [0, 2]]]
    for measure, there, back in (
        (PWCCA, 0.75, 0.5),
        (LINREG, 0.9, 0.5),
        (MIXEDSIM, 0.5, 0.5),
        (NEURONSIM, 0.5, 0.5),
        (CCA, 0.5, 0.5),
        (PROCRUSTES, 3 / np.sqrt(20), 3 / np.sqrt(20)),
    ):
        tolerance.assert_measure(measure(x, y), [[there]], dtype)
        tolerance.assert_measure(measure(y, x), [[back]], dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("widths", [(9,), (200,)], ids=str)
def test_procrustes_of_a_rotated_and_scaled_copy(widths, dtype):
    x = PROCRUSTES.layers(Case(80, 10.0, True, widths))
    turned = [3 * changed("rotation", layer, 0) + 2 for layer in x]
    got = PROCRUSTES([layer.to(dtype) for layer in x], [layer.to(dtype) for layer in turned])
    tolerance.assert_measure(got, [[1.0]], dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_neurons_find_their_partners(dtype):
    generator = np.random.default_rng(0)
    x = NEURONSIM.layers(Case(150, 10.0, True, (70, 30)), dtype)
    orders = [torch.from_numpy(generator.permutation(layer.shape[1])) for layer in x]
    scales = [torch.from_numpy(generator.uniform(0.1, 9, len(order))) for order in orders]
    changed = [
        (-scale * layer[:, order].double() + 5).to(dtype)
        for layer, order, scale in zip(x, orders, scales, strict=True)
    ]
    grid, best, partner = neuron_partners(x, changed)
    tolerance.assert_measure(grid.diagonal(), np.ones(2), dtype)
    for i, order in enumerate(orders):
        np.testing.assert_array_equal(partner[i][:, i], order.argsort())
        tolerance.assert_measure(best[i][:, i], np.ones(len(order)), dtype)


def test_rsa_ignores_scale_and_offset_of_single_rows():
    x = RSA.layers(Case(40, widths=(9,)))[0]
    generator = torch.Generator().manual_seed(0)
    scale, offset = torch.rand(2, 40, 1, generator=generator, dtype=FLOAT64) + 0.5
    other = RSA.layers(Case(40, widths=(7,)), seed=1)
    for measure in (RSA, RSA_SPEARMAN):
        assert_same(measure([scale * x + offset], other), measure([x], other))


def test_rsa_of_opposite_geometries():
    """Three rows: the one pair that is close in one layer is the far one in the other."""
    x = np.array([[1.0, 0, 0, -1], [1.0, 0.1, 0, -1.1], [-1.0, 2, 0, -1]])
    y = np.array([[1.0, 0, 0, -1], [-1.0, 0, 0, 1], [0, 1.0, -1, 0]])
    sides = [torch.from_numpy(x)], [torch.from_numpy(y)]
    assert_same(RSA_SPEARMAN(*sides), RSA_SPEARMAN.twin(*sides))
    assert RSA(*sides).item() < 0


def test_the_table_knows_every_option():
    """A misspelt option in the table would make a row test what another row tests already."""
    x = exact(SVCCA.layers(Case(60, widths=(12, 20))))
    values = {}
    for measure in MEASURES:
        assert isinstance(measure, Measure)
        values[measure.name] = float(measure(x)[0, 1])
    assert len({round(value, 6) for value in values.values()}) == len(MEASURES)
