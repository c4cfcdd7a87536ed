"""What must not change a result: repetition, threads, memory limits, path, layer order."""

import numpy as np
import pytest
import torch

from simcore import cka_grid, hsic_grid, plan_cka
from support import tolerance
from support.cases import DTYPES, ESTIMATORS, KERNELS, Case, layers

PATHS = [("linear", "gram"), ("linear", "feature"), ("rbf", "gram")]
CASE = Case(257, offset=10.0, widths=(40, 7, 129, 64))  # no size divides a tile


@pytest.mark.parametrize(("kernel", "method"), PATHS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_repetition_is_bit_equal(dtype, estimator, kernel, method):
    x, y = layers(CASE, dtype), layers(CASE, dtype, seed=1)
    options = {"kernel": kernel, "estimator": estimator, "method": method}
    torch.set_num_threads(2)
    for other in (None, y):
        first = hsic_grid(x, other, **options)
        for _ in range(5):
            assert torch.equal(hsic_grid(x, other, **options), first)


def smallest_memory(x, options):
    """The least ``max_memory`` that the planner accepts for this input, within a factor of two."""
    limit = 2**30
    while True:
        try:
            plan_cka(x, max_memory=limit // 2, **options)
        except ValueError:
            return limit
        limit //= 2


@pytest.mark.parametrize(("kernel", "method"), PATHS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_memory_limit_does_not_matter(dtype, estimator, kernel, method):
    x = layers(CASE, dtype)
    options = {"kernel": kernel, "estimator": estimator, "method": method}
    want = cka_grid(x, **options)
    least = smallest_memory(x, options)
    for limit in (least, 2 * least, 5 * least, 2**33):
        tolerance.assert_same(cka_grid(x, max_memory=limit, **options), want, dtype)


def test_memory_limit_changes_the_tile():
    """Otherwise the test above compares nothing."""
    x = layers(Case(700, widths=(64, 64, 64, 64)))
    least = smallest_memory(x, {"method": "gram"})
    small = plan_cka(x, method="gram", max_memory=least)
    assert small.tile < plan_cka(x, method="gram", max_memory=2**33).tile


@pytest.mark.parametrize(("kernel", "method"), PATHS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_threads_do_not_matter(dtype, estimator, kernel, method):
    x = layers(CASE, dtype)
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        results.append(cka_grid(x, kernel=kernel, estimator=estimator, method=method).clone())
    for result in results[1:]:
        tolerance.assert_same(result, results[0], dtype)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [5, 64, 257])
def test_gram_and_feature_agree(n, dtype, estimator):
    x = layers(Case(n, offset=10.0, widths=(40, 7, 65)), dtype)
    y = layers(Case(n, outlier=True, widths=(3, 90)), dtype, seed=1)
    for other in (None, y):
        by_gram = cka_grid(x, other, estimator=estimator, method="gram")
        by_feature = cka_grid(x, other, estimator=estimator, method="feature")
        tolerance.assert_same(by_feature, by_gram, dtype)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_entry_depends_on_its_pair_only(dtype, estimator, kernel):
    x = layers(CASE, dtype)
    options = {"kernel": kernel, "estimator": estimator}
    grid = cka_grid(x, **options)
    order = [2, 0, 3, 1]
    shuffled = cka_grid([x[i] for i in order], **options)
    tolerance.assert_same(shuffled, grid[order][:, order], dtype)
    tolerance.assert_same(cka_grid(x[1:2], x[3:], **options), grid[1:2, 3:], dtype)


def test_progress_changes_nothing_and_is_shown(capfd):
    x = layers(CASE)
    want = cka_grid(x)
    assert capfd.readouterr() == ("", "")
    np.testing.assert_array_equal(cka_grid(x, progress=True), want)
    shown = capfd.readouterr()
    assert shown.err.strip()
    assert not shown.out  # standard output belongs to results


def test_more_layers_than_one_tile_holds():
    """Many narrow layers: the grid itself, not the Gram tiles, is what has to be blocked."""
    x = layers(Case(40, widths=(2,) * 150), torch.float32)
    grid = cka_grid(x)
    assert grid.shape == (150, 150)
    tolerance.assert_same(grid[140:, :7], cka_grid(x[140:], x[:7]), torch.float32)
