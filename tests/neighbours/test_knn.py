"""The contract of neighbours: containers, threads, memory, objects, warnings, errors."""

import pickle
import warnings

import numpy as np
import pytest
import torch

import simcore
from simcore import bases, cknna_grid, knn_grid, neighbours, stats
from support.bad_inputs import ENTRIES, LAYERS, X, Y, assert_refused, rows, spoiled
from support.cases import Case, layers, noted
from support.neighbour_table import CKNNA, MUTUAL, NEIGHBOUR_ROWS

EVERY = pytest.mark.parametrize("measure", NEIGHBOUR_ROWS, ids=str)
ONCE = pytest.mark.parametrize("measure", [MUTUAL, CKNNA], ids=str)


@pytest.fixture(autouse=True)
def _warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@EVERY
def test_threads_change_no_bit(measure):
    x, y = measure.sides(n=130)
    want = measure(x, y)
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        assert torch.equal(measure(x, y), want)


@EVERY
def test_objects_stand_for_layers(measure):
    x, y = measure.sides()
    metric = measure.options.get(
        "metric", "inner" if measure.function == "cknna_grid" else "cosine"
    )
    k = measure.options["k"]
    found = [neighbours(side, k, metric) for side in (x, y)]
    want = measure(x, y)
    options = {key: measure.options[key] for key in measure.options if key not in ("k", "metric")}
    for sides in (found, (found[0], y), (x, found[1])):
        given = options if sides is found else measure.options
        np.testing.assert_array_equal(measure.grid(*sides, **given), want)
    stored = pickle.loads(pickle.dumps(found[0]))
    np.testing.assert_array_equal(measure.grid(stored, **options), measure(x))
    order = torch.randperm(len(x[0]), generator=torch.Generator().manual_seed(0))
    moved = [one.permute(order) for one in found[0]]
    again = [layer[order] for layer in x]
    np.testing.assert_array_equal(measure.grid(moved, y, **options), measure(again, y))
    assert moved[0].nbytes == 60 * (12 * k + 8)


@pytest.mark.parametrize("kind", ["zeros", "constant", "parallel"])
@EVERY
def test_layers_without_a_value_are_nan_and_leave_the_others_alone(measure, kind):
    x = measure.sides()[0]
    cosine = measure.function == "knn_grid" and measure.options.get("metric", "cosine") == "cosine"
    if kind == "parallel":
        x[1] = torch.linspace(1, 2, 60, dtype=torch.float64)[:, None] * x[1][:1]
        if not cosine:
            return
    else:
        x[1] = torch.full_like(x[1], 0.3 if kind == "constant" else 0.0)
    for left, right in ((x, None), (x, x[:2]), (x[1:], x)):
        with pytest.warns(
            UserWarning, match=rf"{measure.function}: nan for .*no variance"
        ) as caught:
            grid = measure(left, right)
        assert len(caught) == 1
        assert caught[0].filename.endswith("measure_table.py")
        places = [[layer is x[1] for layer in side] for side in (left, right or left)]
        np.testing.assert_array_equal(grid.isnan(), np.logical_or.outer(*places))
    with pytest.warns(UserWarning, match="nan for"):
        got = measure(x)[::2, ::2]
    np.testing.assert_array_equal(got, measure(x[::2]))


def test_lists_of_a_layer_without_variance():
    x = layers(Case(20, widths=(4,)))
    found = neighbours([x[0], torch.ones(20, 3)], 2)
    assert bool((found[1].index == -1).all() & found[1].values.isnan().all())
    order = torch.arange(19, -1, -1)
    assert bool((found[1].permute(order).index == -1).all())
    with pytest.warns(UserWarning, match=r"nan for X\[1\]"):
        assert knn_grid(found)[1].isnan().all()


@ONCE
def test_messages(measure):
    for name, (*given, words) in {**LAYERS, **ENTRIES}.items():
        with noted(name):
            assert_refused(measure, *given, words)
    for dtype in (torch.float16, torch.float32, torch.float64):
        good = [layer.to(dtype) for layer in X]
        bad = [good[0], spoiled(spoiled(good[1], torch.nan, 5), torch.inf, 2), good[2]]
        for arguments, side in (((bad,), "X"), ((good, bad), "Y"), ((bad, good), "X")):
            with pytest.raises(ValueError, match=rf"{side}\[1\].*\b5\b.*\b222\b"):
                measure(*arguments)
    with pytest.raises(TypeError, match="positional"):
        measure.grid(X, Y, 2**30)


