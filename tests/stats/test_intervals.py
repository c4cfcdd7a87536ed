"""Intervals: that they hold their value, cover the expected one, and stay in a measure's range."""

import functools
import inspect
import itertools
import math

import numpy as np
import pytest
import torch

import simcore
from simcore import compare_layers, stats
from simcore.stats.draws import halves, permutations, resamples
from simcore.stats.resampled_grid import generator
from support import tolerance

N, DRAWS = 60, 40
MEASURES = {
    "cka": ("cka", {}),
    "unbiased cka": ("cka", {"estimator": "unbiased"}),
    "cca": ("cca", {}),
    "svcca": ("svcca", {"truncation": 5}),
    "rsa": ("rsa", {}),
    "spearman": ("rsa", {"correlation": "spearman"}),
    "k-NN": ("knn-mutual", {"k": 10}),
}
SHARED = {"unrelated": 0.0, "related": 0.5, "alike": 0.9}
CHEAP = ("cka", "unbiased cka")
OPTIONS = ("svcca", "spearman")  # of measures that are tried without them
MISSED = 0.05  # of the cases in which intervals are too short


def pair(rng, shared, n=N):
    """Return two layers of 8 columns that share a part of their four latent variables."""
    common, *own = rng.standard_normal((3, n, 4))
    maps = np.random.default_rng(0).standard_normal((2, 4, 8))
    return [
        ((shared * common + (1 - shared) * one) @ to + 0.5 * rng.standard_normal((n, 8))).astype(
            "f"
        )
        for one, to in zip(own, maps, strict=True)
    ]


def samples(name, shared, count):
    """Yield lists of ``count`` layers x and y, the function of the measure, and its options."""
    measure, options = MEASURES[name]
    rng = np.random.default_rng(5)
    while True:
        x, y = zip(*[pair(rng, SHARED[shared]) for _ in range(count)], strict=True)
        yield [*x], [*y], measure, options


def intervals(name, shared, batch):
    """Yield the low end, the value and the high end for one sample after the other.

    The samples of a batch have one call, which draws the same halves of all: of CKA it takes a
    sixth of the time.
    """
    for seed, (x, y, measure, options) in enumerate(samples(name, shared, batch)):
        run = stats.bootstrap_ci(x, y, measure=measure, resamples=DRAWS, seed=seed, **options)
        yield from zip(*map(np.diagonal, (run.low, run.observed, run.high)), strict=True)


def is_true_in(share, outcomes, not_in):
    """Whether outcomes are true in a ``share`` of all cases, and in no more than ``not_in``.

    Wald's sequential test: outcomes are taken until the ratio of the likelihoods of ``not_in`` and
    ``share`` decides. If ``share`` is right it is wrong with a probability of 1 - TEST_LEVEL at
    most, and if ``not_in`` is, with one of MISSED at most.
    """
    steps = np.log((1 - not_in) / (1 - share)), np.log(not_in / share)
    ratio = 0.0
    while np.log(MISSED) < ratio < -np.log(1 - tolerance.TEST_LEVEL):
        ratio += steps[bool(next(outcomes))]
    return ratio < 0


def test_a_coverage_of_85_percent_is_told_from_90():
    rng = np.random.default_rng(0)

    def passed(coverage):
        return sum(
            is_true_in(0.9, (z < coverage for z in rng.random(9999)), 0.85) for _ in range(200)
        )

    assert passed(0.85) <= 20
    assert passed(0.9) == passed(0.95) == 200


@pytest.mark.parametrize("shared", ["unrelated", "alike"])
@pytest.mark.parametrize("name", MEASURES)
def test_intervals_hold_their_value(name, shared):
    torch.set_num_threads(1)
    found = itertools.islice(intervals(name, shared, batch=4), 40 if name in CHEAP else 4)
    low, observed, high = np.array([*found]).T
    assert (low < observed).all()
    assert (observed < high).all()


