"""`Rdm` and `Gram` in statistics: rows and columns of a matrix are drawn together."""

import numpy as np
import pytest
import scipy.stats
import torch
from scipy.spatial.distance import pdist, squareform

import simcore
from simcore import Gram, Rdm, compare_layers, stats
from simcore.stats.draws import halves, permutations
from simcore.stats.resampled_grid import generator
from support import tolerance

N, DRAWS = 20, 19


def layers():
    rng = np.random.default_rng(0)
    first = rng.standard_normal((N, 5))
    return first, [first @ rng.standard_normal((5, 4)), rng.standard_normal((N, 6))]


def rsa(a, b, correlation):
    upper = np.triu_indices(len(a), 1)
    correlate = scipy.stats.spearmanr if correlation == "spearman" else np.corrcoef
    found = correlate(a[upper], b[upper])
    return found[0] if correlation == "spearman" else found[0, 1]


def cka(k, m, estimator):
    n = len(k)
    if estimator == "biased":
        h = np.eye(n) - 1 / n
        k, m = h @ k @ h, h @ m @ h
        return (k * m).sum() / np.sqrt((k * k).sum() * (m * m).sum())

    def song(a, b):
        a, b, one = a - np.diag(np.diag(a)), b - np.diag(np.diag(b)), np.ones(n)
        means = (one @ a @ one) * (one @ b @ one) / ((n - 1) * (n - 2))
        return np.trace(a @ b) + means - 2 / (n - 2) * one @ a @ b @ one

    return song(k, m) / np.sqrt(song(k, k) * song(m, m))


def cases():
    """Yield the layers, their matrices, the value of two matrices, and the call's options."""
    first, others = layers()
    brain = squareform(pdist(first))
    rdms = [1 - np.corrcoef(layer) for layer in others]
    grams = [(z := layer - layer.mean(0)) @ z.T for layer in others]
    kernel = np.exp(-squareform(pdist(first)))
    for correlation in ("pearson", "spearman"):
        options = {"measure": "rsa", "correlation": correlation}
        yield Rdm(brain), others, brain, rdms, lambda a, b, c=correlation: rsa(a, b, c), options
    for estimator in ("biased", "unbiased"):
        options = {"measure": "cka", "estimator": estimator}
        yield Gram(kernel), others, kernel, grams, lambda a, b, e=estimator: cka(a, b, e), options


CASES = pytest.mark.parametrize("case", list(cases()), ids=lambda case: "-".join(case[-1].values()))


@CASES
def test_permutations_reorder_rows_and_columns_together(case):
    given, others, one, matrices, value, options = case
    test = stats.permutation_test(
        [given], others, permutations=DRAWS, seed=2, return_null=True, **options
    )
    rows = permutations(generator(2), N, DRAWS, None)
    want = np.array([[[value(one, m[np.ix_(r, r)]) for m in matrices]] for r in rows])
    tolerance.assert_close(test.observed, want[0], torch.float64)
    tolerance.assert_close(test.null, want[1:], torch.float64)
    reached = (want[1:] >= want[0]).sum(0)
    np.testing.assert_array_equal(test.pvalue, (1 + reached) / (1 + DRAWS))
    tolerance.assert_close(test.null_mean, want[1:].mean(0), torch.float64)
    # The matrix may be on the other side, where it is the one that changes places.
    other = stats.permutation_test(
        others, [given], permutations=DRAWS, seed=2, return_null=True, **options
    )
    moved = np.array([[[value(m, one[np.ix_(r, r)])] for m in matrices] for r in rows])
    tolerance.assert_close(other.null, moved[1:], torch.float64)


@CASES
def test_halves_take_rows_and_columns_together(case):
    given, others, one, matrices, value, options = case
    found = stats.bootstrap_ci([given], others, resamples=9, return_draws=True, **options)
    rows = halves(generator(0), N, 9, None)[1:]
    want = [[[value(one[np.ix_(r, r)], m[np.ix_(r, r)]) for m in matrices]] for r in rows]
    tolerance.assert_close(found.draws, np.array(want), torch.float64)


def test_a_named_grid_has_statistics_of_matrices():
    first, others = layers()
    named = {"one": others[0], "two": others[1]}
    brain = {"brain": Rdm(pdist(first))}
    found = compare_layers(brain, named, measure="rsa", permutations=20, bootstrap=9)
    test = stats.permutation_test([brain["brain"]], others, measure="rsa", permutations=20)
    assert torch.equal(found.pvalue, torch.from_numpy(test.pvalue))
    assert torch.equal(found.values, torch.from_numpy(test.observed))
    assert (found.low <= found.values).all()
    by_function = compare_layers(brain, named, measure=simcore.rsa_grid, permutations=20)
    assert torch.equal(by_function.pvalue, found.pvalue)
    itself = stats.permutation_test([brain["brain"], *others], measure="rsa", permutations=20)
    assert np.isnan(itself.familywise.diagonal()).all()
    assert (itself.pvalue.diagonal() == 1 / 21).all()


def test_messages():
    first, others = layers()
    kernel, brain = [Gram(first @ first.T)], [Rdm(pdist(first))]
    with pytest.raises(ValueError, match="method: wanted 'permutation' where a layer is a Gram"):
        stats.permutation_test(kernel, others, method="moments")
    with pytest.raises(ValueError, match="kernel: wanted 'linear' where a layer is a Gram"):
        stats.permutation_test(kernel, others, kernel="rbf")
    with pytest.raises(TypeError, match=r"X\[0\]: wanted a torch tensor or numpy array, got Rdm"):
        stats.permutation_test(brain, others, measure="svcca")
    with pytest.raises(TypeError, match=r"truncation.*: wanted .* of measure 'rsa'"):
        stats.permutation_test(brain, others, measure="rsa", truncation=3)
    with pytest.raises(ValueError, match="got 2 of 5: Rdm: values: wanted at least 3 examples"):
        stats.bootstrap_ci([Rdm(pdist(first[:5]))], measure="rsa", resamples=5)
    with pytest.warns(UserWarning, match=r"rsa_grid: nan for Y\[0\]") as caught:
        flat = stats.permutation_test(
            brain, [np.ones((N, 3)), others[0]], measure="rsa", permutations=9
        )
    assert len(caught) == 1
    assert np.isnan(flat.pvalue).tolist() == [[True, False]]
