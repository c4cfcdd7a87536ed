"""Standard errors of errors: those of resampled examples, of known noise, of groups of rows."""

import math

import numpy as np
import pytest
import torch

from simcore.align import LinearAligner, SVCCAAligner, align_grid, align_pairs
from support.tolerance import FLOAT64_LINEAR_MAP

ROWS, WIDTH = 400, 6


def rows(seed=0, texts=None):
    """X and a noisy map of it; with `texts`, the rows of a text have noise of one size."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((ROWS, WIDTH))
    size = rng.exponential(size=(ROWS if texts is None else texts, 1))
    size = size if texts is None else np.repeat(size, ROWS // texts, axis=0)
    y = x @ rng.standard_normal((WIDTH, 4)) + 3 + size * rng.standard_normal((ROWS, 4))
    return x, y


def resampled(aligner, x, y, texts, draws=2000):
    """Standard deviations of both errors over texts drawn with replacement, Y's mean kept."""
    rng = np.random.default_rng(1)
    squared = np.square(aligner.transform(x) - y).sum(1)
    spread = np.square(y - y.mean(0)).sum(1)
    members = [np.flatnonzero(texts == text) for text in np.unique(texts)]
    found = []
    for _ in range(draws):
        drawn = np.concatenate([members[i] for i in rng.integers(len(members), size=len(members))])
        e, s = squared[drawn].sum(), spread[drawn].sum()
        found.append((e / (len(drawn) * y.shape[1]), math.sqrt(e / s)))
    return np.std(found, axis=0)


@pytest.mark.parametrize("texts", [ROWS, 40])
def test_they_are_those_of_resampled_examples(texts):
    x, y = rows(texts=texts)
    groups = np.repeat(np.arange(texts), ROWS // texts)
    aligner = LinearAligner().fit(*rows(seed=5))
    stderr = aligner.errors(x, y, groups=groups).stderr
    wanted = resampled(aligner, x, y, groups)
    assert (stderr.mse, stderr.relative) == pytest.approx(tuple(wanted), rel=0.1)
    if texts < ROWS:
        alone = aligner.errors(x, y).stderr
        assert stderr.mse > 1.3 * alone.mse


def test_groups_of_one_row_and_other_numbers_change_nothing():
    x, y = rows()
    aligner = LinearAligner().fit(x, y)
    alone = aligner.errors(x, y)
    numbers = torch.arange(ROWS).flip(0) * 7
    assert aligner.errors(x, y, groups=numbers) == alone
    texts = np.arange(ROWS) // 10
    renamed = np.random.default_rng(0).permutation(1000)[texts]
    one, other = (aligner.errors(x, y, groups=g).stderr for g in (texts, renamed))
    assert (one.mse, one.relative) == pytest.approx((other.mse, other.relative))


def test_components_of_svcca_have_them_too():
    x, y = rows()
    found = SVCCAAligner(truncation=2).fit(x, y).errors(x, y)
    for name in ("mse", "relative", "component_mse", "component_relative"):
        assert 0 < getattr(found.stderr, name) < getattr(found, name)
    assert LinearAligner().fit(x, y).errors(x, y).stderr.component_mse is None


def test_grids_and_pairs_have_those_of_a_single_map():
    (x, y), (x_judged, y_judged) = rows(), rows(1, texts=40)
    texts = np.arange(ROWS) // 10
    judge = {"X_heldout": [x_judged], "Y_heldout": [y_judged], "groups_heldout": texts}
    wanted = LinearAligner().fit(x, y).errors(x_judged, y_judged, groups=texts).stderr
    (pair,) = align_pairs([x], [y], "linear", **judge)
    fast = align_grid([x], [y], "linear", **judge).heldout[0][0].stderr
    slow = align_grid([x], [y], "linear", **judge, ridge=0.0).heldout[0][0].stderr
    for found in (pair.heldout.stderr, fast, slow):
        numbers = (found.mse, found.relative)
        assert numbers == pytest.approx((wanted.mse, wanted.relative), rel=FLOAT64_LINEAR_MAP)


def test_where_there_is_nothing_to_spread():
    x, y = rows()
    aligner = LinearAligner().fit(x, y)
    whole = aligner.errors(x, y, groups=np.zeros(ROWS, int)).stderr
    assert math.isnan(whole.mse)
    assert math.isnan(whole.relative)
    constant = np.ones((ROWS, 2))
    found = LinearAligner().fit(x, constant).errors(x, constant)
    assert math.isnan(found.relative)
    assert math.isnan(found.stderr.relative)
    assert found.stderr.mse < 1e-20
    exact = torch.zeros(ROWS, 2)
    exact[0] = 1
    assert LinearAligner().fit(exact, exact).errors(exact, exact).stderr.relative < 1e-6


@pytest.mark.parametrize(
    ("groups", "kind", "message"),
    [
        (np.zeros(3, int), ValueError, r"groups: wanted one number for each of 400 rows"),
        (np.zeros(ROWS), TypeError, "groups: wanted whole numbers, got float64"),
    ],
)
def test_groups_that_do_not_fit_are_refused(groups, kind, message):
    x, y = rows()
    with pytest.raises(kind, match=message):
        LinearAligner().fit(x, y).errors(x, y, groups=groups)
    held = {"X_heldout": [x], "Y_heldout": [y], "groups_heldout": groups}
    for function in (align_pairs, align_grid):
        with pytest.raises(kind, match="groups_heldout: wanted"):
            function([x], [y], "linear", **held)
        with pytest.raises(ValueError, match="groups_heldout: wanted X_heldout and Y_heldout too"):
            function([x], [y], "linear", groups_heldout=groups)


def test_rows_are_checked_before_their_groups_and_groups_before_any_fit():
    x, y = rows()
    groups = {"groups_heldout": np.arange(ROWS)}
    for function in (align_pairs, align_grid):
        with pytest.raises(ValueError, match="_heldout: wanted at least one"):
            function([x], [y], "linear", X_heldout=[], Y_heldout=[], **groups)
    judge = {"X_heldout": [x, x[:9]], "Y_heldout": [y, y[:9]]}
    wanted = "pair 1: groups_heldout: wanted one number for each of 9 rows"
    with pytest.raises(ValueError, match=wanted):
        align_pairs([x, x], [y, y], "linear", **judge, **groups)
