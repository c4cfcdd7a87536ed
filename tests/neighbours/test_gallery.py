"""Curves of neighbours over the size of the gallery: twin, whole gallery, expectation, errors."""

import numpy as np
import pytest
import torch

from simcore import knn_curve, knn_grid, reference
from support import tolerance
from support.bad_inputs import assert_refused
from support.cases import DTYPES, exact


def drawn(n, dtype=torch.float64, offset=0.0):
    rng = np.random.default_rng(n)
    x, y = rng.standard_normal((2, n, 4)) + offset, rng.standard_normal((n, 6)) + offset
    x = [layer + (i and 0.5 * x[0]) for i, layer in enumerate(x)]
    return [torch.from_numpy(layer).to(dtype) for layer in x], [torch.from_numpy(y).to(dtype)]


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "inner"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("measure", ["mutual", "jaccard"])
def test_it_agrees_with_its_twin(measure, dtype, metric):
    for offset in (0.0, 1000.0 if dtype == torch.float64 else 1.0):
        x, y = drawn(90, dtype, offset)
        x[1][30:60] = x[1][:30]  # equally near rows
        options = {"measure": measure, "k": 4, "metric": metric, "galleries": [40, 90, 25]}
        order = np.random.default_rng(5).permutation(90)
        for other in (y, None):
            got = knn_curve(x, other, queries=21, seed=5, **options)
            options_of_twin = {**options, "galleries": [25, 40, 90], "queries": 21}
            want = reference.knn_curve(
                exact(x), exact(other) if other else None, order=order, **options_of_twin
            )
            assert got.galleries == (25, 40, 90)
            assert got.chance == (4 / 24, 4 / 39, 4 / 89)
            tolerance.assert_close(got.values, want[0], torch.float64)
            tolerance.assert_close(got.errors, want[1], torch.float64)


def test_a_gallery_of_queries_alone_is_the_grid():
    x, y = drawn(70)
    for measure in ("mutual", "jaccard"):
        got = knn_curve(x, y, k=5, measure=measure)  # 1,000 queries: all rows
        assert got.galleries == (70,)
        tolerance.assert_close(got.values[0], knn_grid(x, y, k=5, measure=measure), torch.float64)
        assert not got.errors.any()


def test_the_mean_over_queries_is_unbiased_and_errors_are_as_large_as_they_say():
    x = drawn(400)[0]
    whole = float(knn_grid(x[:1], x[1:])[0, 0])
    curves = [knn_curve(x[:1], x[1:], queries=40, seed=seed) for seed in range(150)]
    last = np.array([float(curve.values[-1]) for curve in curves])
    errors = np.array([float(curve.errors[-1]) for curve in curves])
    assert abs(last.mean() - whole) < 3.5 * last.std() / 150**0.5
    assert 0.8 < last.std() / errors.mean() < 1.25
    # A gallery of 100 rows has another value than one of 400.
    assert curves[0].galleries == (50, 100, 200, 400)
    assert float(curves[0].values[0] - curves[0].values[-1]) > 5 * errors.mean()


def test_numpy_memory_and_layers_without_variance():
    x, y = drawn(200)
    as_numpy = knn_curve([x[0].numpy()], [y[0].numpy()], queries=20)
    assert isinstance(as_numpy.values, np.ndarray)
    tight = knn_curve(x[:1], y, queries=20, max_memory=120_000)
    np.testing.assert_array_equal(tight.values, as_numpy.values)
    with pytest.warns(UserWarning, match=r"knn_curve: .*X\[1\]"):
        got = knn_curve([x[0], torch.ones(200, 2)], y, queries=20)
    assert got.values[:, 1].isnan().all()
    assert not got.values[:, 0].isnan().any()


BAD = {
    "measure": ({"measure": "rank"}, ValueError, "measure mutual jaccard rank"),
    "k": ({"k": 90}, ValueError, "k 89 X 0 90"),
    "queries": ({"queries": 1}, ValueError, "queries 2 1"),
    "small gallery": ({"galleries": [15], "queries": 20}, ValueError, "galleries 20 90 15"),
    "gallery below k": ({"galleries": [5], "queries": 3}, ValueError, "galleries 11 90 5"),
    "large gallery": ({"galleries": [20, 91], "queries": 20}, ValueError, "galleries 20 90 91"),
    "memory": ({"max_memory": 1000}, ValueError, "max_memory 1000"),
    "seed": ({"seed": -1}, ValueError, "seed 0 -1"),
}


@pytest.mark.parametrize("name", BAD)
def test_message(name):
    options, error, words = BAD[name]
    assert_refused(knn_curve, drawn(90), options, error, words)
