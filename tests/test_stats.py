"""Permutation tests and bootstrap intervals: against enumeration, plain loops and distributions."""

import functools
import itertools
import re

import numpy as np
import pytest
import scipy.stats
import tolerance
import torch
from cases import DTYPES, ESTIMATORS, KERNELS, Case, exact, layers

import simcore
from bench.peak import in_subprocess
from simcore import cka_grid, reference, stats
from simcore._ops import median_squared_distances, permuted_gram_products
from simcore.reference.stats import permutation_pvalue, permuted_products, resampled_cka
from simcore.stats.bootstrap import _draws
from simcore.stats.measures import generator
from simcore.stats.moments import pearson3_tail
from simcore.stats.permutation import _permutations

MB = 2**20
MEASURED = [(kernel, estimator) for kernel in KERNELS for estimator in ESTIMATORS]


def drawn(seed, n, count):
    """The permutations that a seed gives, the identity first."""
    return _permutations(generator(seed), n, count)


def pair(case, dtype=torch.float64):
    return layers(case, dtype), layers(Case(case.n, case.offset, widths=(12, 3)), dtype, seed=1)


# The operator


def grams(n, count, dtype, seed):
    g = torch.randn(n, n, count, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return g + g.transpose(0, 1)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("n", "count_x", "count_y", "draws"),
    [(1, 1, 1, 1), (2, 3, 1, 5), (31, 8, 16, 13), (33, 13, 7, 2), (129, 2, 25, 3), (300, 17, 9, 4)],
)
def test_op_matches_the_plain_loop(n, count_x, count_y, draws, dtype, weighted):
    x, y = grams(n, count_x, dtype, 0), grams(n, count_y, dtype, 1)
    rows = drawn(2, n, draws)
    weights = np.random.default_rng(3).integers(0, 4, size=rows.shape) if weighted else None
    got = permuted_gram_products(
        x, y, torch.from_numpy(rows), None if weights is None else torch.from_numpy(weights)
    )
    want = permuted_products(x, y, rows, weights)
    roughly = torch.stack(
        [
            torch.einsum("ija,ijb->ab", x * (w[:, None] * w)[..., None], y[r][:, r])
            for r, w in zip(
                torch.from_numpy(rows).long(),
                torch.ones(rows.shape, dtype=dtype)
                if weights is None
                else torch.from_numpy(weights).to(dtype),
                strict=True,
            )
        ]
    )
    tolerance.assert_close(got, want, dtype, roughly)


def test_op_does_not_depend_on_threads():
    x, rows = grams(130, 5, torch.float32, 0), torch.from_numpy(drawn(0, 130, 20))
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        results.append(permuted_gram_products(x, x, rows))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_opcheck():
    x, rows = grams(9, 3, torch.float32, 0), torch.from_numpy(drawn(0, 9, 2))
    torch.library.opcheck(torch.ops.simcore.permuted_gram_products.default, (x, x, rows))
    torch.library.opcheck(
        torch.ops.simcore.permuted_gram_products.default, (x, x, rows, torch.ones(3, 9))
    )
    torch.library.opcheck(
        torch.ops.simcore.gram_power_sums.default, (layers(Case(9)), [], "biased", 0)
    )
    torch.library.opcheck(
        torch.ops.simcore.median_squared_distances.default, (layers(Case(9)), layers(Case(9)))
    )


OP_ERRORS = {
    "shape": (lambda x, r: (x[0], x, r), ValueError, r"x: .*\[n, n, L\]"),
    "dtype": (lambda x, r: (x, x.double(), r), TypeError, "y: .*float64"),
    "strides": (lambda x, r: (x.transpose(0, 1), x, r), ValueError, "x: .*contiguous"),
    "row dtype": (lambda x, r: (x, x, r.long()), TypeError, "rows: .*int32"),
    "row shape": (lambda x, r: (x, x, r[:, 1:]), ValueError, "rows: "),
    "row range": (lambda x, r: (x, x, r + 1), ValueError, r"rows: .*\[0, 5\), got 5"),
    "weights": (lambda x, r: (x, x, r, r[:1].float()), ValueError, "weights: "),
}


@pytest.mark.parametrize("name", OP_ERRORS)
def test_op_refuses(name):
    arguments, error, message = OP_ERRORS[name]
    x, rows = grams(5, 2, torch.float32, 0), torch.from_numpy(drawn(0, 5, 2))
    with pytest.raises(error, match=message):
        permuted_gram_products(*arguments(x, rows))


