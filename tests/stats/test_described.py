"""Results are printed in one line, whatever their size."""

import pytest
import torch

from simcore import neighbours, stats

X = torch.randn(3, 40, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("form", [str, repr])
def test_results_fit_on_a_line(form):
    test = stats.permutation_test(X, X[:2], permutations=9)
    low, high = test.observed.min().item(), test.observed.max().item()
    shown = form(test)
    assert shown.startswith(
        f"PermutationTest(3 x 2 pairs: observed {low:.3g} to {high:.3g}, pvalue "
    )
    assert "calibrated " in shown
    interval = form(stats.bootstrap_ci(X, resamples=9, return_draws=True))
    assert interval.startswith("BootstrapInterval(3 x 3 pairs: observed ")
    found = neighbours(X, 3, "euclidean")
    assert form(found[:1]) == "[Neighbours(n=40, k=3, metric='euclidean')]"
    for text in (shown, interval):
        assert len(text) < 160
        assert "\n" not in text


def test_undefined_values_are_left_out_of_ranges():
    constant = torch.zeros(1, 40, 4)
    with pytest.warns(UserWarning, match="nan for"):
        test = stats.permutation_test(constant, X[:1], permutations=9)
    assert repr(test) == "PermutationTest(1 x 1 pairs: observed nan, pvalue nan, calibrated nan)"
