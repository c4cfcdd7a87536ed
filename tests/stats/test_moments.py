"""Moments of the permutation distribution: against enumeration and many permutations."""

import itertools

import numpy as np
import pytest
import scipy.stats
import torch

from simcore import stats
from simcore.reference.stats import resampled_cka
from simcore.stats.moments import pearson3_tail, trace_of_cube
from support import tolerance
from support.cases import DTYPES, Case, exact
from support.draws import MEASURED, pair
from support.forks import in_fork

MB = 2**20


# The unbiased estimator needs 4 rows. n = 7 has 5,040 permutations, so that two of four pairs do.
ENUMERATED = [
    pytest.param(n, kernel, estimator, marks=pytest.mark.deep if n > 5 else ())
    for n in (3, 4, 5, 6, 7)
    for kernel, estimator in MEASURED
    if (n >= 4 or estimator == "biased")
    and (n < 7 or (kernel == "linear") == (estimator == "biased"))
]


@pytest.mark.parametrize(("n", "kernel", "estimator"), ENUMERATED)
def test_moments_match_enumeration(n, kernel, estimator):
    """All n! permutations; layers both wider and narrower than n."""
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


@pytest.mark.slow
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


@pytest.mark.parametrize("n", [1, 33, 127, 128, 129, 500])
def test_trace_of_cube(n):
    m = torch.randn(n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    m += m.T.clone()
    want = torch.linalg.eigvalsh(m).pow(3)
    tolerance.assert_same(
        trace_of_cube(m) / want.abs().sum(), want.sum() / want.abs().sum(), m.dtype
    )


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


@pytest.mark.slow
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
    assert int(in_fork(program)) <= 64 * MB


@pytest.mark.parametrize(("n", "least"), [(1000, 1e-6), (5, 1 / 120)])
def test_no_pvalue_is_below_what_the_moments_can_say(n, least):
    x = np.random.default_rng(0).standard_normal((n, 40))
    result = stats.permutation_test([x], [x + 1e-3 * x**2], method="moments")
    assert result.pvalue == pytest.approx(least, rel=1e-9)
