"""The twins of the CCA family, neurons, RSA and attention against values known by construction."""

import math

import numpy as np
import pytest
import torch

from simcore import reference
from support import tolerance
from support.correlated import orthonormal, pair_with_correlations


def assert_equal(got, want):
    tolerance.assert_close(np.atleast_1d(got), np.atleast_1d(want), torch.float64)


RHO = np.array([0.9, 0.5, 0.25, 0.0])


def test_canonical_correlations_are_recovered():
    x, y = pair_with_correlations(RHO)
    bases = reference.basis(x), reference.basis(y)
    assert_equal(reference.canonical_correlations(*bases), RHO)
    assert_equal(reference.cca_grid([x], [y]), [[RHO.mean()]])
    assert_equal(reference.cca_grid([x], [y], reduction="r2"), [[np.mean(RHO**2)]])


def test_projection_weights_come_from_the_first_argument():
    q = orthonormal(50, 4)
    # x has two orthogonal neurons of length 3 and 1, and y shares the first direction only.
    x, y = q[:, :2] * [3.0, 1.0], np.stack([q[:, 0], q[:, 2]], axis=1)
    assert_equal(reference.pwcca_grid([x], [y]), [[0.75]])
    assert_equal(reference.pwcca_grid([y], [x]), [[0.5]])
    assert_equal(reference.linreg_grid([x], [y]), [[0.9]])
    assert_equal(reference.linreg_grid([y], [x]), [[0.5]])
    assert_equal(reference.mixedsim_grid([x], [y]), [[0.5]])


def test_truncation_keeps_the_component_that_reaches_the_share():
    s = np.sqrt([5.0, 3.0, 2.0])
    assert [reference.cca.kept(s, share) for share in (0.4, 0.5, 0.51, 0.8, 0.9, 1.0)] == [
        1, 1, 2, 2, 3, 3,
    ]  # fmt: skip
    assert [reference.cca.kept(s, count) for count in (1, 3, 9)] == [1, 3, 3]
    assert reference.cca.kept(s, None) == 3


def test_duplicated_and_constant_columns_do_not_count():
    x = np.random.default_rng(0).standard_normal((30, 3))
    widened = np.concatenate([x, x[:, :2], np.full((30, 1), 7.0), x @ np.ones((3, 1))], axis=1)
    assert reference.basis(widened).shape == (30, 3)
    assert_equal(reference.cca_grid([x], [widened]), [[1.0]])


@pytest.mark.parametrize("name", ["cca", "pwcca"])
def test_components_that_half_precision_does_not_hold_do_not_count_on_either_side(name):
    q = orthonormal(50, 4)
    x, y = q[:, :2] + q[:, 1:3], np.stack([q[:, 0], q[:, 0] + 1e-4 * q[:, 1]], axis=1)
    grid, first = getattr(reference, f"{name}_grid"), y[:, :1]
    assert abs(grid([x], [y], eps=2.0**-8) - grid([x], [first])) < tolerance.CHANGE
    assert abs(grid([y], [x], eps=2.0**-8) - grid([first], [x])) < tolerance.CHANGE
    assert abs(grid([x], [y]) - grid([x], [first])) > tolerance.CHANGE


def test_a_layer_without_variance_is_nan():
    x = np.random.default_rng(0).standard_normal((30, 3))
    constant = np.ones((30, 2))
    for name in ("cca", "svcca", "pwcca", "linreg", "procrustes", "neuronsim", "mixedsim"):
        grid = getattr(reference, f"{name}_grid")([x, constant])
        assert_equal(grid[0, 0], 1.0)
        assert np.isnan(grid[[0, 1, 1], [1, 0, 1]]).all(), name


def test_procrustes_of_a_rotated_and_scaled_copy_is_one():
    x = np.random.default_rng(0).standard_normal((30, 5))
    rotation = np.linalg.qr(np.random.default_rng(1).standard_normal((5, 5)))[0]
    assert_equal(reference.procrustes_grid([x], [3 * x @ rotation + 2]), [[1.0]])
    # ||diag(a)' diag(b)||_* of unit vectors a, b
    q = orthonormal(30, 2)
    got = reference.procrustes_grid([q * [3.0, 4.0]], [q * [4.0, 3.0]])
    assert_equal(got, [[24 / 25]])


