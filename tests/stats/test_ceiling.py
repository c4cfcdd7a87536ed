"""Noise ceilings: by their definition, and bounds that hold."""

import numpy as np
import pytest
import torch
from scipy.stats import rankdata

from simcore import Rdm, rsa_grid
from simcore.stats import noise_ceiling

SUBJECTS, PAIRS = 6, 45


def subjects(seed, noise=1.0):
    rng = np.random.default_rng(seed)
    return rng.random(PAIRS) + noise * rng.random((SUBJECTS, PAIRS))


@pytest.mark.parametrize("correlation", ["pearson", "spearman"])
def test_both_bounds_by_their_definition(correlation):
    values = subjects(0)
    found = noise_ceiling([Rdm(one) for one in values], correlation=correlation)
    spearman = correlation == "spearman"
    rows = rankdata(values, axis=1) if spearman else values
    scored = rows if spearman else (rows - rows.mean(1, keepdims=True)) / rows.std(1, keepdims=True)

    def correlated(one, mean):
        return np.corrcoef(one, rankdata(mean) if spearman else mean)[0, 1]

    for i, one in enumerate(scored):
        others = np.delete(scored, i, 0).mean(0)
        assert found.lower[i] == pytest.approx(correlated(one, others), abs=1e-14)
        assert found.upper[i] == pytest.approx(correlated(one, scored.mean(0)), abs=1e-14)


# What boot_noise_ceiling of rsatoolbox 0.3.2 returns, with method="corr" and "spearman".
RSATOOLBOX = {
    "pearson": (0.6957523409608791, 0.7954463081172228),
    "spearman": (0.6813110474237871, 0.7839597714819555),
}


@pytest.mark.parametrize("correlation", RSATOOLBOX)
def test_the_means_are_those_of_rsatoolbox(correlation):
    rdms = [Rdm(one) for one in subjects(0)]
    found = noise_ceiling(rdms, correlation=correlation)
    wanted = RSATOOLBOX[correlation]
    assert (found.lower.mean(), found.upper.mean()) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("correlation", ["pearson", "spearman"])
def test_no_model_is_above_the_upper_bound(correlation):
    values = subjects(1)
    rdms = [Rdm(one) for one in values]
    upper = noise_ceiling(rdms, correlation=correlation).upper.mean()
    models = [Rdm(one) for one in (*values, values.mean(0), subjects(2)[0])]
    assert rsa_grid(rdms, models, correlation=correlation).mean(0).max() <= upper + 1e-12


def test_subjects_without_noise_have_a_ceiling_of_one():
    found = noise_ceiling([Rdm(torch.from_numpy(one)) for one in subjects(3, noise=0.0)])
    assert isinstance(found.lower, torch.Tensor)
    assert torch.allclose(torch.stack([found.lower, found.upper]), torch.ones(2, SUBJECTS).double())


@pytest.mark.parametrize(
    ("rdms", "error", "message"),
    [
        ([Rdm(np.arange(3.0))], ValueError, "wanted at least 2 subjects, got 1"),
        ([Rdm(np.arange(3.0)), np.arange(3.0)], TypeError, r"rdms\[1\]: wanted an Rdm"),
        ([Rdm(np.arange(3.0)), Rdm(np.arange(6.0))], ValueError, "wanted n = 3 examples"),
        ([Rdm(np.arange(3.0)), Rdm(np.ones(3))], ValueError, "wanted dissimilarities that differ"),
    ],
)
def test_bad_subjects_are_named(rdms, error, message):
    with pytest.raises(error, match=message):
        noise_ceiling(rdms)