@pytest.mark.parametrize("n", [2, 3, 32, 33])
def test_medians_follow_the_rule(n):
    x = layers(Case(n, offset=10.0))
    want = [np.median(reference.squared_distances(layer)) for layer in exact(x)]
    tolerance.assert_close(median_squared_distances(x[:2], x[2:]), want, torch.float64)


# Permutations

SHIFTED = [
    Case(5),
    Case(33),
    Case(129),
    Case(33, offset=1000.0),
    Case(129, offset=1000.0),
    Case(33, outlier=True),
    Case(129, offset=10.0, outlier=True),
]


@pytest.mark.parametrize(("kernel", "estimator"), MEASURED)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", SHIFTED, ids=str)
def test_null_matches_the_plain_loop(case, dtype, kernel, estimator):
    x, y = pair(case, dtype)
    options = {"kernel": kernel, "estimator": estimator}
    rows = drawn(3, case.n, 19)
    want = resampled_cka(exact(x), exact(y), [rows[0]] * 20, rows, **options)
    got = stats.permutation_test(x, y, permutations=19, seed=3, return_null=True, **options)
    values = torch.cat([got.observed[None], got.null])
    if dtype == torch.float64:
        tolerance.assert_close(values, want, dtype)
        np.testing.assert_array_equal(got.pvalue, permutation_pvalue(want[0], want[1:]))
    elif case.n >= 31:
        tolerance.assert_float32_cka(values, want)
    tolerance.assert_close(got.null_mean, got.null.mean(0), torch.float64)
    tolerance.assert_close(got.null_std, got.null.std(0, correction=0), torch.float64)
    calibrated = (got.observed - got.null_mean) / (1 - got.null_mean)
    tolerance.assert_close(got.calibrated, calibrated, torch.float64)


@pytest.mark.parametrize("kernel", KERNELS)
def test_blocks_of_layers_change_nothing(kernel):
    """24 layers of 300 rows are 9 MB of Gram matrices: in 10 MB of workspace, blocks of 8."""
    x = torch.randn(24, 300, 5, generator=torch.Generator().manual_seed(0))
    options = {"permutations": 3, "return_null": True, "kernel": kernel}
    whole = stats.permutation_test(x, **options)
    blocks = stats.permutation_test(x, max_memory=10 * MB, **options)
    tolerance.assert_same(blocks.null, whole.null, torch.float32)
    tolerance.assert_same(blocks.observed, cka_grid(x, kernel=kernel), torch.float32)


def test_seeds():
    x = layers(Case(33))
    state = torch.get_rng_state()
    first = stats.permutation_test(x, permutations=20, seed=1, return_null=True)
    again = stats.permutation_test(x, permutations=20, seed=1, return_null=True)
    other = stats.permutation_test(x, permutations=20, seed=2, return_null=True)
    assert torch.equal(first.null, again.null)
    assert torch.equal(first.pvalue, again.pvalue)
    assert not torch.equal(first.null, other.null)
    assert torch.equal(state, torch.get_rng_state())


def test_a_longer_run_continues_a_shorter_one():
    short, long = (
        stats.permutation_test(layers(Case(33)), permutations=k, return_null=True) for k in (5, 9)
    )
    assert torch.equal(short.null, long.null[:5])


@pytest.mark.parametrize("n", [3, 4])
def test_permutations_that_change_nothing_count_as_reaching(n):
    """All permutations of equal rows give the observed value, however it is rounded."""
    base = np.random.default_rng(0).standard_normal((2, 4))
    x = [np.repeat(base, [n, n], axis=0).astype(np.float32)]
    result = stats.permutation_test(x, permutations=400)
    share = 2 * np.prod([float(i) for i in range(1, n + 1)]) ** 2
    share /= np.prod([float(i) for i in range(1, 2 * n + 1)])
    low, high = scipy.stats.binom(400, share).interval(tolerance.TEST_LEVEL)
    assert low <= float(result.pvalue[0, 0]) * 401 - 1 <= high


def test_pvalues_are_uniform_under_the_null():
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    pvalues = []
    for seed in range(300):
        x, y = torch.randn(2, 1, 20, 3, generator=generator)
        pvalues.append(float(stats.permutation_test(x, y, permutations=99, seed=seed).pvalue))
    # Uniform on 0.01, 0.02, ... 1: the middle of each step is uniform up to half of it.
    assert (
        scipy.stats.kstest(np.array(pvalues) - 0.005, "uniform").pvalue > 1 - tolerance.TEST_LEVEL
    )
    assert min(pvalues) >= 1 / 100


