"""Every grid with every option keeps the contract on the layers that networks have.

The quick tests take a sample that a seed draws, the slow ones all.
"""

import re
from math import isnan
from zlib import crc32

import numpy as np
import pytest
import torch

import simcore
from numerics import own
from numerics.cases import BESIDE_FLOAT64, BY_NAME, CASES, VALUES, parameters
from numerics.contract import assert_kept, call, drawn, judge, recomputed, verdicts
from numerics.distributions import DISTRIBUTIONS, alike
from numerics.layer import Layer
from simcore._measures import MEASURES
from simcore._measures.record import ATTENTION

# The tests of a distribution follow each other.
EVERY = pytest.mark.parametrize("name", DISTRIBUTIONS, scope="module")
DTYPES = ("bfloat16", "float16", "widened", "float64")
PLAIN = [name for name, one in DISTRIBUTIONS.items() if one.group in ("plain", "scale")]
# The computation of all triangles takes seconds: a few distributions are enough.
SLOW_CASES = ("rtd", "imd")
RTD_ON = ("normal", "massive_5000_shared", "sink_10000", "collapsed", "offset_1000")
# What takes n p² alone, in `own` too.
TALL = [
    case
    for case in CASES
    if case.on_ranks or case.record.name in ("procrustes", "size-and-shape", "neuronsim", "linreg")
]
TALL_ON = ("massive_500_shared", "massive_5000_shared", "collapsed", "sink_row_100000")
TALL_ON += ("six_decades", "six_decades_one_space", "spectrum_2", "rank_4", "layer_norm")
ANGLES = [case for case in CASES if str(case).startswith("cka-angular")]
UNBIASED = [case for case in CASES if "unbiased" in str(case) and "rbf" not in str(case)]
NUCLEAR = ("procrustes", "procrustes-distance", "procrustes-angular", "size-and-shape")
ASSIGNED = ("permutation-procrustes", "permutation-angular")
# Ranks, ties and gaps are clear beyond these, and not clear within.
CLEAR, NOT_CLEAR = 100.0, 5.0


def chosen(name, dtype):
    """Return all cases but those that take seconds, where the distribution is not among a few."""
    few = name in RTD_ON and dtype == "float32"
    return [case for case in CASES if few or case.record.name not in SLOW_CASES]


def sample(name, count, *more):
    """Return cases that are drawn by the name of what they are taken on."""
    rng = np.random.default_rng(crc32(" ".join((name, *more)).encode()))
    left_out = {*SLOW_CASES, *(("minibatch-cka",) if "rows" in more else ())}
    cases = [case for case in CASES if not {case.record.name, str(case)} & left_out]
    return [cases[i] for i in sorted(rng.permutation(len(cases))[:count])]


@EVERY
def test_a_sample_of_values_is_right(name):
    assert_kept(verdicts(name, sample(name, 4)))
    assert_kept(verdicts(name, sample(name, 1, "rows"), rows=True))
    dtype = DTYPES[crc32(name.encode()) % len(DTYPES)]
    assert_kept(verdicts(name, sample(name, 1, dtype), dtype))


@pytest.mark.slow
@EVERY
def test_values_of_float32_layers_are_right(name):
    assert_kept(verdicts(name, chosen(name, "float32")))


@pytest.mark.slow
@EVERY
def test_values_do_not_depend_on_the_order_of_rows(name):
    assert_kept(verdicts(name, sample(name, 20, "rows"), rows=True))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@EVERY
def test_values_of_other_dtypes_are_right(name, dtype):
    assert_kept(verdicts(name, sample(name, 8, dtype), dtype))


@pytest.mark.slow
@pytest.mark.parametrize("n, p", [(100, 100), (60, 200)])
@EVERY
def test_values_of_wide_layers_are_right(name, n, p):
    assert_kept(verdicts(name, sample(name, 10, str(n)), n=n, p=p))


@pytest.mark.slow
@pytest.mark.parametrize("n, p", [(3000, 48), (20000, 32)])
@pytest.mark.parametrize("name", TALL_ON)
def test_more_rows_remove_no_dimension(name, n, p):
    assert_kept(verdicts(name, TALL, n=n, p=p))


@pytest.mark.parametrize("name", ["massive_500_shared", "collapsed"])
def test_a_sample_of_many_rows(name):
    cases = [BY_NAME[case] for case in ("cca", "linreg", "mixedsim", "gulp")]
    assert_kept(verdicts(name, cases, n=20_000))


