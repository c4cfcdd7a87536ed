"""Rows with equal distances at the k-th neighbour, where row numbers decide: one warning."""

import re
import warnings

import numpy as np
import pytest
import torch

from simcore import cknna_grid, imd_grid, knn_curve, knn_grid, neighbours, reference, stats
from simcore._ops import neighbours as operators
from support.neighbour_table import NEIGHBOUR_ROWS

RANDOM = np.random.default_rng(0)
Y = RANDOM.standard_normal((300, 16))
ZEROS = np.where(RANDOM.permutation(300)[:, None] < 206, 0.0, RANDOM.standard_normal((300, 16)))
PAIRS = np.repeat(RANDOM.standard_normal((150, 16)), 2, 0)
INTEGERS = RANDOM.integers(0, 3, (300, 6)).astype(float)  # few copies, many equal distances
LONE = np.where(np.arange(300)[:, None] == 7, 0.0, RANDOM.standard_normal((300, 16)))
METRICS = ("cosine", "euclidean", "inner")
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
# Both ways to find ties: by all distances, and by questions of which only some ask for distances.
WAYS = pytest.mark.parametrize("few", [0, operators.FEW_TERMS])


def warnings_of(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = call()
    return [str(one.message) for one in caught], value


def tied_share(layer, k, metric, inside=False):
    """Return the share of rows with a tie, by all distances in float64."""
    distances = reference.neighbours.distances(layer, metric).copy()
    np.fill_diagonal(distances, np.inf)
    nearest = np.sort(distances, 1)[:, (0 if inside else k - 1) : k + 1]
    return np.mean((np.diff(nearest) <= 1e-12 * (1 + np.abs(nearest[:, 1:]))).any(1))


@DTYPES
@WAYS
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("k", [9, 10])
@pytest.mark.parametrize("measure", ["mutual", "rank"])
@pytest.mark.parametrize("layer", [ZEROS, PAIRS, INTEGERS], ids=["zeros", "pairs", "integers"])
def test_the_share_of_rows_is_named(layer, measure, k, metric, few, dtype, monkeypatch):
    monkeypatch.setattr(operators, "FEW_TERMS", few)
    x, y = layer.astype(dtype), Y.astype(dtype)
    options = {"k": k, "metric": metric, "measure": measure}
    said, _ = warnings_of(lambda: knn_grid([y, x], [y], **options))
    share = tied_share(x, k, metric, inside=measure == "rank")
    if share == 0:
        assert not said
        return
    where = "among the k + 1 nearest rows" if measure == "rank" else "at the k-th neighbour"
    assert said == [
        f"knn_grid: {100 * share:.0f} % of the rows of X[1] have equal distances {where}; values "
        "follow the order of the rows"
    ]


@DTYPES
def test_every_function_of_neighbours_warns(dtype):
    x, y = ZEROS.astype(dtype), Y.astype(dtype)
    calls = {
        "cknna_grid": lambda: cknna_grid([y], [x]),
        "knn_grid": lambda: knn_grid([y], [x], measure="second-order"),
        "knn_curve": lambda: knn_curve([y], [x], queries=50),
        "imd_grid": lambda: imd_grid([y], [INTEGERS.astype(dtype)]),
    }
    for function, call in calls.items():
        (said,), _ = warnings_of(call)
        assert re.match(rf"{function}: \d+ % of the rows of Y\[0\] have equal distances", said)
    (said,), found = warnings_of(lambda: neighbours([y, x]))
    assert said.startswith("neighbours: 69 % of the rows of layers[1] have equal distances")
    assert not warnings_of(lambda: knn_grid(found))[0]  # said before


def test_values_follow_the_order_of_rows_where_the_warning_says_so():
    order = np.random.default_rng(1).permutation(300)
    for metric in METRICS:
        _, (value, other) = warnings_of(
            lambda metric=metric: [
                knn_grid([ZEROS[rows]], [Y[rows]], metric=metric)
                for rows in (np.arange(300), order)
            ]
        )
        assert value != other


@WAYS
def test_one_row_of_zeros_is_found(few, monkeypatch):
    monkeypatch.setattr(operators, "FEW_TERMS", few)
    said, _ = warnings_of(lambda: knn_grid([LONE]))
    assert said[0].startswith("knn_grid: 0.3 % of the rows of X[0]")
    assert not warnings_of(lambda: knn_grid([LONE], metric="euclidean"))[0]


def test_copies_do_not_change_the_shape_of_a_graph():
    order = np.random.default_rng(1).permutation(300)
    said, values = warnings_of(lambda: [imd_grid([Y], [ZEROS[rows]]) for rows in (..., order)])
    assert not said
    np.testing.assert_allclose(*values, rtol=0, atol=1e-15)


@WAYS
@pytest.mark.parametrize("measure", NEIGHBOUR_ROWS, ids=str)
def test_layers_without_ties_are_silent_and_ask_for_no_distances(measure, few, monkeypatch):
    monkeypatch.setattr(operators, "FEW_TERMS", few)
    asked = []

    def recorded(*args):
        asked.append(args[-1])
        return torch.ops.simcore.nearest_rows(*args)

    monkeypatch.setattr(operators, "nearest_rows", recorded)
    sparse = np.maximum(Y @ np.random.default_rng(1).standard_normal((16, 48)), 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        measure([Y.astype(np.float32), sparse.astype(np.float32)])
    always = few > 0 or "cknna" in str(measure)
    assert asked == [always]


def test_neighbours_of_all_others_have_no_tie_at_the_end():
    said, _ = warnings_of(lambda: knn_grid([PAIRS[:12]], k=11))
    assert not said


def test_a_test_of_significance_warns_of_its_first_draw_alone():
    said, _ = warnings_of(
        lambda: stats.bootstrap_ci([ZEROS[:60]], [Y[:60]], measure="knn-mutual", resamples=4)
    )
    assert len([one for one in said if "equal distances" in one]) == 1