def test_related_layers_are_found():
    x = layers(Case(129, widths=(20, 30)))
    assert (stats.permutation_test(x, permutations=99).pvalue == 1 / 100).all()


# Moments


@pytest.mark.parametrize(("kernel", "estimator"), MEASURED)
@pytest.mark.parametrize("n", [3, 4, 5, 6, 7])
def test_moments_match_enumeration(n, kernel, estimator):
    """All n! permutations; layers both wider and narrower than n."""
    if n < 4 and estimator == "unbiased":
        return
    rng = np.random.default_rng(n)
    x = [rng.standard_normal((n, p)) + 3 for p in (1, 2, n - 1, n + 3)]
    y = [2 * rng.standard_normal((n, p)) for p in (2, 9)]
    options = {"kernel": kernel, "estimator": estimator}
    rows = np.array(list(itertools.permutations(range(n))))
    values = resampled_cka(x, y, np.broadcast_to(rows[0], rows.shape), rows, **options)
    mean, std = values.mean(0), values.std(0)
    result = stats.permutation_test(x, y, method="moments", **options)
    tolerance.assert_close(result.observed, values[0], torch.float64)
    tolerance.assert_close(result.null_mean + 1, mean + 1, torch.float64)  # unbiased: 0
    tolerance.assert_close(result.null_std, std, torch.float64)
    skewness = ((values - mean) ** 3).mean(0) / std**3
    tolerance.assert_close(result.null_skewness, skewness, torch.float64)


@pytest.mark.parametrize(("kernel", "estimator"), MEASURED)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_moments_match_ten_thousand_permutations(dtype, kernel, estimator):
    x, y = pair(Case(100, offset=10.0, widths=(5, 40, 150)), dtype)
    options = {"kernel": kernel, "estimator": estimator}
    exactly = stats.permutation_test(x, y, method="moments", **options)
    drawn = stats.permutation_test(x, y, permutations=10_000, return_null=True, **options)
    z = (drawn.null - exactly.null_mean) / exactly.null_std
    errors = tolerance.STANDARD_ERRORS / np.sqrt(10_000)
    # The standard error of a mean of powers comes from the powers' own spread.
    for power, want in ((1, 0.0), (2, 1.0), (3, exactly.null_skewness)):
        spread = z.pow(power).std(0)
        assert (z.pow(power).mean(0) - want).abs().lt(errors * spread).all()
    middle = drawn.pvalue > 0.01
    assert (exactly.pvalue - drawn.pvalue)[middle].abs().lt(tolerance.PEARSON3_TAIL).all()


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize(("kernel", "estimator"), MEASURED)
def test_moments_in_float32(kernel, estimator, offset):
    x, y = pair(Case(129, offset=offset, widths=(40, 300)), torch.float32)
    options = {"kernel": kernel, "estimator": estimator, "method": "moments"}
    got = stats.permutation_test(x, y, **options)
    want = stats.permutation_test(exact(x), exact(y), **options)
    tolerance.assert_float32_cka(got.null_mean, want.null_mean)
    ones = torch.ones_like(got.null_std)
    for name in ("null_std", "null_skewness"):
        ratio = getattr(got, name) / torch.from_numpy(getattr(want, name))
        assert tolerance.max_error(ratio, ones) <= tolerance.FLOAT32_MOMENTS, name


def test_pearson3_tail():
    z = torch.linspace(-4, 12, 200, dtype=torch.float64)[:, None]
    skewness = torch.tensor([-2.5, -0.5, -1e-3, -1e-9, 0, 1e-9, 1e-4, 0.5, 3], dtype=torch.float64)
    want = scipy.stats.pearson3.sf(z.numpy(), skewness.numpy())
    got = pearson3_tail(*torch.broadcast_tensors(z, skewness))
    assert tolerance.max_error(got, want) <= tolerance.GAMMA_TAIL


def test_two_rows_have_only_one_value():
    result = stats.permutation_test([np.array([[1.0], [2.0]])], method="moments")
    assert result.pvalue == 1
    assert np.isnan(result.null_skewness)


def test_moments_hold_no_gram_matrix():
    """One of 6,000 rows is 144 MB."""
    program = """
import torch
from bench.peak import peak_during
from simcore import stats
torch.set_num_threads(2)
def test(n):
    x = torch.randn(3, n, 20, generator=torch.Generator().manual_seed(0))
    return lambda: stats.permutation_test(x, method="moments", max_memory=2**25)
test(50)()
print(peak_during(test(6000)))
"""
    assert int(in_subprocess(program)) <= 64 * MB