@pytest.mark.parametrize(
    ("name", "shared"),
    [
        pytest.param(
            name, shared, marks=[] if name in CHEAP and shared != "related" else [pytest.mark.slow]
        )
        for name in MEASURES
        for shared in SHARED
        if name in CHEAP or (shared == "related") == (name in OPTIONS)
        if (name, shared) != ("cca", "alike")  # of rsa and k-NN, and the dearest
    ],
)
def test_intervals_cover_the_expected_value(name, shared):
    """In nine of ten samples at least; unrelated layers, whose halves vary more, in nearly all."""
    torch.set_num_threads(1)
    batch = 10 if name in CHEAP else 3  # all pairs of a batch are computed
    many = itertools.islice(samples(name, shared, batch), 300 // batch)
    # The mean of 300 is known to a fiftieth of the width of an interval.
    expected = np.mean(
        [
            np.diagonal(stats.resampled_grid.GRIDS[measure](x, y, **options))
            for x, y, measure, options in many
        ]
    )
    covered = (low <= expected <= high for low, _, high in intervals(name, shared, batch))
    share, not_in = (0.97, 0.92) if shared == "unrelated" else (0.9, 0.85)
    assert is_true_in(share, covered, not_in)


def test_all_intervals_are_of_halves_by_default():
    x, y = pair(np.random.default_rng(0), 0.5)
    want = stats.bootstrap_ci([x], [y], method="half", resamples=9)
    assert np.array_equal(stats.bootstrap_ci([x], [y], resamples=9).low, want.low)
    assert inspect.signature(stats.bootstrap_ci).parameters["method"].default == "half"
    named = compare_layers({"x": x}, {"y": y}, bootstrap=9)
    assert (named.low, named.high) == (torch.from_numpy(want.low), torch.from_numpy(want.high))


def test_an_interval_without_its_value_is_never_given_in_silence():
    x, y = np.random.default_rng(2).standard_normal((2, N, 20))
    with pytest.warns(UserWarning, match=r"intervals of 1 of 4 pairs leave out .* row 0 and col"):
        found = stats.bootstrap_ci([x], [x, y, x, x], method="bootstrap", resamples=50)
    assert found.observed[0, 1] < found.low[0, 1]
    # A layer and itself are 1 in every draw, but for rounding.
    assert found.low[0, 0] <= found.observed[0, 0] <= found.high[0, 0]


RANGES = [("cka", {}, -1.0, 1.0), ("procrustes", {"form": "distance"}, 0.0, math.sqrt(2))]


@pytest.mark.parametrize(("measure", "options", "lowest", "highest"), RANGES)
def test_intervals_stay_in_the_range_of_the_measure(measure, options, lowest, highest):
    """One row far out is in half of the halves, which vary the more for it."""
    x, y = np.random.default_rng(0).standard_normal((2, 24, 6))
    y += 3 * x
    x[0], y[0] = 300.0, (1 if measure == "cka" else -1) * 300.0
    function = stats.resampled_grid.GRIDS[measure]
    cut = stats.bootstrap_ci([x], [y], measure=measure, resamples=60, **options)

    def unknown(a, b):
        return function(a, b, **options)

    free = stats.bootstrap_ci([x], [y], measure=unknown, resamples=60)
    assert free.low < lowest or free.high > highest
    want = [max(free.low.item(), lowest), min(free.high.item(), highest)]
    tolerance.assert_close([cut.low.item(), cut.high.item()], want, torch.float64)
    assert cut.high <= highest


def test_the_interval_of_an_estimate_beyond_the_range_ends_there():
    x, noise = torch.randn(2, 30, 12, generator=torch.Generator().manual_seed(0)).unbind()
    x = x[:, :2] @ noise[:2] + 0.3 * x
    fixed = functools.partial(simcore.cka_grid, estimator="unbiased", neurons="sampled")
    found = stats.bootstrap_ci([x], [x + 0.01 * noise], measure=fixed, resamples=9)
    assert found.observed > 1
    assert torch.equal(found.high, found.observed)
    assert found.low < found.observed


def test_a_single_draw_is_refused_and_a_single_value_has_no_interval():
    x, y = pair(np.random.default_rng(0), 0.5)
    with pytest.raises(ValueError, match="resamples: wanted at least 2, got 1"):
        stats.bootstrap_ci([x], [y], resamples=1)
    with pytest.raises(ValueError, match="bootstrap: wanted at least 2, got 1"):
        compare_layers({"x": x}, {"y": y}, bootstrap=1)
    rows = halves(generator(0), 10, 3, None)
    only = next(i for i in range(10) if sum(i in half for half in rows[1:]) == 1)
    z = np.zeros((10, 2), dtype="f")
    z[only] = 1.0
    with pytest.warns(UserWarning, match="nan for 1 of 1 pairs: wanted at least 2 draws"):
        found = stats.bootstrap_ci([x[:10]], [z], resamples=3)
    assert np.isnan([found.low, found.high]).all()
    assert np.isfinite(found.observed).all()


FEW = {
    "rsa": (5, {}, r"2 of 5: X\[0\]: wanted at least 3 rows"),
    "knn-mutual": (14, {}, "7 of 14: k: wanted at most n - 1 = 6"),
    "cknna": (9, {"k": 5}, "4 of 9: k: wanted at most n - 1 = 3"),
}


@pytest.mark.parametrize("measure", FEW)
def test_messages_speak_of_the_rows_of_a_draw(measure):
    n, options, message = FEW[measure]
    x, y = pair(np.random.default_rng(0), 0.5, n)
    want = f"^method: wanted more rows in each draw of 'half', got {message}"
    with pytest.raises(ValueError, match=want):
        stats.bootstrap_ci([x], [y], measure=measure, resamples=5, **options)


def far(height, seed=0):
    """Return two related float32 layers of 100 rows, the first of which is far out in a column."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((100, 12))
    y = x + 0.7 * rng.standard_normal((100, 12))
    x[0, 3] = y[0, 3] = height
    return x.astype("f"), y.astype("f")


def cka_of_draw(x, y, rows_x, rows_y, estimator):
    """Return the CKA of some rows in long double, about a centre that no row far out moves."""
    left, right = (
        (z := np.longdouble(layer[rows]) - layer[1:].mean(0)) @ z.T
        for layer, rows in ((x, rows_x), (y, rows_y))
    )
    n, one = len(left), np.ones(len(left), np.longdouble)

    def hsic(k, m):
        if estimator == "biased":
            k, m = (g - g.mean(0) - g.mean(1)[:, None] + g.mean() for g in (k, m))
            return (k * m).sum()
        k, m = (g - np.diag(np.diag(g)) for g in (k, m))
        means = k.sum() * m.sum() / ((n - 1) * (n - 2))
        return (k * m).sum() + means - 2 / np.longdouble(n - 2) * (one @ k) @ (m @ one)

    return float(hsic(left, right) / np.sqrt(hsic(left, left) * hsic(right, right)))


@pytest.mark.filterwarnings("ignore::UserWarning")  # of the grid, whose value is not looked at
@pytest.mark.parametrize("height", [1e4, 1e5])
@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
def test_draws_keep_their_digits_beside_a_row_far_out(estimator, height):
    x, y = far(height)
    for draw, method in ((halves, "half"), (resamples, "bootstrap")):
        rows = draw(generator(0), 100, 20, None)[1:]
        want = [cka_of_draw(x, y, r, r, estimator) for r in rows]
        found = stats.bootstrap_ci(
            [x], [y], estimator=estimator, method=method, resamples=20, return_draws=True
        )
        tolerance.assert_float32_cka(found.draws[:, 0, 0], want)


@pytest.mark.filterwarnings("ignore::UserWarning")  # of the grid, whose value is not looked at
@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
def test_permutations_keep_their_digits_beside_a_row_far_out(estimator):
    x, y = far(1e4)
    rows = permutations(generator(0), 100, 20, None)[1:]
    want = [cka_of_draw(x, y, slice(None), r, estimator) for r in rows]
    options = {"estimator": estimator, "permutations": 20, "return_null": True}
    tolerance.assert_float32_cka(stats.permutation_test([x], [y], **options).null[:, 0, 0], want)


@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
def test_moments_keep_their_digits_beside_a_row_far_out(estimator):
    x, y = far(1e4)
    options = {"estimator": estimator, "method": "moments"}
    got = stats.permutation_test([x], [y], **options)
    want = stats.permutation_test([x.astype(np.float64)], [y.astype(np.float64)], **options)
    for name in ("null_std", "null_skewness"):
        ratio = getattr(got, name) / getattr(want, name)
        assert abs(ratio.item() - 1) <= tolerance.FLOAT32_MEASURE


OBSERVED = [
    ("cka", {}),
    ("cka", {"estimator": "unbiased"}),
    ("cka", {"kernel": "rbf", "bandwidth": 0.5}),
    ("svcca", {"truncation": 3}),
    ("cca", {}),
    ("pwcca", {}),
    ("linreg", {}),
    ("procrustes", {"form": "angular"}),
    ("gulp", {}),
    ("mixedsim", {}),
    ("eigenspace-overlap", {}),
    ("rsa", {}),
    ("distance-correlation", {}),
    ("knn-mutual", {}),
    ("cknna", {}),
    ("neuronsim", {}),
]


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize(("measure", "options"), OBSERVED)
def test_the_observed_value_is_the_grid_to_the_last_bit(measure, options, same):
    """n of 80 rows and 6 columns: `cka_grid` multiplies features and the draws Gram matrices."""
    rng = np.random.default_rng(3)
    x = [torch.from_numpy(layer) for layer in rng.standard_normal((2, 80, 6)).astype("f")]
    y = None if same else [x[0] + torch.from_numpy(rng.standard_normal((80, 6)).astype("f"))]
    want = stats.resampled_grid.GRIDS[measure](x, y, **options)
    asked = {"measure": measure, **options}
    runs = [
        stats.bootstrap_ci(x, y, resamples=2, **asked),
        stats.permutation_test(x, y, permutations=2, **asked),
    ]
    if measure == "cka":
        runs.append(stats.permutation_test(x, y, method="moments", **asked))
    for run in runs:
        assert torch.equal(run.observed, want)
