"""`cka_grid` and `hsic_grid` against the float64 twins: dtypes, sizes, offsets, outliers."""

import numpy as np
import pytest
import torch

from simcore import cka_grid, hsic_grid, reference
from simcore.stats import bootstrap_ci, permutation_test
from support import naive, tolerance
from support.cases import DTYPES, ESTIMATORS, HALVES, KERNELS, Case, exact, layers
from support.cka import ESTIMATED, WELL_CONDITIONED_N, check_cka, expected


@pytest.mark.parametrize(("estimator", "case"), ESTIMATED, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("method", ["gram", "feature"])
def test_linear_cka(method, dtype, estimator, case):
    got = cka_grid(layers(case, dtype), estimator=estimator, method=method)
    absolute = case.n >= WELL_CONDITIONED_N[estimator]
    check_cka(got, *expected(case, dtype, "linear", estimator), dtype, absolute=absolute)


@pytest.mark.parametrize(("estimator", "case"), ESTIMATED, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rbf_cka(dtype, estimator, case):
    got = cka_grid(layers(case, dtype), kernel="rbf", estimator=estimator)
    absolute = case.n >= WELL_CONDITIONED_N[estimator]
    check_cka(got, *expected(case, dtype, "rbf", estimator), dtype, absolute=absolute)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [5, 33, 129])
def test_cross_grid(n, dtype, estimator, kernel):
    x = layers(Case(n, offset=10.0), dtype)
    y = layers(Case(n, outlier=True, widths=(12, 3)), dtype, seed=1)
    options = {"kernel": kernel, "estimator": estimator}
    want = reference.cka_grid(exact(x), exact(y), **options)
    roughly = naive.cka_grid(x, y, **options)
    absolute = n >= WELL_CONDITIONED_N[estimator]
    check_cka(cka_grid(x, y, **options), want, roughly, dtype, absolute=absolute)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [4, 33, 129])
def test_hsic_grid(n, dtype, estimator, kernel):
    x = layers(Case(n, offset=10.0), dtype)
    y = layers(Case(n, widths=(12, 3)), dtype, seed=1)
    options = {"kernel": kernel, "estimator": estimator}
    for other in (y, None):
        want = reference.hsic_grid(exact(x), exact(other), **options)
        got = hsic_grid(x, other, **options)
        assert got.dtype == torch.float64
        tolerance.assert_close(got, want, dtype, naive.hsic_grid(x, other, **options))


@pytest.mark.parametrize("bandwidth", [0.2, 0.5, 3.0])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_bandwidth(estimator, bandwidth):
    x = layers(Case(33))
    options = {"kernel": "rbf", "estimator": estimator, "bandwidth": bandwidth}
    tolerance.assert_close(
        cka_grid(x, **options), reference.cka_grid(exact(x), **options), torch.float64
    )


@pytest.mark.parametrize("bandwidth", [5.0, 7.9, 8.0, 1000.0])
def test_wide_bandwidths_in_float32(bandwidth):
    x = [layer.float() for layer in layers(Case(129))]
    options = {"kernel": "rbf", "bandwidth": bandwidth}
    tolerance.assert_float32_cka(cka_grid(x, **options), reference.cka_grid(exact(x), **options))


@pytest.mark.parametrize("size", [1e5, 1e6, 1e8])
def test_one_entry_far_out_in_float32(size):
    """It moves the mean of its layer, so that all rows are long and their distances short."""
    x = [layer.float() for layer in layers(Case(129))]
    x[2][7, 0] = size
    want = reference.cka_grid(exact(x), kernel="rbf")
    tolerance.assert_float32_cka(cka_grid(x, kernel="rbf"), want)
    test = permutation_test(x, permutations=9, kernel="rbf")
    tolerance.assert_float32_cka(test.observed, want)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(
    "case", [Case(33), Case(129, offset=10.0), Case(33, outlier=True)], ids=str
)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_halves_are_converted_on_load(estimator, case, dtype, kernel):
    """Rounded to half once, on input: after that they are as good as float32."""
    x = layers(case, dtype)
    options = {"kernel": kernel, "estimator": estimator}
    want = reference.cka_grid(exact(x), **options)
    tolerance.assert_float32_cka(cka_grid(x, **options), want)


@pytest.mark.parametrize("kernel", KERNELS)
def test_realistic_width_in_float32(kernel):
    """At p = 768 squared distances concentrate: the RBF entries are all nearly alike."""
    x = layers(Case(300, offset=3.0, outlier=True, widths=(768, 768, 384)), torch.float32)
    for estimator in ESTIMATORS:
        options = {"kernel": kernel, "estimator": estimator}
        want = reference.cka_grid(exact(x), **options)
        tolerance.assert_float32_cka(cka_grid(x, **options), want)


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_precision_is_accepted_and_highest_is_the_default(precision):
    x = layers(Case(33), torch.float32)
    got = cka_grid(x, precision=precision)
    if precision == "highest":
        np.testing.assert_array_equal(got, cka_grid(x))
    want = reference.cka_grid(exact(x))
    # bfloat16 products are the least that "medium" may mean
    tolerance.assert_close(got, want, torch.bfloat16, want)


def test_rbf_of_rows_most_of_which_are_equal():
    """The median distance is 0; the other layers have their values, and the warning its reason."""
    x, y = layers(Case(60, widths=(4, 4))), layers(Case(60, widths=(3,)), seed=1)
    x[0][:50] = x[0][0]
    rbf = {"kernel": "rbf"}
    for name, call in {
        "cka_grid": lambda x: cka_grid(x, y, **rbf),
        "hsic_grid": lambda x: hsic_grid(x, y, **rbf),
        "permutation_test": lambda x: permutation_test(x, y, permutations=9, **rbf).pvalue,
        "permutation_test:": lambda x: permutation_test(x, y, method="moments", **rbf).pvalue,
        "bootstrap_ci": lambda x: bootstrap_ci(x, y, resamples=9, **rbf).low,
    }.items():
        function = "hsic_grid" if name == "hsic_grid" else "cka_grid"  # statistics call the grid
        wanted = f"^{function}: nan for X.0.: the median distance .*a `Gram` then takes"
        with pytest.warns(UserWarning, match=wanted) as warned:
            got = call(x)
        assert len(warned) == 1
        assert got[0].isnan()
        tolerance.assert_same(got[1:], call(x[1:]), torch.float64)


@pytest.mark.deep
def test_rbf_median_of_many_rows():
    """For n > 4096 the width comes from every s-th row, s = ceil(n / 4096), as documented."""
    (x,) = layers(Case(4200, offset=3.0, widths=(3,)))
    distances = reference.squared_distances(x.numpy())
    sampled = np.median(distances[::2, ::2])
    # the width is the root of the median, so its relative error is half of this one
    assert abs(sampled / np.median(distances) - 1) < 2 * tolerance.SAMPLED_MEDIAN
    gram = np.exp(-distances / (2 * sampled))
    want = [[reference.hsic_biased(gram, gram)]]
    tolerance.assert_close(hsic_grid([x], kernel="rbf"), want, torch.float64)


@pytest.mark.parametrize("options", [{}, {"kernel": "rbf"}], ids=str)
def test_two_rows_are_told(options):
    x = torch.randn(3, 2, 5, generator=torch.Generator().manual_seed(0))
    with pytest.warns(UserWarning, match="cka_grid: CKA of two rows is 1 for all layers"):
        grid = cka_grid(x, **options)
    torch.testing.assert_close(grid, torch.ones(3, 3, dtype=torch.float64))
