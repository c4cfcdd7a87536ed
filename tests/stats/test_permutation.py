"""Permutation tests of CKA: against enumeration, plain loops and distributions."""

import numpy as np
import pytest
import scipy.stats
import torch

from simcore import cka_grid, stats
from simcore.reference.stats import permutation_pvalue, resampled_cka
from support import tolerance
from support.cases import DTYPES, KERNELS, Case, exact, layers
from support.draws import MEASURED, drawn, pair
from support.precision import LOWER, lower_precision, precisions

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
    blocks = stats.permutation_test(x, max_memory=10 * 2**20, **options)
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


# What is measured, in which dtype, of how many pairs of layers, with how many permutations.
NULLS = {
    "cka": ("cka", torch.float32, 300, 99),
    "cka of half precision": ("cka", torch.float16, 300, 99),
    "svcca by its bases": ("svcca", torch.float32, 100, 49),
}


@pytest.mark.parametrize(
    "name", ["cka", *(pytest.param(name, marks=pytest.mark.deep) for name in list(NULLS)[1:])]
)
def test_pvalues_are_uniform_under_the_null(name):
    measure, dtype, trials, permutations = NULLS[name]
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    pvalues = []
    for seed in range(trials):
        x, y = torch.randn(2, 1, 20, 3, generator=generator).to(dtype)
        result = stats.permutation_test(x, y, measure=measure, permutations=permutations, seed=seed)
        pvalues.append(float(result.pvalue))
    # Uniform on multiples of a step: the middle of each step is uniform up to half of it.
    step = 1 / (1 + permutations)
    middles = np.array(pvalues) - step / 2
    assert scipy.stats.kstest(middles, "uniform").pvalue > 1 - tolerance.TEST_LEVEL
    assert min(pvalues) >= step


def test_related_layers_are_found():
    x = layers(Case(129, widths=(20, 30)))
    assert (stats.permutation_test(x, permutations=99).pvalue == 1 / 100).all()


@pytest.mark.parametrize("interface", LOWER)
@pytest.mark.parametrize("method", ["permutation", "moments"])
def test_products_are_in_full_float32_whatever_was_chosen(method, interface, monkeypatch):
    """On CUDA devices the program's choice would make them products of ten bits."""
    seen = set()
    product = torch.Tensor.__matmul__

    def watched(a, b):
        seen.update(precisions())
        return product(a, b)

    monkeypatch.setattr(torch.Tensor, "__matmul__", watched)
    x = torch.randn(3, 40, 5, generator=torch.Generator().manual_seed(0))
    with lower_precision(interface):
        chosen = precisions()
        stats.permutation_test(x, method=method)
        assert precisions() == chosen
    assert seen == {"ieee"}


def test_the_best_of_all_pairs_is_compared_with_the_best_of_each_draw():
    x, y = layers(Case(33, widths=(5, 7))), layers(Case(33, widths=(6, 4, 3)), seed=1)
    for measure, options in (("cka", {"estimator": "unbiased"}), ("procrustes", {})):
        distances = {"form": "distance"} if measure == "procrustes" else {}
        sign = -1 if distances else 1
        got = stats.permutation_test(
            x, y, measure=measure, permutations=49, return_null=True, **options, **distances
        )
        best = (sign * got.null).amax((1, 2))
        count = (best[:, None, None] >= sign * got.observed).sum(0)
        assert torch.equal(got.familywise, (1 + count.double()) / 50)
        assert (got.familywise >= got.pvalue).all()
        assert (got.familywise > got.pvalue).any()
    constant = [*x, torch.ones_like(x[0])]
    with pytest.warns(UserWarning, match="self-HSIC is not positive"):
        got = stats.permutation_test(constant, y, permutations=49, estimator="unbiased")
    assert got.familywise[2].isnan().all()
    want = stats.permutation_test(x, y, permutations=49, estimator="unbiased").familywise
    assert torch.equal(got.familywise[:2], want)
    assert stats.permutation_test(x, y, method="moments").familywise is None


def test_a_layer_and_itself_are_no_candidates_for_the_best_pair():
    x = [torch.from_numpy(layer) for layer in np.random.default_rng(0).normal(size=(3, 30, 4))]
    for measure in ("cka", "procrustes"):
        alone = stats.permutation_test(x, measure=measure, permutations=99, return_null=True)
        assert alone.familywise.diagonal().isnan().all()
        apart = ~torch.eye(3, dtype=torch.bool)
        best = alone.null[:, apart].amax(1)
        count = (best[:, None] >= alone.observed[apart]).sum(0)
        assert torch.equal(alone.familywise[apart], (1 + count.double()) / 100)
        both = stats.permutation_test(x[:2], x[1:], measure=measure, permutations=99)
        assert torch.equal(both.familywise.isnan(), torch.tensor([[False, False], [True, False]]))
        assert both.pvalue[1, 0] == 0.01


def test_the_best_pair_of_unrelated_models_is_as_rarely_significant_as_the_level_says():
    """The least of the single p-values is below the level far more often."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    trials, level, best, least = 300, 0.1, [], []
    for seed in range(trials):
        x, y = torch.randn(2, 1, 20, 3, generator=generator)
        # Layers of a model share most of their variance, as those of networks do.
        x, y = (model + torch.randn(4, 20, 3, generator=generator) for model in (x, y))
        result = stats.permutation_test(x, y, permutations=59, seed=seed)
        best.append(float(result.familywise.min()) <= level)
        least.append(float(result.pvalue.min()) <= level)
    low, high = scipy.stats.binom(trials, level).interval(tolerance.TEST_LEVEL)
    assert low <= sum(best) <= high
    assert sum(least) > high
