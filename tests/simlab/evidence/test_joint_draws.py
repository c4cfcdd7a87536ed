"""Draws of examples that all rows share: the errors of models go together as far as they do."""

import math
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from simlab.evidence.intervals import HOLDS
from simlab.evidence.spreads import LEAST_DRAWS, joint_errors
from simlab.store.draws import KEPT
from simlab.store.results import MSE, to_frame
from support.lab.claimrows import attention_varies_less, freeze_bottom, top_layers_can_go
from support.lab.judging import judged
from support.lab.result_rows import with_draws

TEXTS, MODELS, SHARE = 200, 6, 0.8


def answers(draw, correlation, models, texts=TEXTS):
    """Return which texts each model answers well, [models, texts]; texts are hard for all alike."""
    common, own = draw.normal(size=texts), draw.normal(size=(models, texts))
    skill = math.sqrt(correlation) * common + math.sqrt(1 - correlation) * own
    return skill < NormalDist().inv_cdf(SHARE)


def drawn(right, seed=0):
    """Return accuracies in draws of the same texts for all models, [draws, models]."""
    picks = np.random.default_rng(seed).integers(right.shape[1], size=(KEPT, right.shape[1]))
    return right[:, picks].mean(axis=2).T


@pytest.mark.parametrize("correlation", [0.0, 0.5, 1.0])
def test_intervals_over_texts_cover_the_truth(correlation):
    """Of a mean over models, and of a difference of two sides that share nothing."""
    draw, covered, trials = np.random.default_rng(3), np.zeros(2), 600
    weights = np.full((2, 2 * MODELS), 1 / MODELS)
    weights[0, MODELS:] = 0
    weights[1, MODELS:] *= -1
    truth = np.array([SHARE, 0])
    for _ in range(trials):
        right = np.concatenate([answers(draw, correlation, MODELS) for _ in range(2)])
        values = right.mean(axis=1)
        frame = with_draws(pd.DataFrame({"value": values}), drawn(right), TEXTS)
        errors = joint_errors(frame, (frame["high"] - frame["value"]).to_numpy())
        spread = np.std(errors @ weights.T, axis=0, ddof=1)
        covered += np.abs(weights @ values - truth) < 1.96 * spread
    assert (covered / trials > 0.92).all()
    assert (covered / trials < 0.98).all()


def added(name, frame, without):
    """Return the error over examples in the first finding."""
    halves = [(f.interval.high - f.interval.low) / 2 for f in
              (judged(name, one)[0] for one in (frame, without))]  # fmt: skip
    units = judged(name, without)[0].interval.count
    return math.sqrt(halves[0] ** 2 - halves[1] ** 2) / stats.t.ppf(0.975, units - 1)


@pytest.mark.parametrize(("correlation", "share"), [(0.0, 1 / 3), (1.0, 1.0)])
def test_seeds_that_err_together_are_no_surer_than_one(correlation, share):
    """Nine pairs of ways of freezing: one way has errors, in each seed its own or the same."""
    plain = to_frame([one for one in freeze_bottom(HOLDS, 9) if one.label_x.endswith(":2")])
    noise = np.random.default_rng(0).normal(0, 0.02, (KEPT, len(plain)))
    noise = math.sqrt(correlation) * noise[:, :1] + math.sqrt(1 - correlation) * noise
    noise[:, plain["label_x"] == "top:2"] = 0
    found = added("freeze-bottom", with_draws(plain, noise), plain)
    assert found == pytest.approx(0.02 * share, rel=0.25)


def test_draws_that_both_sides_share_cancel():
    """The metric without the top layers errs as that of the whole model does."""
    plain = to_frame(top_layers_can_go(HOLDS, 9))
    noise = np.random.default_rng(0).normal(0, 0.02, (KEPT, 1)) * np.ones(len(plain))
    known = with_draws(plain, noise)
    assert judged("top-layers-can-go", known) == judged("top-layers-can-go", plain)
    # Of intervals alone it is not known that they cancel.
    (found, _) = judged("top-layers-can-go", known.assign(draws=None))
    error = (found.interval.high - found.interval.low) / 2 / stats.t.ppf(0.975, 8)
    assert error == pytest.approx(0.02 * math.sqrt(2), rel=0.25)


def test_rows_of_other_texts_have_errors_of_their_own():
    frame = pd.DataFrame({"value": [0.5, 0.5, 0.5]})
    noise = np.random.default_rng(0).normal(0, 0.01, (KEPT, 1)) * np.ones(3)
    parts = [with_draws(frame[:2], noise[:, :2], 100), with_draws(frame[2:], noise[:, 2:], 99)]
    errors = joint_errors(pd.concat(parts, ignore_index=True), np.full(3, 0.01))
    together = np.corrcoef(errors.T)
    assert together[0, 1] == pytest.approx(1)
    assert abs(together[0, 2]) < 0.3
    assert np.std(errors[:, 2]) == pytest.approx(np.std(errors[:, 0]))


def test_a_row_without_draws_or_few_draws_leave_the_cases():
    frame = pd.DataFrame({"value": [0.5, 0.5]})
    noise = np.random.default_rng(0).normal(0, 0.01, (KEPT, 2))
    whole, deviation = with_draws(frame, noise), np.full(2, 0.01)
    assert joint_errors(whole, deviation).shape == (KEPT, 2)
    lacking = whole.assign(draws=[whole["draws"][0], None])
    assert joint_errors(lacking, deviation) is None
    assert joint_errors(lacking, deviation * [1, 0]) is not None
    few = with_draws(frame, noise[: LEAST_DRAWS - 1])
    assert joint_errors(few, deviation) is None


def test_maps_of_attention_whose_texts_are_hard_alike():
    """The limit of many pairs: the error of one side stays."""
    plain = to_frame([one for one in attention_varies_less(HOLDS, 3) if one.measure == MSE])
    noise = np.random.default_rng(0).normal(0, 0.02, (KEPT, 1)) * np.ones(len(plain))
    noise[:, plain["kind"] != "attention"] = 0
    found = added("attention-varies-less", with_draws(plain, noise), plain)
    assert found == pytest.approx(0.02 / 0.35, rel=0.25)
