"""Lists of neighbours and the measures made of them, against their twins."""

import numpy as np
import pytest
import torch

from simcore import cknna_grid, knn_grid, neighbours, reference
from support import tolerance
from support.cases import DTYPES, HALVES, Case, exact, layers
from support.neighbour_table import CKNNA, MUTUAL, NEIGHBOUR_ROWS

EVERY = pytest.mark.parametrize("measure", NEIGHBOUR_ROWS, ids=str)
FLOAT64 = torch.float64
METRICS = ("cosine", "euclidean", "inner")
WIDTHS = (7, 1, 40, 24)
CASES = (
    *(Case(n, widths=WIDTHS) for n in (5, 31, 33)),
    *(Case(129, o, b, WIDTHS) for o in (0.0, 10.0, 1000.0) for b in (False, True)),
    Case(150, 10.0, True, (300, 3)),
)
QUICK_CASES = CASES[0], CASES[2], CASES[-2], CASES[-1]
FEW = (
    Case(5, widths=(7, 1, 24)),
    *(Case(35, o, b, (7, 1, 24)) for o in (0.0, 10.0, 1000.0) for b in (False, True)),
    Case(150, 10.0, True, (300, 3)),
)


def twin_lists(layer, k, metric):
    eps = torch.finfo(layer.dtype).eps
    values = layer.double().numpy()
    if not reference.neighbours.is_defined(values, metric, eps):
        return np.full((len(values), k), -1)
    return reference.neighbour_lists(values, k, metric)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if case in QUICK_CASES else pytest.mark.deep) for case in CASES],
    ids=str,
)
def test_lists_are_those_of_float64_in_every_dtype(case, metric):
    """Exactly: float32 products only choose what is compared in float64."""
    for dtype in DTYPES + HALVES:
        x = layers(case, dtype)
        for k in (1, 3, 20):
            if k < case.n:
                for found, layer in zip(neighbours(x, k, metric), x, strict=True):
                    np.testing.assert_array_equal(found.index, twin_lists(layer, k, metric))


@pytest.mark.parametrize("metric", METRICS)
def test_values_of_neighbours(metric):
    for layer in layers(Case(60, 3.0, True, (9, 33))):
        (found,) = neighbours([layer.float()], 7, metric)
        x = layer.float().double().numpy()
        d = np.take_along_axis(
            reference.neighbours.distances(x, "cosine"), found.index.long().numpy(), 1
        )
        products = np.take_along_axis(x @ x.T, found.index.long().numpy(), 1)
        lengths = np.sqrt(np.square(x[:, None] - x[found.index.long().numpy()]).sum(-1))
        want = {"cosine": d, "inner": products, "euclidean": lengths}[metric]
        np.testing.assert_allclose(found.values, want, rtol=1e-9)
        squares = np.ones(60) if metric == "cosine" else np.square(x).sum(1)
        np.testing.assert_allclose(found.squares, squares, rtol=1e-12)


def check(measure, x, y, dtype, **more):
    got, want = measure(x, y), measure.twin(x, y, **more)
    assert got.dtype == FLOAT64
    tolerance.assert_measure(got, want, dtype, condition=measure.condition)
    return got


def usable(measure, case):
    k = measure.options["k"]
    return case.n > k and not (measure.function == "cknna_grid" and case.n < 33)


@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.deep)], ids=str
)
@pytest.mark.filterwarnings("ignore:.*nan for:UserWarning")
@EVERY
def test_twin(measure, dtype):
    for case in filter(lambda case: usable(measure, case), FEW):
        x = layers(case, dtype)
        y = layers(Case(case.n, 10.0, widths=(12,)), dtype, seed=1)
        diagonal = check(measure, x, None, dtype).diagonal()
        assert bool((diagonal[~diagonal.isnan()] == 1).all())
        check(measure, x, y, dtype)


@EVERY
def test_half_precisions_and_mixtures(measure):
    for dtype in HALVES:
        x = layers(Case(60, 1.0, widths=(20, 7)), dtype)
        eps = {"eps": torch.finfo(dtype).eps} if measure.rank_rule else {}
        check(measure, x, None, torch.float32, **eps)
    x = layers(Case(60, 1.0, widths=(20, 7)))
    x[1] = x[1].float()
    eps = {"eps": torch.finfo(torch.float32).eps} if measure.rank_rule else {}
    check(measure, x, [x[1], x[0]], torch.float32, **eps)


def test_known_lists():
    """Points on a line, all distances of which are known; rows 2 and 4 are equally far from 3."""
    x = np.array([[0.0, 0], [1, 0], [3, 0], [6, 0], [9, 0]])
    (found,) = neighbours([x], 2, "euclidean")
    np.testing.assert_array_equal(found.index, [[1, 2], [0, 2], [1, 0], [2, 4], [3, 2]])
    np.testing.assert_array_equal(found.values, [[1, 3], [1, 2], [2, 3], [3, 3], [3, 6]])
    (found,) = neighbours([x + np.array([0, 1])], 2, "inner")
    np.testing.assert_array_equal(found.index[3], [4, 2])
    np.testing.assert_array_equal(found.values[3], [55, 19])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_equal_rows_come_in_the_order_of_their_numbers(dtype):
    """More copies than lists have room for; and rows whose cosines float64 rounds differently."""
    generator = np.random.default_rng(0)
    words = torch.from_numpy(generator.standard_normal((4, 30)))
    repeated = words[torch.from_numpy(generator.integers(0, 4, 300))].to(dtype)
    lengths = torch.from_numpy(generator.integers(1, 9, (300, 1))).to(dtype)
    binary = torch.from_numpy(generator.integers(0, 2, (300, 6)) * 1.0).to(dtype)
    for layer in (repeated, repeated * lengths, binary):
        for metric in METRICS:
            (found,) = neighbours([layer], 10, metric)
            np.testing.assert_array_equal(found.index, twin_lists(layer, 10, metric))
    (found,) = neighbours([repeated], 10)
    copies = (repeated == repeated[0]).all(1).nonzero().flatten()
    np.testing.assert_array_equal(found.index[0], copies[1:11])
    assert not found.values[0].any()


