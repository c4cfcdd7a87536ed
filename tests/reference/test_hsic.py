"""The twins against closed forms and other ways to write the same definition."""

import itertools
import math

import numpy as np
import pytest
import torch

from simcore import reference
from support import tolerance
from support.cases import ESTIMATORS, KERNELS, Case, exact, layers

X, Y = (array for array in exact(layers(Case(9, widths=(4, 6)))))


def assert_equal(got, want):
    tolerance.assert_close(np.array([got]), np.array([want]), torch.float64)


def test_center_removes_constant_columns_exactly():
    x = np.full((7, 2), 0.1)
    x[:, 1] = 1e9
    assert not reference.center(x).any()
    assert_equal(reference.center(X), X - X.mean(axis=0))


def test_center_leaves_its_input_alone():
    before = X.copy()
    reference.center(X)
    np.testing.assert_array_equal(X, before)


def test_width_is_the_median_over_ordered_pairs_with_the_diagonal():
    x = np.array([[0.0], [1.0], [3.0]])
    # squared distances: 0 0 0, 1 1, 4 4, 9 9: the fifth of nine is 1
    assert_equal(reference.rbf_width(x), 1.0)
    # an even count, 0 0 | 4 4: the mean of the middle two is 2
    assert_equal(reference.rbf_width(np.array([[0.0], [2.0]])), math.sqrt(2.0))
    assert_equal(reference.rbf_width(x, bandwidth=0.5), 0.5)


def test_rbf_gram_of_two_points():
    # s^2 = d^2 / 2 whatever the distance d, so the off-diagonal entry is exp(-1)
    want = np.array([[1.0, math.exp(-1)], [math.exp(-1), 1.0]])
    assert_equal(reference.gram(np.array([[0.0], [7.0]]), "rbf"), want)


def test_biased_linear_hsic_is_the_squared_cross_covariance():
    covariance = reference.center(X).T @ reference.center(Y) / (len(X) - 1)
    assert_equal(reference.hsic(X, Y), np.square(covariance).sum())


def test_biased_hsic_is_the_trace():
    k, m = reference.gram(X, "rbf"), reference.gram(Y, "rbf")
    h = np.eye(len(X)) - 1 / len(X)
    assert_equal(reference.hsic_biased(k, m), np.trace(k @ h @ m @ h) / (len(X) - 1) ** 2)


def test_unbiased_hsic_is_the_average_over_quadruples():
    """Song et al. 2012, theorem 3: the U-statistic over ordered quadruples of distinct rows."""
    x, y = X[:6], Y[:6]
    k, m = reference.gram(x), reference.gram(y)
    kernel = [
        k[i, j] * (m[i, j] + m[q, r] - 2 * m[i, q])
        for i, j, q, r in itertools.permutations(range(6), 4)
    ]
    assert_equal(reference.hsic(x, y, estimator="unbiased"), np.mean(kernel))


def test_unbiased_hsic_ignores_the_diagonal_and_centring():
    k, m = X @ X.T, Y @ Y.T
    assert_equal(reference.hsic(X, Y, estimator="unbiased"), reference.hsic_unbiased(k, m))
    shifted = k + np.diag(np.arange(9.0))
    assert_equal(reference.hsic_unbiased(shifted, m), reference.hsic_unbiased(k, m))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_grids_are_made_of_pairs(kernel, estimator):
    options = {"kernel": kernel, "estimator": estimator, "bandwidth": 0.7}
    x, y = exact(layers(Case(12))), exact(layers(Case(12, widths=(5, 6)), seed=1))
    for grid, pair in [(reference.hsic_grid, reference.hsic), (reference.cka_grid, reference.cka)]:
        want = np.array([[pair(a, b, **options) for b in y] for a in x])
        assert_equal(grid(x, y, **options), want)
        assert_equal(grid(x, **options), grid(x, x, **options))


def test_cka_of_orthogonal_directions_is_zero_and_of_copies_one():
    x = np.array([[1.0], [1.0], [-1.0], [-1.0]])
    y = np.array([[1.0], [-1.0], [1.0], [-1.0]])
    assert reference.cka(x, y) == 0.0
    assert_equal(reference.cka(x, 3 * x + 5), 1.0)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_constant_layer_is_nan_in_its_row_and_column_only(kernel, estimator):
    grid = reference.cka_grid([X, np.full((9, 3), 0.1)], kernel=kernel, estimator=estimator)
    np.testing.assert_array_equal(np.isnan(grid), [[False, True], [True, True]])


@pytest.mark.parametrize(("estimator", "n"), [("biased", 1), ("unbiased", 3)])
def test_too_few_rows(estimator, n):
    with pytest.raises(ValueError, match=f"layer 1.*got n = {n}"):
        reference.hsic(X, X[:n], estimator=estimator)


def test_unknown_names():
    with pytest.raises(ValueError, match="'poly'"):
        reference.cka(X, Y, kernel="poly")
    with pytest.raises(ValueError, match="'debiased'"):
        reference.cka(X, Y, estimator="debiased")


def test_minibatch_is_a_ratio_of_averages():
    batches = [[X[:4], Y[:4]], [X[4:], Y[4:]]]
    xy, xx, yy = (
        np.mean([reference.hsic(b[i], b[j], estimator="unbiased") for b in batches])
        for i, j in ((0, 1), (0, 0), (1, 1))
    )
    assert_equal(reference.minibatch_cka(batches)[0, 1], xy / math.sqrt(xx * yy))
    assert_equal(
        reference.minibatch_cka([[X, Y]]), reference.cka_grid([X, Y], estimator="unbiased")
    )
