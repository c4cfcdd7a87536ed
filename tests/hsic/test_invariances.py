"""Identities of CKA and HSIC beside those of all measures (grid/test_invariances.py)."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore import cka_grid, hsic_grid
from support import tolerance
from support.cases import ESTIMATORS, Case, layers

few = settings(max_examples=12)


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


@few
@given(pair=grids(), scale=st.floats(0.01, 100))
def test_linear_hsic_is_quadratic_in_each_argument(pair, scale):
    x, y = pair
    for estimator in ESTIMATORS:
        want = scale**2 * hsic_grid(x, y, estimator=estimator)
        assert_same(hsic_grid([scale * layer for layer in x], y, estimator=estimator), want)


@few
@given(pair=grids())
def test_side_by_side_columns_add_their_hsic(pair):
    """The linear Gram of concatenated neurons is the sum of the Grams."""
    x, y = pair
    for estimator in ESTIMATORS:
        total = hsic_grid(x, y, estimator=estimator).sum(dim=0, keepdim=True)
        assert_same(hsic_grid([torch.cat(x, dim=1)], y, estimator=estimator), total)


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