def test_best_partners_and_neurons_without_variance():
    q = orthonormal(40, 3)
    x = np.stack([q[:, 0], np.ones(40), q[:, 0] + q[:, 1]], axis=1)
    y = np.stack([q[:, 2], -5 * q[:, 0]], axis=1)
    best, partner = reference.best_partners(x, y)
    assert_equal(best, [1.0, math.nan, math.sqrt(0.5)])
    assert partner.tolist() == [1, -1, 1]
    assert_equal(reference.neuronsim_grid([x], [y]), [[(1 + math.sqrt(0.5)) / 2]])


def test_localization_leaves_a_layer_itself_out():
    neuronsim = np.array([[np.nan, 0.5, 0.7], [0.3, np.nan, 0.9], [0.5, 0.1, np.nan]])
    svsim = np.full((3, 3), 0.2)
    assert_equal(reference.localization_score(neuronsim, svsim), [0.2, 0.1, 0.6])
    assert_equal(reference.localization_score(svsim[:2], svsim[:2] / 2, same=False), [0.1] * 3)


def test_localization_of_standardised_means():
    """Means .4 .3 .8 have standard deviation sqrt(.07), means 1 2 3 have 1."""
    neuronsim = np.array([[np.nan, 0.5, 0.7], [0.3, np.nan, 0.9], [0.5, 0.1, np.nan]])
    svsim = np.array([[np.nan, 2.0, 3.0], [1.0, np.nan, 3.0], [1.0, 2.0, np.nan]])
    want = np.array([-0.1, -0.2, 0.3]) / math.sqrt(0.07) - [-1, 0, 1]
    assert_equal(reference.localization_score(neuronsim, svsim, standardize=True), want)


def test_ranks_share_ties():
    assert reference.rsa.ranks(np.array([3.0, 1.0, 3.0, 9.0])).tolist() == [2.5, 1, 2.5, 4]


def test_rsa_of_transformed_rows():
    x = np.random.default_rng(0).standard_normal((12, 6))
    scaled = np.random.default_rng(1).uniform(0.5, 2, (12, 1)) * x + 3  # correlations stay
    for correlation in ("pearson", "spearman"):
        assert_equal(reference.rsa_grid([x], [scaled], correlation=correlation), [[1.0]])


UNIFORM, FIRST = np.full((1, 2, 2), 0.5), np.array([[[1.0, 0.0], [1.0, 0.0]]])


@pytest.mark.parametrize(
    ("measure", "value"),
    [
        # The Frobenius distance is 1; a uniform row is constant; the JSD of (1/2, 1/2) and (1, 0)
        # is 3/4 log(4/3) with natural logarithms.
        ("frobenius", 0.0),
        ("pearson", 0.0),
        ("js", 1 - 0.75 * math.log(4 / 3)),
    ],
)
def test_attention_of_two_words(measure, value):
    assert_equal(reference.attention_grid([[UNIFORM]], [[FIRST]], measure=measure), [[value]])


def test_layers_are_compared_by_their_best_heads():
    both = np.concatenate([UNIFORM, FIRST])
    third = 1 - 0.75 * math.log(4 / 3)
    grid = reference.attention_grid([[both], [FIRST]], measure="js")
    assert_equal(grid, [[1.0, (1 + third) / 2], [1.0, 1.0]])


def test_causal_attention_renormalises_the_lower_triangle():
    a = np.array([[[0.3, 0.7], [0.4, 0.6]]])
    b = np.array([[[0.9, 0.1], [0.4, 0.6]]])
    assert_equal(reference.attention_grid([[a]], [[b]], causal=True), [[1.0]])
    assert reference.distributed_attention([a, a], causal=True).tolist() == [[1], [0.4], [0.6]] * 2


def test_distributed_attention_has_a_column_for_every_head():
    both = np.concatenate([UNIFORM, FIRST])
    got = reference.distributed_attention([both, both[:, :1, :1]])
    assert got.tolist() == [[0.5, 1], [0.5, 0], [0.5, 1], [0.5, 0], [0.5, 1]]
