"""The operators of neighbours that CUDA devices use, on CPU tensors: twins, order, memory."""

import numpy as np
import pytest
import torch

import simcore.knn
from simcore import neighbours, reference
from simcore._ops import neighbours as operators
from simcore._ops.neighbours_composed import OPERATORS
from support import tolerance
from support.cases import DTYPES, HALVES, Case, layers
from support.neighbour_table import NEIGHBOUR_ROWS

EVERY = pytest.mark.parametrize("measure", NEIGHBOUR_ROWS, ids=str)
METRICS = ("cosine", "euclidean", "inner")
NARROW = (7, 1, 24)
CASES = (
    Case(5, widths=NARROW),
    *(Case(45, o, b, NARROW) for o in (0.0, 10.0, 1000.0) for b in (False, True)),
    Case(90, 10.0, True, (300,)),
)


@pytest.fixture(autouse=True)
def _device_operators(monkeypatch):
    for name, function in OPERATORS.items():
        place = operators if name == "nearest_rows" else simcore.knn
        monkeypatch.setattr(place, name, function)


def check_lists(layer, k, metric):
    values, eps = layer.double().numpy(), torch.finfo(layer.dtype).eps
    (found,) = neighbours([layer], k, metric)
    if reference.neighbours.is_defined(values, metric, eps):
        want = reference.neighbour_lists(values, k, metric)
    else:
        want = np.full((len(values), k), -1)
    np.testing.assert_array_equal(found.index, want)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_lists_are_those_of_float64_in_every_dtype(case, metric):
    for dtype in DTYPES + HALVES:
        for layer in layers(case, dtype):
            check_lists(layer, min(7, case.n - 1), metric)


@pytest.mark.parametrize("metric", METRICS)
def test_rows_that_keys_cannot_tell_apart(metric):
    """Copies, rows of zeros, ties that float64 rounds differently, clusters within rounding."""
    generator = np.random.default_rng(0)
    words = generator.standard_normal((3, 20))
    repeated = words[generator.integers(0, 3, 150)]
    repeated[[7, 30]] = 0
    binary = generator.integers(0, 2, (150, 6)) * 1.0
    clusters = np.repeat(words, 50, axis=0) + 1e-6 * generator.standard_normal((150, 20))
    close = np.repeat(words, 50, axis=0) + 1e-10 * generator.standard_normal((150, 20))
    for values in (repeated, binary, clusters, close):
        check_lists(torch.from_numpy(values), 10, metric)
    check_lists(torch.from_numpy(repeated).float(), 10, metric)


@pytest.mark.parametrize("metric", METRICS)
def test_values_are_those_of_the_kernels(metric):
    x = layers(Case(60, 3.0, True, (9, 33)))
    for scale in (1.0, 2.0**-400, 2.0**900):
        given = [layer * scale for layer in x]
        got = OPERATORS["nearest_rows"](given, 7, metric, 0)
        want = torch.ops.simcore.nearest_rows(given, 7, metric, 0)
        assert torch.equal(got[0], want[0])
        for one, other in zip(got[1:], want[1:], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=0)
    without = OPERATORS["nearest_rows"](x, 7, metric, 0, "X", False)
    assert [tuple(t.shape) for t in without] == [(2, 60, 7), (0, 60, 7), (0, 60)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.filterwarnings("ignore:.*nan for:UserWarning")
@EVERY
def test_measures_match_the_twins(measure, dtype):
    for case in (CASES[1], CASES[4], CASES[6]):
        x, y = layers(case, dtype), layers(Case(case.n, 10.0, widths=(12,)), dtype, seed=1)
        for other in (None, y):
            got, want = measure(x, other), measure.twin(x, other)
            tolerance.assert_measure(got, want, dtype, condition=measure.condition)
            if other is None:
                diagonal = got.diagonal()
                assert bool((diagonal[~diagonal.isnan()] == 1).all())


@EVERY
def test_repeated_rows_and_layers_without_a_value(measure):
    x, y = measure.sides()
    x = [torch.cat([layer, layer[:25], layer[:25]]) for layer in x]
    y = [torch.cat([layer, layer[:40], layer[:10]]) for layer in y]
    want = measure.twin(x, y)
    tolerance.assert_measure(measure(x, y), want, torch.float64, condition=measure.condition)
    with pytest.warns(UserWarning, match=r"nan for X\[1\], Y\[0\]"):
        got = measure([x[0], torch.full_like(x[1], 0.3), x[2]], [torch.zeros_like(y[0]), y[1]])
    tolerance.assert_measure(got[::2, 1], want[::2, 1], torch.float64, condition=measure.condition)
    assert got[1].isnan().all()
    assert got[:, 0].isnan().all()


@EVERY
def test_memory_only_cuts_tiles(measure):
    x, y = measure.sides(n=50)
    for other in (None, y):
        want, limit, refused = measure(x, other), 2**22, ""
        while not refused:
            try:
                got = measure(x, other, max_memory=limit)
            except ValueError as error:
                refused = str(error)
            else:
                assert torch.equal(measure(x, other, max_memory=limit), got)
                tolerance.assert_measure(got, want, torch.float64, condition=measure.condition)
                limit //= 4
        assert refused.startswith("max_memory: wanted ")
        assert limit < 2**21


def test_nearest_rows_in_tiles_of_one_row():
    x = layers(Case(40, 1.0, widths=(9, 300)))
    x.append(x[0][:4].repeat(10, 1))
    want = OPERATORS["nearest_rows"](x, 5, "cosine", 0)
    with pytest.raises(ValueError, match="max_memory: wanted at least") as caught:
        OPERATORS["nearest_rows"](x, 5, "cosine", 1)
    least = int(str(caught.value).split("at least ")[1].split()[0])
    got = OPERATORS["nearest_rows"](x, 5, "cosine", least)
    assert torch.equal(got[0], want[0])
    for one, other in zip(got[1:], want[1:], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-15)
