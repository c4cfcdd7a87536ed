"""Bootstrap intervals: against plain loops, and how often they cover."""

import warnings

import numpy as np
import pytest
import scipy.stats
import torch

from simcore import cka_grid, stats
from simcore.reference.stats import resampled_cka
from simcore.stats.draws import resamples
from simcore.stats.few_rows import FewRowsWarning
from simcore.stats.resampled_grid import generator
from support import tolerance
from support.cases import DTYPES, Case, exact
from support.draws import MEASURED, pair


@pytest.mark.parametrize(("kernel", "estimator"), MEASURED)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("same", [False, True])
def test_bootstrap_matches_the_plain_loop(same, dtype, kernel, estimator):
    x, y = pair(Case(65, offset=10.0), dtype)
    options = {"kernel": kernel, "estimator": estimator}
    rows = resamples(generator(4), 65, 70, None)
    want = resampled_cka(exact(x), exact(x if same else y), rows, rows, **options)
    got = stats.bootstrap_ci(
        x, None if same else y, method="bootstrap", confidence=0.8, resamples=70, seed=4, **options
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


@pytest.mark.deep
def test_bootstrap_covers_the_known_correlation():
    """CKA of two single neurons is their squared correlation: 0.36 here, by construction."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    trials, covered = 100, 0
    for seed in range(trials):
        a, b = torch.randn(2, 100, 1, generator=generator, dtype=torch.float64)
        result = stats.bootstrap_ci([a], [0.6 * a + 0.8 * b], resamples=100, seed=seed)
        covered += bool(result.low <= 0.36 <= result.high)
    # The percentile interval is a little short at n = 100.
    low, high = scipy.stats.binom(trials, 0.93).interval(tolerance.TEST_LEVEL)
    assert low <= covered <= high


DECOMPOSED = ("cca", "svcca", "pwcca", "linreg", "mixedsim")


@pytest.mark.parametrize("measure", DECOMPOSED)
@pytest.mark.parametrize("method", ["half", "bootstrap"])
def test_components_that_span_all_rows_of_a_resample_give_no_interval(measure, method):
    """Half of 60 rows has 29 dimensions: the 40 columns span them, the 8 columns do not."""
    wide, narrow = (
        torch.randn(60, width, generator=torch.Generator().manual_seed(width)) for width in (40, 8)
    )
    cut = {"truncation": 1.0} if measure == "svcca" else {}
    with pytest.warns(FewRowsWarning) as caught:
        found = stats.bootstrap_ci(
            [wide, narrow], measure=measure, resamples=9, method=method, return_draws=True, **cut
        )
    want = torch.tensor([[True, measure not in ("linreg", "mixedsim")], [True, False]])
    for value in (found.low, found.high, *found.draws):
        assert torch.equal(value.isnan(), want)
    assert not found.observed.isnan().any()
    if method == "half":
        assert "(40), found 30 for" in str(caught[0].message)
        assert "about 84 rows would be enough" in str(caught[0].message)


def test_components_of_both_sides_together_exceed_the_rows_of_a_half():
    x = torch.randn(2, 60, 20, generator=torch.Generator().manual_seed(0))
    with pytest.warns(FewRowsWarning, match="together .40., found 30 for 4 of 4 pairs") as caught:
        found = stats.bootstrap_ci(x, measure="cca", resamples=9, method="half")
    assert len(caught) == 1
    assert not found.low.isnan().any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stats.bootstrap_ci(x, measure="procrustes", resamples=9, method="half")
        stats.bootstrap_ci(x[:, :, :10], measure="cca", resamples=9, method="half")
