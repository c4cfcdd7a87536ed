"""Identities that CKA and HSIC fulfil by definition, partly as properties over drawn inputs."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore import cka_grid, hsic_grid, reference
from support import tolerance
from support.cases import ESTIMATORS, KERNELS, Case, layers

OPTIONS = [{"kernel": k, "estimator": e} for k in KERNELS for e in ESTIMATORS]
few = settings(max_examples=12)
IDS = [f"{o['kernel']}-{o['estimator']}" for o in OPTIONS]


@st.composite
def grids(draw):
    """Two lists of layers of drawn widths over drawn n, with a drawn common offset."""
    n = draw(st.integers(8, 40))
    widths = st.lists(st.integers(1, 20), min_size=1, max_size=4).map(tuple)
    offset = draw(st.sampled_from([0.0, 3.0, 100.0]))
    outlier = draw(st.booleans())
    x = layers(Case(n, offset, outlier, draw(widths)), seed=draw(st.integers(0, 99)))
    y = layers(Case(n, widths=draw(widths)), seed=draw(st.integers(100, 199)))
    return x, y


def orthogonal(width, seed=0):
    q, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((width, width)))
    return torch.from_numpy(q)


def assert_same(got, want):
    tolerance.assert_same(got, want, torch.float64)


@pytest.mark.parametrize("options", OPTIONS, ids=IDS)
@few
@given(pair=grids(), shift=st.floats(-50, 50), scale=st.floats(0.01, 100))
def test_translation_and_isotropic_scale(options, pair, shift, scale):
    x, y = pair
    assert_same(
        cka_grid([scale * layer + shift for layer in x], y, **options), cka_grid(x, y, **options)
    )


@pytest.mark.parametrize("options", OPTIONS, ids=IDS)
@few
@given(pair=grids(), seed=st.integers(0, 99))
def test_orthogonal_transform(options, pair, seed):
    x, y = pair
    turned = [layer @ orthogonal(layer.shape[1], seed) for layer in x]
    assert_same(cka_grid(turned, y, **options), cka_grid(x, y, **options))


@pytest.mark.parametrize("options", OPTIONS, ids=IDS)
@few
@given(pair=grids())
def test_transpose_symmetry(options, pair):
    x, y = pair
    for grid in (cka_grid, hsic_grid):
        assert_same(grid(y, x, **options).T, grid(x, y, **options))


@pytest.mark.parametrize("options", OPTIONS, ids=IDS)
@few
@given(pair=grids())
def test_self_similarity_is_one(options, pair):
    x, _ = pair
    assert_same(cka_grid(x, **options).diagonal(), np.ones(len(x)))


@pytest.mark.parametrize("options", OPTIONS, ids=IDS)
@few
@given(pair=grids())
def test_cka_lies_between_its_bounds(options, pair):
    x, y = pair
    grid = cka_grid(x, y, **options)
    least = 0 if options["estimator"] == "biased" else -1
    assert bool((grid >= least - tolerance.FLOAT64_RELATIVE).all())
    assert bool((grid <= 1 + tolerance.FLOAT64_RELATIVE).all())


@pytest.mark.parametrize("options", OPTIONS, ids=IDS)
@few
@given(pair=grids(), seed=st.integers(0, 99))
def test_order_of_the_examples_does_not_matter(options, pair, seed):
    x, y = pair
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(x[0])))
    assert_same(
        cka_grid([layer[order] for layer in x], [layer[order] for layer in y], **options),
        cka_grid(x, y, **options),
    )


@given(pair=grids(), scale=st.floats(0.01, 100))
def test_linear_hsic_is_quadratic_in_each_argument(pair, scale):
    x, y = pair
    for estimator in ESTIMATORS:
        want = scale**2 * hsic_grid(x, y, estimator=estimator)
        assert_same(hsic_grid([scale * layer for layer in x], y, estimator=estimator), want)


@given(pair=grids())
def test_side_by_side_columns_add_their_hsic(pair):
    """The linear Gram of concatenated neurons is the sum of the Grams."""
    x, y = pair
    for estimator in ESTIMATORS:
        total = hsic_grid(x, y, estimator=estimator).sum(dim=0, keepdim=True)
        assert_same(hsic_grid([torch.cat(x, dim=1)], y, estimator=estimator), total)


@pytest.mark.parametrize("options", OPTIONS, ids=IDS)
@few
@given(pair=grids())
def test_drawn_grids_agree_with_the_twin(options, pair):
    x, y = ([layer.numpy() for layer in side] for side in pair)
    want = reference.hsic_grid(x, y, **options)
    tolerance.assert_close(hsic_grid(x, y, **options), want, torch.float64)


def test_linear_map_does_change_cka():
    """CKA is not invariant to invertible maps; a measure that is would be another one."""
    x = layers(Case(33, widths=(6,)))
    y = layers(Case(33, widths=(6,)), seed=1)
    stretched = [x[0] * torch.tensor([30.0, 1, 1, 1, 1, 1])]
    assert abs(cka_grid(stretched, y) - cka_grid(x, y)).item() > 0.01


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_independent_layers_are_told_from_related_ones(estimator):
    generator = np.random.default_rng(0)
    x = generator.standard_normal((400, 5))
    grid = cka_grid(
        [x],
        [x + 0.1, x @ orthogonal(5).numpy(), generator.standard_normal((400, 5))],
        estimator=estimator,
    )
    assert_same(grid[0, :2], np.ones(2))
    assert abs(grid[0, 2]) < 0.1
