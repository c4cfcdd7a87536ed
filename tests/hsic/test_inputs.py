"""What CKA and HSIC take and give, beside the contract of all grids: grid/test_inputs.py."""

import warnings

import numpy as np
import pytest
import torch

from simcore import cka_grid, hsic_grid, reference
from support import tolerance
from support.cases import DTYPES, ESTIMATORS, KERNELS, Case, exact, layers

GRIDS = [cka_grid, hsic_grid]
CASE = Case(33, offset=10.0)


@pytest.fixture(autouse=True)
def _warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("grid", GRIDS)
def test_shape_is_layers_of_x_by_layers_of_y(grid):
    x, y = layers(CASE), layers(Case(33, widths=(5, 6)), seed=1)
    assert grid(x).shape == (4, 4)
    assert grid(x, y).shape == (4, 2)
    assert grid(x[:1]).shape == (1, 1)
    assert grid(x[:1], y).shape == (1, 2)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_x_with_itself_is_symmetric_and_equals_x_given_twice(dtype, estimator, kernel, grid):
    x = layers(CASE, dtype)
    options = {"kernel": kernel, "estimator": estimator}
    once = grid(x, **options)
    np.testing.assert_array_equal(once, once.T)
    tolerance.assert_same(grid(x, [t.clone() for t in x], **options), once, dtype)


def test_broadcast_rows_of_an_expanded_tensor():
    x = layers(CASE)
    column = torch.arange(33.0, dtype=torch.float64)[:, None]
    got = cka_grid([*x, column.expand(33, 4)])
    tolerance.assert_same(got, cka_grid([*x, column.repeat(1, 4)]), torch.float64)


CONSTANTS = [(torch.float32, 0.1), (torch.float64, -1000.3), (torch.float64, 0.0)]


def with_constant(case, value, dtype):
    """Four layers of which the third is constant over the rows (columns may differ)."""
    x = layers(case, dtype)
    x[2] = torch.full_like(x[2], value) + torch.arange(x[2].shape[1], dtype=dtype)
    return x


@pytest.mark.parametrize(
    ("dtype", "value"),
    [(torch.float32, 0.1), (torch.float64, -1000.3), (torch.float64, 0.0)],
    ids=str,
)
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(
    ("kernel", "method"), [("linear", "gram"), ("linear", "feature"), ("rbf", "gram")]
)
def test_constant_layer_gives_nan_and_one_warning(kernel, method, estimator, dtype, value):
    x = with_constant(CASE, value, dtype)
    options = {"kernel": kernel, "estimator": estimator, "method": method}
    with pytest.warns(Warning, match=r"X.*\b2\b") as record:
        got = cka_grid(x, **options)
    assert len(record) == 1
    assert got[2].isnan().all()
    assert got[:, 2].isnan().all()
    keep = [0, 1, 3]
    want = cka_grid([x[i] for i in keep], **options)
    tolerance.assert_same(got[keep][:, keep], want, dtype)


def test_constant_layers_in_both_arguments_still_warn_once():
    x, y = with_constant(CASE, 0.1, torch.float64), with_constant(CASE, 3.0, torch.float64)
    with pytest.warns(Warning, match=r"X.*\b2\b.*Y.*\b2\b") as record:
        got = cka_grid(x, y)
    assert len(record) == 1
    want = np.zeros((4, 4), dtype=bool)
    want[2], want[:, 2] = True, True
    np.testing.assert_array_equal(got.isnan(), want)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("method", ["gram", "feature"])
def test_linear_hsic_of_a_constant_layer_is_zero(method, estimator):
    got = hsic_grid(with_constant(CASE, 0.1, torch.float64), estimator=estimator, method=method)
    assert not got[2].any()
    assert not got[:, 2].any()
    assert got[0, 0] > 0


def test_some_constant_columns_change_nothing():
    x = layers(CASE)
    padded = [torch.cat([layer, torch.full((33, 2), 0.1)], dim=1) for layer in x]
    tolerance.assert_same(cka_grid(padded), cka_grid(x), torch.float64)


def test_dtypes_may_differ_between_layers():
    x = layers(CASE)
    mixed = [x[0].to(torch.float32), x[1], x[2].to(torch.float32), x[3]]
    tolerance.assert_float32_cka(cka_grid(mixed), reference.cka_grid(exact(mixed)))