# Any measure


@pytest.mark.parametrize(("kernel", "estimator"), MEASURED)
def test_a_function_is_measured_like_the_name(kernel, estimator):
    x, y = pair(Case(33))
    options = {"kernel": kernel, "estimator": estimator}
    by_name = stats.permutation_test(x, y, permutations=9, return_null=True, **options)
    by_call = stats.permutation_test(
        x, y, measure=cka_grid, permutations=9, return_null=True, **options
    )
    tolerance.assert_same(by_call.null, by_name.null, torch.float64)
    tolerance.assert_same(by_call.observed, by_name.observed, torch.float64)


def test_a_function_gets_its_options_and_permuted_rows_of_y_only():
    x, y = pair(Case(33))
    seen = []

    def measure(a, b, *, factor):
        assert all(torch.equal(u, v) for u, v in zip(a, x, strict=True))
        seen.append(b[0])
        return torch.full((len(a), len(b)), factor)

    result = stats.permutation_test(x, y, measure=measure, permutations=4, seed=5, factor=0.25)
    assert (result.observed == 0.25).all()
    assert (result.pvalue == 1).all()
    for rows, layer in zip(drawn(5, 33, 4), seen, strict=True):
        assert torch.equal(layer, y[0][torch.from_numpy(rows).long()])


NAMED = {
    "cca": {"reduction": "r2"},
    "svcca": {"truncation": 0.9, "standardize": True},
    "pwcca": {"truncation": [3, 4, 5, 6, 2]},
    "linreg": {},
    "procrustes": {},
    "rsa": {"correlation": "spearman"},
    "neuronsim": {},
    "mixedsim": {},
}


@pytest.mark.parametrize("name", NAMED)
def test_a_name_is_measured_like_its_function(name):
    """Layers that are decomposed once give what layers permuted before do; options go along."""
    x, y = pair(Case(65, widths=(7, 20, 33)))
    options = {"permutations": 4, "seed": 1, "return_null": True, **NAMED[name]}
    function = getattr(simcore, f"{name}_grid")
    got = stats.permutation_test(x, y, measure=name, **options)
    want = stats.permutation_test(x, y, measure=function, **options)
    tolerance.assert_same(got.null, want.null, torch.float32)
    tolerance.assert_same(got.observed, function(x, y, **NAMED[name]), torch.float32)
    interval = stats.bootstrap_ci(x, y, measure=name, resamples=3, **NAMED[name])
    tolerance.assert_same(interval.observed, want.observed, torch.float64)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_layers_tie_as_their_float32_values_do(dtype):
    x, y = ([layer.to(dtype) for layer in side] for side in pair(Case(60, widths=(5, 4))))
    options = {"measure": "cca", "permutations": 49}
    got = stats.permutation_test(x, y, **options)
    want = stats.permutation_test([t.float() for t in x], [t.float() for t in y], **options)
    assert torch.equal(got.pvalue, want.pvalue)


def test_counts_of_x_serve_what_x_is_compared_with():
    x = layers(Case(60, widths=(5, 6)))
    counts = np.array([2, 3])
    test = stats.permutation_test(x, measure="svcca", truncation=counts, permutations=9)
    tolerance.assert_same(test.observed, simcore.svcca_grid(x, truncation=counts), torch.float64)
    interval = stats.bootstrap_ci(x, measure="svcca", truncation=[2, 3], resamples=9)
    tolerance.assert_same(interval.observed, test.observed, torch.float64)
    both = stats.permutation_test(x, x, measure="cca", truncation=[2, 3, 2, 3], permutations=9)
    tolerance.assert_same(both.observed, test.observed, torch.float64)


def test_a_measure_warns_once():
    x = layers(Case(20, widths=(30, 40)))
    with pytest.warns(UserWarning, match="cca_grid") as caught:
        stats.permutation_test(x, measure="cca", permutations=3)
    assert len(caught) == 1


# Bootstrap


@pytest.mark.parametrize(("kernel", "estimator"), MEASURED)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("same", [False, True])
def test_bootstrap_matches_the_plain_loop(same, dtype, kernel, estimator):
    x, y = pair(Case(65, offset=10.0), dtype)
    options = {"kernel": kernel, "estimator": estimator}
    rows = _draws(generator(4), 65, 70)
    want = resampled_cka(exact(x), exact(x if same else y), rows, rows, **options)
    got = stats.bootstrap_ci(
        x, None if same else y, confidence=0.8, resamples=70, seed=4, **options
    )
    check = tolerance.assert_float32_cka if dtype == torch.float32 else compare_float64
    check(got.low, np.quantile(want[1:], 0.1, axis=0))
    check(got.high, np.quantile(want[1:], 0.9, axis=0))
    check(got.observed, want[0])


