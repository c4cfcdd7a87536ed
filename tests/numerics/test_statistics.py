"""One result has one number, and what is drawn keeps the contract too."""

from zlib import crc32

import numpy as np
import pytest

from numerics.cases import BY_NAME, CASES
from numerics.contract import Verdict, assert_kept, distance, drawn, recomputed
from numerics.distributions import DISTRIBUTIONS, share
from simcore import stats

EVERY = pytest.mark.parametrize("name", DISTRIBUTIONS)
# Options of the CKA grid that statistics do not take: `neurons`, and how sums are formed.
TAKEN = [
    case
    for case in CASES
    if case.record.normalised and not {"neurons", "method"} & set(case.options)
    if case.record.name not in ("rtd", "imd") and str(case) != "minibatch-cka"
]
STATISTICS = {
    "bootstrap_ci": (stats.bootstrap_ci, {"resamples": 2}),
    "permutation_test": (stats.permutation_test, {"permutations": 2}),
}
DRAWN = ("cka", "cka kernel=linear estimator=unbiased", "cka kernel=rbf estimator=biased")
DRAWN += ("cka kernel=rbf bandwidth=8.0", "cca", "linreg", "procrustes")
DRAWN += ("distance-correlation", "neuronsim")


def run(statistic, case, x, y, **options):
    """Return a statistic of a case."""
    free = {key: value for key, value in case.options.items() if key not in case.record.fixed}
    function, few = STATISTICS[statistic]
    return function([x], [y], measure=case.record.name, **{**few, **free, **options})


def observed(cases, x, y, a, b):
    """Return what differs from the grid's value."""
    off = {}
    for case in (case for case in cases if case.takes(a, b)):
        grid = case.run(x, y).numpy()
        for statistic in STATISTICS if case.record.paired else ("bootstrap_ci",):
            found = run(statistic, case, x, y).observed.numpy()
            if not np.array_equal(found, grid, equal_nan=True):
                off[f"{statistic} of {case}"] = (found.item(), grid.item())
    return off


@pytest.mark.filterwarnings("ignore")
@EVERY
def test_observed_is_the_value_of_the_grid(name):
    case = TAKEN[crc32(name.encode()) % len(TAKEN)]
    assert observed([case, BY_NAME[DRAWN[1]]], *drawn(name, n=100, p=16)) == {}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@EVERY
def test_observed_is_the_value_of_the_grid_for_every_measure(name):
    assert observed(share(name, TAKEN), *drawn(name, n=100, p=16)) == {}


def both(name, case, draws):
    """Yield the verdicts of intervals and tests of float32 layers beside those of float64."""
    x, y, a, b = drawn(name, n=120, p=16)
    for statistic, what, count in (
        ("bootstrap_ci", ("low", "high"), {"resamples": draws}),
        ("permutation_test", ("null_mean", "calibrated"), {"permutations": draws}),
    ):
        with recomputed() as again:
            found = run(statistic, case, x, y, **count)
        right = run(statistic, case, x.double(), y.double(), **count)
        for one in what:
            values = float(getattr(found, one)), float(getattr(right, one))
            error, bound = distance(case, *values, a, b)
            yield Verdict(f"{one} of {case}", name, *values, error, bound, True, tuple(again), ())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", ["features", "sink_row_100000", "massive_5000_shared", "collapsed"]
)
def test_intervals_and_tests_of_float32_layers_are_right(name):
    assert_kept(one for case in DRAWN[:5] for one in both(name, BY_NAME[case], 20))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@EVERY
def test_intervals_and_tests_are_right_everywhere(name):
    assert_kept(one for case in share(name, DRAWN) for one in both(name, BY_NAME[case], 20))


@pytest.mark.parametrize("name", ["rotated", "sink_10000", "massive_5000_alike"])
def test_ends_of_intervals_lie_in_the_range(name):
    x, y, _, _ = drawn(name, n=60, p=8)
    for case in (BY_NAME["cka"], BY_NAME["procrustes"], BY_NAME["procrustes-distance"]):
        found = run("bootstrap_ci", case, x, y, method="half", resamples=20)
        assert case.record.lowest <= float(found.low), str(case)
        assert float(found.high) <= case.record.highest, str(case)
