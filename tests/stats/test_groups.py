"""Groups of rows: whole groups change places or are drawn, and halves cover."""

from collections import Counter

import numpy as np
import pytest
import scipy.stats
import torch

from simcore import cka_grid, stats
from simcore.reference.stats import permutation_pvalue, resampled_cka
from simcore.stats.draws import halves, permutations, read_groups, resamples, rotations
from simcore.stats.resampled_grid import generator
from support import tolerance
from support.cases import Case, exact
from support.draws import MEASURED, pair

SIZES = (2, 1, 3, 2, 1, 2, 3, 1, 4)
GROUPS = np.repeat(np.arange(len(SIZES)), SIZES)


def scattered(groups, seed=0):
    """Return the groups of rows in another order, with other numbers."""
    rng = np.random.default_rng(seed)
    return rng.permutation(100)[: groups.max() + 1][groups[rng.permutation(len(groups))]]


@pytest.mark.parametrize("groups", [GROUPS, scattered(GROUPS)], ids=["in order", "scattered"])
def test_whole_groups_change_places_with_groups_of_their_size(groups):
    members = read_groups(groups, len(groups))
    rows = permutations(generator(0), len(groups), 50, members)
    assert (np.sort(rows, axis=1) == np.arange(len(groups))).all()
    assert (rows[0] == np.arange(len(groups))).all()
    moved = rotations(generator(0), len(groups), 50, members)
    for draw in (*rows, *moved):
        for group in members:
            (source,) = set(groups[draw[group]])
            assert draw[group].tolist() == np.flatnonzero(groups == source).tolist()
    alone = np.concatenate([group for group in members if len(group) == 4])
    assert all(set(np.flatnonzero(draw == rows[0])) == set(alone) for draw in moved)


def test_every_permutation_of_groups_is_as_likely():
    groups = np.repeat(np.arange(5), (2, 1, 2, 2, 1))  # 3! 2! permutations
    rows = permutations(generator(0), 8, 2400, read_groups(groups, 8))
    counts = Counter(map(tuple, rows[1:].tolist()))
    assert len(counts) == 12
    assert scipy.stats.chisquare(list(counts.values())).pvalue > 1 - tolerance.TEST_LEVEL