def compare_float64(got, want):
    tolerance.assert_close(got, want, torch.float64)


def test_bootstrap_of_a_function_draws_the_same_rows():
    x, y = pair(Case(33))
    by_name = stats.bootstrap_ci(x, y, resamples=30, seed=1)
    by_call = stats.bootstrap_ci(x, y, resamples=30, seed=1, measure=cka_grid)
    other = stats.bootstrap_ci(x, y, resamples=30, seed=2)
    for name in ("low", "high", "observed"):
        tolerance.assert_same(getattr(by_call, name), getattr(by_name, name), torch.float64)
    assert not torch.equal(by_name.low, other.low)


def test_bootstrap_covers_the_known_correlation():
    """CKA of two single neurons is their squared correlation: 0.36 here, by construction."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    trials, covered = 100, 0
    for seed in range(trials):
        a, b = torch.randn(2, 100, 1, generator=generator, dtype=torch.float64)
        result = stats.bootstrap_ci([a], [0.6 * a + 0.8 * b], resamples=200, seed=seed)
        covered += bool(result.low <= 0.36 <= result.high)
    # The percentile interval is a little short at n = 100.
    low, high = scipy.stats.binom(trials, 0.93).interval(tolerance.TEST_LEVEL)
    assert low <= covered <= high


# Contract


def test_numpy_in_numpy_out():
    x = exact(layers(Case(33)))
    before = [layer.copy() for layer in x]
    test = stats.permutation_test(x, permutations=3, return_null=True)
    moments = stats.permutation_test(x, method="moments")
    interval = stats.bootstrap_ci(x, resamples=3)
    for values in (test.null, test.pvalue, moments.null_skewness, interval.low, interval.observed):
        assert isinstance(values, np.ndarray)
        assert values.dtype == np.float64
    for layer, copy in zip(x, before, strict=True):
        np.testing.assert_array_equal(layer, copy)


RUNS = {
    "permutation": functools.partial(stats.permutation_test, permutations=5),
    "moments": functools.partial(stats.permutation_test, method="moments"),
    "bootstrap": functools.partial(stats.bootstrap_ci, resamples=5),
}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("run", RUNS)
def test_a_constant_layer_is_nan_with_one_warning(run, kernel):
    x = layers(Case(33, widths=(3, 4, 5)))
    x[1] = torch.full_like(x[1], 0.1)
    with pytest.warns(UserWarning, match=r"nan for X\[1\]:") as caught:
        result = RUNS[run](x, kernel=kernel)
    grids = [values for values in vars(result).values() if values is not None]
    assert len(caught) == 1
    missing = torch.zeros(3, 3, dtype=torch.bool)
    missing[1] = missing[:, 1] = True
    for grid in grids:
        assert torch.equal(grid.isnan(), missing)


@pytest.mark.parametrize("method", ["permutation", "moments"])
@pytest.mark.parametrize("magnitude", [1e-25, 1e25])
def test_any_magnitude(magnitude, method):
    x = [layer.float() for layer in layers(Case(33, widths=(5, 40)))]
    scaled = [layer * magnitude for layer in x]
    options = {"method": method, "permutations": 5}
    for kernel in KERNELS:
        got = stats.permutation_test(scaled, kernel=kernel, **options)
        want = stats.permutation_test(x, kernel=kernel, **options)
        tolerance.assert_float32_cka(got.null_mean, want.null_mean)
        tolerance.assert_float32_cka(got.observed, want.observed)


def test_progress(capfd):
    x = layers(Case(33))
    stats.permutation_test(x, permutations=3, progress=True)
    stats.permutation_test(x, permutations=3, measure=cka_grid, progress=False)
    assert "permutation_test [" in capfd.readouterr().err
    stats.permutation_test(x, permutations=3, measure=cka_grid, progress=True)
    stats.bootstrap_ci(x, resamples=3, progress=True)
    shown = capfd.readouterr().err
    assert "100%" in shown
    assert "bootstrap_ci [" in shown


BAD = torch.tensor([[1.0, float("nan")], [2.0, 3.0], [4.0, float("inf")], [1.0, 2.0]])
GOOD = BAD.nan_to_num(0.5, posinf=1.0)
ERRORS = {
    "measure": ({"measure": "kca"}, ValueError, "measure: .*'cka'.*'kca'"),
    "measure type": ({"measure": 3}, TypeError, "measure: .*int"),
    "method": ({"method": "exact"}, ValueError, "method: .*'exact'"),
    "permutations": ({"permutations": 0}, ValueError, "permutations: .*0"),
    "permutations type": ({"permutations": 2.5}, ValueError, "permutations: .*2.5"),
    "seed": ({"seed": -1}, ValueError, "seed: .*-1"),
    "option": ({"truncation": 3}, TypeError, "truncation: .*bandwidth"),
    "kernel": ({"kernel": "poly"}, ValueError, "kernel: .*'poly'"),
    "estimator": ({"estimator": "jack"}, ValueError, "estimator: .*'jack'"),
    "max_memory": ({"max_memory": 10}, ValueError, "max_memory: .*10; .*moments"),
    "max_memory type": ({"max_memory": -1}, ValueError, "max_memory: .*-1"),
    "moments of others": (
        {"method": "moments", "measure": "svcca"},
        ValueError,
        "measure: .*'cka'.*'svcca'",
    ),
    "moments of a function": (
        {"method": "moments", "measure": cka_grid},
        ValueError,
        "measure: wanted 'cka'",
    ),
    "moments drawn": ({"method": "moments", "return_null": True}, ValueError, "return_null: "),
    "nan": ({"X": [GOOD, BAD]}, ValueError, r"X\[1\]: .*2 NaN or infinite of 8"),
    "nan in Y": ({"Y": [BAD]}, ValueError, r"Y\[0\]: .*2 NaN or infinite of 8"),
    "nan by moments": ({"X": [BAD], "method": "moments"}, ValueError, r"X\[0\]: .*2 NaN"),
    "nan of a function": ({"X": [BAD], "measure": cka_grid}, ValueError, r"X\[0\]: .*2 NaN"),
    "rows": ({"Y": [GOOD[:3]]}, ValueError, r"Y\[0\]: wanted n = 4"),
    "grid": (
        {"measure": lambda x, y: torch.zeros(1)},
        ValueError,
        r"measure: wanted a grid \(1, 1\), got shape \(1,\)",
    ),
    "unbiased": ({"X": [GOOD[:3]], "estimator": "unbiased"}, ValueError, "at least 4 rows"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_message(name):
    arguments, error, message = ERRORS[name]
    with pytest.raises(error, match=message):
        stats.permutation_test(**{"X": [GOOD], **arguments})


BOOTSTRAP_ERRORS = {
    "confidence": ({"confidence": 95}, ValueError, "confidence: .*95"),
    "resamples": ({"resamples": 0}, ValueError, "resamples: .*0"),
    "seed": ({"seed": 0.5}, ValueError, "seed: .*0.5"),
    "max_memory": ({"max_memory": 10}, ValueError, "max_memory: .*10; pass fewer layers"),
    "nan": ({"X": [BAD]}, ValueError, r"X\[0\]: .*2 NaN"),
}


@pytest.mark.parametrize("name", BOOTSTRAP_ERRORS)
def test_bootstrap_message(name):
    arguments, error, message = BOOTSTRAP_ERRORS[name]
    with pytest.raises(error, match=message):
        stats.bootstrap_ci(**{"X": [GOOD], **arguments})


PEAKS = {
    "permutation": "stats.permutation_test(x, permutations=5, max_memory=limit)",
    "moments": "stats.permutation_test(x, method='moments', kernel='rbf', max_memory=limit)",
    "bootstrap": "stats.bootstrap_ci(x, resamples=5, max_memory=limit)",
}


@pytest.mark.parametrize("name", PEAKS)
def test_max_memory_is_obeyed(name):
    """Gram matrices of 30 layers of 1,000 rows are 120 MB."""
    program = f"""
import torch
from bench.peak import peak_during
from simcore import stats
torch.set_num_threads(2)
def test(n):
    x = torch.randn(30, n, 20, generator=torch.Generator().manual_seed(0))
    limit = 100 * 2**20
    return lambda: {PEAKS[name]}
test(50)()
print(peak_during(test(1000)))
"""
    assert int(in_subprocess(program)) <= 100 * MB + 16 * MB


def test_names_are_those_of_the_docstring():
    for name in re.findall(r'"(\w+)"', stats.permutation_test.__doc__.split("measure :")[1][:300]):
        assert name in stats.measures.MEASURES