def test_clusters_that_float32_products_cannot_resolve():
    """Every row is nearer to 99 others than the rounding of a product: all are compared."""
    generator = np.random.default_rng(0)
    centres = np.repeat(generator.standard_normal((3, 20)), 100, axis=0)
    x = centres + 1e-6 * generator.standard_normal((300, 20))
    for metric in METRICS:
        (found,) = neighbours([x], 10, metric)
        np.testing.assert_array_equal(found.index, twin_lists(torch.from_numpy(x), 10, metric))


def test_a_row_of_zeros_is_far_from_all_by_its_cosine():
    x = layers(Case(50, widths=(8,)))[0]
    x[[7, 30]] = 0
    (found,) = neighbours([x], 5)
    np.testing.assert_array_equal(found.index[7], [0, 1, 2, 3, 4])
    assert bool((found.values[7] == 1).all())
    for metric in METRICS:
        for dtype in DTYPES:
            (found,) = neighbours([x.to(dtype)], 5, metric)
            np.testing.assert_array_equal(found.index, twin_lists(x.to(dtype), 5, metric))
    tolerance.assert_measure(MUTUAL([x], [x + 1]), MUTUAL.twin([x], [x + 1]), FLOAT64)


@EVERY
def test_repeated_rows(measure):
    x, y = measure.sides()
    x = [torch.cat([layer, layer[:25], layer[:25]]) for layer in x]
    y = [torch.cat([layer, layer[:40], layer[:10]]) for layer in y]
    check(measure, x, y, FLOAT64)


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [(torch.float32, 1e30), (torch.float32, 1e-30), (FLOAT64, 1e-200), (FLOAT64, 1e200)],
    ids=str,
)
@EVERY
def test_extreme_scales(measure, dtype, scale):
    x, y = measure.sides(dtype=dtype)
    want, both = measure(x, y), [[layer * scale for layer in side] for side in (x, y)]
    for got in (measure(both[0], y), measure(*both)):
        tolerance.assert_measure(got, want, dtype)


def test_rows_of_very_different_lengths():
    x = layers(Case(50, widths=(8, 5)))
    lengths = torch.logspace(-300, 300, 50, dtype=FLOAT64)[:, None]
    tolerance.assert_measure(MUTUAL([layer * lengths for layer in x], x), MUTUAL(x), FLOAT64)


def test_large_k_is_the_whole_layer():
    x = layers(Case(30, widths=(8, 5)))
    for measure in ("mutual", "jaccard"):
        np.testing.assert_array_equal(knn_grid(x, measure=measure, k=29), np.ones((2, 2)))
    tolerance.assert_measure(cknna_grid(x, k=29), reference.cknna_grid(exact(x), k=29), FLOAT64)


def test_unrelated_layers_share_as_many_neighbours_as_chance_gives():
    x = torch.randn(2, 500, 40, generator=torch.Generator().manual_seed(0))
    chance = 10 / 499
    assert abs(knn_grid(x)[0, 1] - chance) < 5 * np.sqrt(chance / 5000)


def test_cknna_in_the_limit_of_all_rows_is_cka_of_uncentred_rows():
    """All but the diagonal: the unbiased estimator leaves that out anyway."""
    x, y = CKNNA.sides()
    want = reference.cka_grid(exact(x), exact(y), estimator="unbiased")
    got = cknna_grid(x, y, k=59)
    tolerance.assert_measure(got, want, FLOAT64, condition=tolerance.DRAWN_CONDITION)


def test_unbiased_cknna_above_one():
    generator = np.random.default_rng(2)
    x = generator.standard_normal((90, 12)) * np.where(np.arange(12) == 3, 100, 1)
    rotation = np.linalg.qr(generator.standard_normal((12, 12)))[0]
    y = x @ rotation + 0.3 * generator.standard_normal((90, 12))
    found = cknna_grid([x], [y])
    assert 1 < found[0, 0] < 1.01
    np.testing.assert_allclose(found, reference.cknna_grid([x], [y]), rtol=1e-10)


def test_values_at_the_ends_of_the_range_are_those_of_the_layer():
    x = layers(Case(40, widths=(8,)))[0]
    for metric, power in (("inner", 2), ("euclidean", 1), ("cosine", 0)):
        (found,), (tiny,) = neighbours([x], 3, metric), neighbours([x * 2.0**-400], 3, metric)
        assert torch.equal(tiny.values, found.values * 2.0 ** (-400 * power))
        (huge,) = neighbours([x * 2.0**900], 3, metric)
        assert torch.equal(huge.index, found.index)
        assert bool(huge.values.isinf().all()) == (metric == "inner")