@pytest.mark.parametrize(
    "n, p", [(60, 32), (150, 32), pytest.param(1024, 64, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", ["sink_100", "sink_1000", "sink_10000", "sink_row_100000"])
def test_a_sink_row_among_others(name, n, p):
    assert_kept(verdicts(name, UNBIASED, n=n, p=p))


@pytest.mark.parametrize("height", [1e4, 1e6])
def test_two_opposite_sinks_leave_a_product_of_rank_1(height):
    """float32 finds no nuclear norm of it."""
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((60, 24))
    layers = [(shared + 0.3 * rng.standard_normal((60, 24))).astype("f") for _ in "xy"]
    for layer in layers:
        layer[:2] = [[height], [-height]]
    x, y, a, b = *map(torch.from_numpy, layers), *(Layer(z.astype("d"), "float32") for z in layers)
    cases = [BY_NAME[name] for name in (*NUCLEAR, *ASSIGNED)]
    assert_kept([judge(case, f"{height:g}", x, y, a, b) for case in cases])


def first_tokens(rng, n=640, length=10):
    """Texts of one length, whose first tokens are one sink: every tenth row."""
    layers = alike(rng, n, 16)
    for layer in layers:
        layer[::length] = 1e4
    return layers


def unequal_halves(rng, n=400, spread=1e-2):
    """Two classes of 201 and 199 rows: the median distance is the largest within a class."""
    labels = rng.permutation(n) < n // 2 + 1
    points = rng.standard_normal((2, 2, 16))
    return [5 * one[labels * 1] + spread * rng.standard_normal((n, 16)) for one in points]


@pytest.mark.parametrize("draw", [first_tokens, unequal_halves])
def test_the_median_distance_of_all_rows_is_not_that_of_some(draw):
    layers = [layer.astype("f") for layer in draw(np.random.default_rng(0))]
    x, y, a, b = *map(torch.from_numpy, layers), *(Layer(z.astype("d"), "float32") for z in layers)
    cases = [case for case in CASES if str(case).startswith("cka kernel=rbf")]
    assert_kept([judge(case, draw.__name__, x, y, a, b) for case in cases])


def test_a_far_row_among_few_counts_for_distance_correlation():
    rng = np.random.default_rng(1)
    x, noise = rng.standard_normal((2, 48, 32))
    layers = [x, x + 0.5 * noise]
    layers[0][0] += 1e5
    layers[1][0] += 1e5 * rng.standard_normal(32)
    x, y = (torch.from_numpy(layer).float() for layer in layers)
    a, b = (Layer(one.double().numpy(), "float32") for one in (x, y))
    verdict = judge(BY_NAME["distance-correlation"], "far row", x, y, a, b)
    assert verdict.again
    assert verdict.error < 1e-9


def test_matches_beside_sinks_are_those_of_the_distance():
    rng = np.random.default_rng(0)
    layers = torch.from_numpy(rng.standard_normal((3, 120, 24))).float()
    layers[:, 0], layers[:, 1] = 1e4, -1e4
    distances, matches = simcore.neuron_matches(layers, score="distance")
    alone = simcore.matching_grid(layers, score="distance")
    torch.testing.assert_close(distances, alone, rtol=1e-9, atol=0)
    want, exact = simcore.neuron_matches(layers.double(), score="distance")
    torch.testing.assert_close(distances, want, rtol=1e-9, atol=0)
    for row, right in zip(matches, exact, strict=True):
        assert all(map(torch.equal, row, right))


@pytest.mark.parametrize("dtype", ["float32", *DTYPES])
def test_angles_of_alike_layers_are_right(dtype):
    assert_kept(verdicts("relu_sparse", ANGLES, dtype, n=100, p=100))


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_dtype_counts_the_null_dimension_of_layer_norm(dtype):
    assert_kept(verdicts("layer_norm", [BY_NAME["cca"]], dtype))


@pytest.mark.parametrize("name", PLAIN)
def test_plain_layers_are_not_warned_of_and_not_computed_again(name):
    for verdict in verdicts(name, sample(name, 8, "plain")):
        if not isnan(verdict.right):
            assert (verdict.again, verdict.messages) == ((), ()), str(verdict)


def test_layers_of_unlike_sizes_are_not_computed_again():
    """Layers that differ in size alone are near in shape, and far in size and shape."""
    x = drawn("features")[0]
    for pair in ((x, 10 * x), (10 * x, x)):
        with recomputed() as again:
            simcore.procrustes_grid(*([layer] for layer in pair), form="size-and-shape")
        assert not again


def test_a_unit_decides_not_what_is_computed_again():
    x, y = drawn("features")[:2]
    for unit in (2.0**-30, 1.0, 2.0**30):
        with recomputed() as again:
            simcore.rsm_difference_grid([unit * x], [unit * y], norm="spectral")
        assert not again, unit


@EVERY
def test_what_is_not_clear_is_warned_of(name):
    x, y, a, b = drawn(name)
    margin, nearest = min(a.margin, b.margin), min(a.nearest, b.nearest)
    unclear = margin <= NOT_CLEAR or nearest < 2.5
    if unclear or (margin >= CLEAR and nearest > 4):
        found = says("cca", x, y, "not clear")
        assert found == unclear, f"rank, margin {margin}, nearest {nearest}"
    gap = min(a.gap(10), b.gap(10))
    if not 1e-10 < gap < 1e-3:
        cut = says("svcca truncation=10", x, y, "singular values")
        assert cut == (gap <= 1e-10), f"cut, gap {gap}"
    for case in ("knn-mutual", "knn-mutual metric=euclidean", "cknna"):
        tied = max(layer.ties(10, BY_NAME[case].metric) for layer in (a, b))
        assert says(case, x, y, "equal|tie") == bool(tied), f"{case}, {tied} rows"


def says(case, x, y, words):
    """Return whether a warning has one of these words."""
    return any(re.search(words, message) for message in call(BY_NAME[case], x, y)[2])


def test_every_grid_and_option_is_held_to_the_contract():
    grids = {name for name in simcore.__all__ if name.endswith("_grid")}
    assert grids == {record.function for record in MEASURES.values()}
    for record in MEASURES.values():
        assert set(parameters(record)) <= set(VALUES), f"{record.name}: no values for an option"
        if record.takes != (ATTENTION,) and record.function not in BESIDE_FLOAT64:
            assert hasattr(own, record.function), f"{record.name}: no formula of its own"


@pytest.mark.parametrize("classes", [100, 300])
def test_many_classes_collapsed_to_points(classes):
    """Few pairs of rows are near, and float32 loses the distances of all of them."""
    rng = np.random.default_rng(classes)
    points, labels = rng.standard_normal((2, classes, 32)), rng.integers(0, classes, 1000)
    layers = [(one[labels] + 1e-6 * rng.standard_normal((1000, 32))).astype("f") for one in points]
    x, y, a, b = *map(torch.from_numpy, layers), *(Layer(z.astype("d"), "float32") for z in layers)
    cases = [BY_NAME[name] for name in ("distance-correlation", "rsm-difference norm=spectral")]
    assert_kept([judge(case, f"{classes} classes", x, y, a, b) for case in cases])


def repeated(classes, dtype):
    """Two layers with few different rows, of which one is that of most examples."""
    rng = np.random.default_rng(0)
    labels = np.where(rng.random((2, 400)) < 0.95, 0, rng.integers(0, classes, (2, 400)))
    points = rng.standard_normal((2, classes, 16))
    layers = [torch.from_numpy(points[i][labels[i]]).to(dtype) for i in range(2)]
    return layers, [Layer(layer.double().numpy(), "float32") for layer in layers]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("classes", [2, 20])
def test_equal_rows_round_alike(classes, dtype):
    """The products of their distances are equal numbers, whose rounding adds up in a sum."""
    (x, y), (a, b) = repeated(classes, dtype)
    assert_kept([judge(case, f"{classes} rows", x, y, a, b) for case in CASES])


def one_apart(rng):
    """All rows are equal but the first, so that unbiased self-HSICs are 0."""
    layers = np.stack(alike(rng, 120, 16))
    layers[:, 1:] = layers[:, 1:2]
    return layers


def two_apart(_):
    """Layers of one neuron whose unbiased CKA is -1."""
    layers = np.stack(alike(np.random.default_rng(0), 60, 1))
    layers[:, 2:] = layers[:, 2:3]
    return layers


def padded(rng):
    """Few rows that are no padding, so that canonical correlations of 1 tie."""
    layers = np.stack(alike(rng, 100, 12))
    layers[:, 10:] = 0
    return layers


def many_decades(rng):
    return np.stack(alike(rng, 120, 16)) * 10 ** np.linspace(-15, 15, 16)


def near_a_point(rng):
    return 1 + np.array([1e-5, 2e-5])[:, None, None] * rng.standard_normal((2, 100, 16))


def exponentials(rng):
    return np.exp(4 * np.stack(alike(rng, 100, 12)))


def nearly_orthogonal(rng):
    """Few rows, whose dissimilarities are all nearly 1."""
    return np.eye(200)[rng.integers(0, 200, (2, 12))] + 1e-3 * rng.standard_normal((2, 12, 200))


def two_spreads(rng):
    """Every second row is 10 million times as long: products lose the others in float64 too."""
    return np.stack(alike(rng, 30, 60)) * np.where(np.arange(30) % 2, 1e-4, 1e3)[:, None]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "dtypes", [(torch.float32,) * 2, (torch.float32, torch.float64), (torch.float64,) * 2]
)
@pytest.mark.parametrize(
    "draw, names",
    [
        (one_apart, ("rsm-difference", *map(str, UNBIASED))),
        (two_apart, ("cka-angular method=gram estimator=unbiased",)),
        (padded, ("pwcca truncation=0.9", "pwcca truncation=10")),
        (many_decades, ("neuronsim", "neuronsim top_k=5", "match-soft", "match-hard")),
        (near_a_point, ("uniformity",)),
        (exponentials, ("minibatch-cka",)),
        (two_spreads, ("aligned-cosine",)),
        (nearly_orthogonal, ("rsa",)),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_layers_that_few_expect(draw, names, dtypes):
    layers = [layer.astype("f") for layer in draw(np.random.default_rng(21))]
    sides = [Layer(layer.astype("d"), "float32") for layer in layers]
    x, y = (torch.from_numpy(layer).to(dtype) for layer, dtype in zip(layers, dtypes, strict=True))
    assert_kept([judge(BY_NAME[name], draw.__name__, x, y, *sides) for name in names])


@pytest.mark.filterwarnings("ignore:gulp_grid. the rank is not clear")
def test_rounded_entries_do_not_count_where_gulp_is_computed_again():
    """Four classes in bfloat16, whose float64 copies look like fixed fractions."""
    rng = np.random.default_rng(0)
    points = (3 + rng.random((2, 4, 16)))[:, rng.integers(0, 4, 200)]
    noise = 3e-4 * rng.standard_normal(points.shape)
    x, y = torch.from_numpy(points + noise).bfloat16()
    u, v = (np.linalg.svd(Layer(z.double().numpy()).centred)[0][:, :3] for z in (x, y))
    right = 6 - 2 * np.square(u.T @ v).sum()
    assert float(simcore.gulp_grid([x], [y])) == pytest.approx(right, rel=1e-4, abs=1e-9)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("wide", [torch.float32, torch.float64])
def test_copies_of_rounded_layers_have_their_rank(half, wide):
    """Four classes, whose numbers lie in few octaves, as whole numbers do."""
    rng = np.random.default_rng(0)
    points = (0.1 + rng.random((4, 16)))[rng.integers(0, 4, 200)]
    layer = torch.from_numpy(points + 3e-5 * rng.standard_normal(points.shape)).to(half)
    assert float(layer.min() / layer.max()) > 2**-8
    assert [one[0].kept for one in map(simcore.bases, ([layer], [layer.to(wide)]))] == [3, 3]


@pytest.mark.parametrize(
    "numbers",
    [
        torch.arange(256),
        torch.arange(2048) / 4,
        2 ** torch.arange(16),
        torch.tensor([*range(10), 1000]),
        torch.eye(16)[0] * 1000,
    ],
    ids=["bytes", "quarters", "powers of two", "counts", "one-hot"],
)
def test_numbers_that_half_precision_holds_by_nature_were_not_rounded(numbers):
    """Their small differences count: the last column is the first but for one row."""
    generator = torch.Generator().manual_seed(0)
    places = torch.randint(0, len(numbers), (300, 6), generator=generator)
    layer = numbers[places].float()
    layer[:, -1] = layer[:, 0]
    layer[0, -1] = numbers.unique().float()[1 if layer[0, 0] == numbers.min() else 0]
    assert simcore.bases([layer])[0].kept == 6


@pytest.mark.parametrize("height", [30_000, 1e6])
def test_rows_that_two_opposite_sinks_hide_are_summed(height):
    """Each of the others is below the last digit of float32 sums that begin with the sinks."""
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((2, 6000, 5))
    x[0] = y[0] = height * rng.standard_normal(5)
    x[1] = y[1] = -0.3 * x[0]
    layers = [z.astype("f") for z in (x, y)]
    pair, own_pair = (
        map(torch.from_numpy, layers),
        (Layer(z.astype("d"), "float32") for z in layers),
    )
    x, y, a, b = *pair, *own_pair
    cases = [BY_NAME[name] for name in ("linreg", "mixedsim")]
    assert_kept([judge(case, "opposite sinks", x, y, a, b) for case in cases])
    assert float(simcore.linreg_grid([x])) == pytest.approx(1, abs=1e-5)