@pytest.mark.parametrize("draw", [halves, resamples])
def test_whole_groups_are_drawn(draw):
    groups = scattered(GROUPS)
    members = read_groups(groups, len(groups))
    for rows in draw(generator(1), len(groups), 30, members)[1:]:
        counts = np.bincount(rows, minlength=len(groups))
        taken = [set(counts[group]) for group in members]
        assert all(len(times) == 1 for times in taken)
        total = sum(times.pop() for times in taken)
        assert total == (len(members) if draw is resamples else len(members) // 2)
        assert draw is resamples or counts.max() == 1


def test_groups_of_one_row_are_rows():
    x, y = pair(Case(33))
    for run in (stats.permutation_test, stats.bootstrap_ci):
        count = {"permutations": 9} if run is stats.permutation_test else {"resamples": 9}
        with_groups, without = (run(x, y, groups=g, **count) for g in (range(33), None))
        assert torch.equal(with_groups.observed, without.observed)
        name = "null_mean" if run is stats.permutation_test else "low"
        assert torch.equal(getattr(with_groups, name), getattr(without, name))


@pytest.mark.parametrize("method", ["bootstrap", "half"])
@pytest.mark.parametrize(("kernel", "estimator"), MEASURED)
def test_draws_of_groups_match_the_plain_loop(kernel, estimator, method):
    x, y = pair(Case(len(GROUPS)))
    options = {"kernel": kernel, "estimator": estimator}
    draw = halves if method == "half" else resamples
    rows = draw(generator(4), len(GROUPS), 70, read_groups(GROUPS, len(GROUPS)))
    want = resampled_cka(exact(x), exact(y), rows, rows, **options)
    got = stats.bootstrap_ci(
        x, y, method=method, groups=GROUPS, resamples=70, seed=4, return_draws=True, **options
    )
    tolerance.assert_close(got.draws, want[1:], torch.float64)
    tolerance.assert_close(got.observed, want[0], torch.float64)
    low, high = np.quantile(want[1:], [0.025, 0.975], axis=0)
    if method == "half":  # 4 of 9 groups: the variance of a half is 5 / 4 of what is wanted
        width = scipy.stats.norm.ppf(0.975) * np.sqrt(4 / 5) * want[1:].std(axis=0, ddof=1)
        low, high = want[0] - width, want[0] + width
    tolerance.assert_close(got.low, low, torch.float64)
    tolerance.assert_close(got.high, high, torch.float64)


@pytest.mark.parametrize("measure", ["cka", cka_grid], ids=["name", "function"])
def test_the_null_of_groups_matches_the_plain_loop(measure):
    x, y = pair(Case(len(GROUPS)))
    n = len(GROUPS)
    rng, members = generator(3), read_groups(GROUPS, n)
    rows = permutations(rng, n, 19, members)
    want = resampled_cka(exact(x), exact(y), [rows[0]] * 20, rows)
    moved = rotations(rng, n, 19, members)
    means = resampled_cka(exact(x), exact(y), [rows[0]] * 19, moved).mean(axis=0)
    options = {"groups": GROUPS.tolist(), "permutations": 19, "seed": 3, "return_null": True}
    got = stats.permutation_test(x, y, measure=measure, **options)
    tolerance.assert_close(got.null, want[1:], torch.float64)
    np.testing.assert_array_equal(got.pvalue, permutation_pvalue(want[0], want[1:]))
    tolerance.assert_close(got.null_mean, means, torch.float64)
    tolerance.assert_close(got.calibrated, (want[0] - means) / (1 - means), torch.float64)


def sentences(rng, sizes, related=0.0):
    """Return two layers of words whose sentences share most of their variance, and the groups."""
    groups = np.repeat(np.arange(len(sizes)), sizes)

    def layer():
        whole, own = rng.standard_normal((2, len(groups), 4))
        return 0.9 * whole[groups] + 0.4 * own

    shared, x, y = layer(), layer(), layer()
    return [related * shared + x], [related * shared + y], groups


@pytest.mark.deep
def test_pvalues_of_words_are_uniform_only_if_sentences_are_permuted():
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    found = {"sentences": [], "words": []}
    for seed in range(150):
        sizes = rng.permutation(np.repeat([2, 3, 4], 6))
        x, y, groups = sentences(rng, sizes)
        for name, given in (("sentences", groups), ("words", None)):
            test = stats.permutation_test(x, y, groups=given, permutations=99, seed=seed)
            found[name].append(test.pvalue.item())
    middles = np.array(found["sentences"]) - 0.005  # of the steps of a hundredth
    assert scipy.stats.kstest(middles, "uniform").pvalue > 1 - tolerance.TEST_LEVEL
    assert np.mean(found["words"]) < 0.1


@pytest.mark.deep
def test_halves_cover_the_expected_value_and_resamples_of_unrelated_layers_do_not():
    """Of words in sentences. The expected value comes from many samples of the same size."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    sizes, trials = np.tile([1, 2, 3], 8), 80
    least = scipy.stats.binom(trials, 0.95).ppf(1 - tolerance.TEST_LEVEL)
    for related, methods in ((1.0, ["half"]), (0.0, ["half", "bootstrap"])):
        many = [sentences(rng, sizes, related)[:2] for _ in range(400)]
        expected = np.mean([cka_grid(x, y).item() for x, y in many])
        for method in methods:
            options = {"method": method, "groups": np.repeat(np.arange(24), sizes)}
            runs = (stats.bootstrap_ci(*xy, resamples=80, **options) for xy in many[:trials])
            found = [(run.low.item(), run.observed.item(), run.high.item()) for run in runs]
            covered = sum(low <= expected <= high for low, _, high in found)
            assert (covered >= least) == (method == "half")
            if method == "half":
                assert all(low <= observed <= high for low, observed, high in found)


ROWS = [np.arange(12.0).reshape(6, 2) ** 2]
ERRORS = {
    "type": (stats.permutation_test, {"groups": [0.5] * 6}, TypeError, "groups: .*float64"),
    "length": (stats.permutation_test, {"groups": [0, 1]}, ValueError, r"of 6 rows, got \(2,\)"),
    "one": (stats.bootstrap_ci, {"groups": [3] * 6}, ValueError, "at least 2 groups of rows"),
    "sizes": (
        stats.permutation_test,
        {"groups": [0, 1, 1, 2, 2, 2]},
        ValueError,
        "groups: wanted two groups with the same number of rows.* got 3",
    ),
    "moments": (
        stats.permutation_test,
        {"groups": [0, 0, 1, 1, 2, 2], "method": "moments"},
        ValueError,
        "groups: wanted None for method 'moments'",
    ),
    "method": (stats.bootstrap_ci, {"method": "third"}, ValueError, "'bootstrap' or 'half'"),
    "few": (
        stats.bootstrap_ci,
        {"method": "half", "estimator": "unbiased"},
        ValueError,
        "method: wanted at least 4 rows in each draw of 'half', got 3 of 6",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_message(name):
    run, options, error, message = ERRORS[name]
    with pytest.raises(error, match=message):
        run(ROWS, **options)