FOUND, INNER = neighbours(X, 4), neighbours(X, 4, "inner")
OPTIONS = {
    "measure": (knn_grid, (X,), {"measure": "knn"}, ValueError, "measure mutual jaccard rank knn"),
    "metric": (knn_grid, (X,), {"metric": "l1"}, ValueError, "metric cosine euclidean inner l1"),
    "k zero": (knn_grid, (X,), {"k": 0}, ValueError, "k 1 0"),
    "k float": (knn_grid, (X,), {"k": 2.0}, TypeError, "k integer 2"),
    "k n": (knn_grid, (X,), {"k": 37}, ValueError, "k 36 X 37"),
    "k of lists": (neighbours, (X, 37), {}, ValueError, "k 36 layers 37"),
    "metric of lists": (neighbours, (X, 3, "l2"), {}, ValueError, "metric cosine l2"),
    "layers": (neighbours, ([rows(1)],), {}, ValueError, "layers 0 2 1"),
    "memory of lists": (neighbours, (X,), {"max_memory": 9}, ValueError, "max_memory 9"),
    "second-order": (
        knn_grid,
        (X,),
        {"measure": "second-order", "metric": "inner"},
        ValueError,
        "metric cosine second-order inner",
    ),
    "second-order lists": (
        knn_grid,
        (INNER,),
        {"measure": "second-order"},
        ValueError,
        "metric cosine second-order inner",
    ),
    "one neighbour": (cknna_grid, (X,), {"k": 1}, ValueError, "k 2 1"),
    "estimator": (cknna_grid, (X,), {"estimator": "u"}, ValueError, "estimator unbiased biased u"),
    "cosines": (cknna_grid, (X, FOUND), {}, ValueError, "Y 0 inner cosine"),
    "three rows": (cknna_grid, ([rows(3)],), {}, ValueError, "X 0 4 unbiased 3"),
    "mixture": (knn_grid, ([FOUND[0], X[1]],), {}, TypeError, "X 1 Neighbours Tensor"),
    "metrics": (knn_grid, (FOUND, INNER), {}, ValueError, "Y 0 k 4 cosine inner"),
    "ks": (knn_grid, (FOUND, neighbours(Y, 5)), {}, ValueError, "Y 0 k 4 cosine 5"),
    "n": (knn_grid, (FOUND, neighbours([rows(9)], 4)), {}, ValueError, "Y 0 37 9"),
    "bases": (knn_grid, (bases(X),), {}, TypeError, "X 0 Basis"),
    "lists elsewhere": (simcore.rsa_grid, (FOUND,), {}, TypeError, "X 0 Neighbours"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_option(name):
    function, *expected = OPTIONS[name]
    assert_refused(function, *expected)


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("name", ["knn-mutual", "knn-second-order", "cknna"])
def test_permutations_move_the_lists(name, same):
    x, y = (side[:2] for side in MUTUAL.sides(n=40))
    options = {"k": 3}
    function, more = getattr(simcore, name.partition("-")[0] + "_grid"), {}
    if name.startswith("knn"):
        more = {"measure": name.removeprefix("knn-")}
    how = {"permutations": 6, "return_null": True}
    sides = (x,) if same else (x, y)
    got = stats.permutation_test(*sides, measure=name, **options, **how)
    want = stats.permutation_test(
        *sides, measure=lambda a, b: function(a, b, **options, **more), **how
    )
    np.testing.assert_allclose(got.null, want.null, atol=1e-12)
    np.testing.assert_array_equal(got.pvalue, want.pvalue)
    interval = stats.bootstrap_ci(*sides, measure=name, method="half", resamples=3, **options)
    np.testing.assert_array_equal(interval.observed, got.observed)


def test_options_of_neighbours_in_a_permutation_test():
    with pytest.raises(TypeError, match="kernel: wanted k or metric of measure 'knn-rank'"):
        stats.permutation_test(X, measure="knn-rank", kernel=3, permutations=2)


@pytest.mark.parametrize(("option", "value"), [("k", 5), ("metric", "euclidean")])
def test_options_that_found_neighbours_do_not_have_are_refused(option, value):
    found = simcore.neighbours(torch.randn(2, 20, 4), 3)
    simcore.knn_grid(found, k=3, metric="cosine")
    own = getattr(found[0], option)
    with pytest.raises(
        ValueError, match=rf"^{option}: wanted {own!r} as in X\[0\], got {value!r}$"
    ):
        simcore.knn_grid(found, **{option: value})
    inner = simcore.neighbours(torch.randn(2, 20, 4), 3, "inner")
    with pytest.raises(ValueError, match=r"^k: wanted 3 as in X\[0\], got 4$"):
        simcore.cknna_grid(inner, k=4)
