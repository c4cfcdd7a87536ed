"""Errors over examples in the intervals of claims: of draws that rows share, or of intervals."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from simlab.evidence.rows import ClaimOptions, tasks_of
from simlab.evidence.verdicts import HOLDS, UNDECIDED
from simlab.results.results import FT, HELDOUT, KEPT, MSE, ORIG, to_frame
from simlab.similarity.blocks import find_blocks
from support.lab.claimrows import (
    attention_varies_less,
    families_alike,
    freeze_bottom,
    grid,
    labels,
    top_layers_can_go,
    tuning_delocalizes,
)
from support.lab.judging import judged
from support.lab.result_rows import with_draws

# Half the width of intervals over examples, and how near the drawn errors come.
HALF, NEAR = 0.02, 0.25


def with_intervals(rows, half):
    """Return a table whose values have 95 % intervals of this half width."""
    frame = to_frame(rows)
    return frame.assign(low=frame["value"] - half, high=frame["value"] + half)


def added(name, rows, with_errors=None):
    """Return the error over examples in each verdict, as a share of the error of one value."""
    without = judged(name, to_frame(rows))
    found = judged(name, with_intervals(rows, HALF) if with_errors is None else with_errors)
    shares = []
    for one, other in zip(without, found, strict=True):
        assert "error over examples" in other.note
        assert one.estimate == other.estimate
        # Units that agree have no interval of their own.
        halves = np.nan_to_num([(f.high - f.low) / 2 for f in (one, other)])
        error = math.sqrt(halves[1] ** 2 - halves[0] ** 2) / stats.t.ppf(0.975, one.units - 1)
        shares.append(error * stats.norm.ppf(0.975) / HALF)
    return shares


@pytest.mark.parametrize("models", [3, 5])
def test_errors_that_the_curves_of_one_side_share_do_not_average_out(models):
    """Of maps of attention beside maps of hidden states, in any number of pairs."""
    # The quantity is .25 / .35 - 1, in which both errors have the same deviation.
    wanted = math.hypot(1 / 0.35, 0.25 / 0.35**2)
    every = [one for one in attention_varies_less(HOLDS, models) if one.measure == MSE]
    rows = [one for one in every if "linear" in one.options and HELDOUT in one.options]
    assert added("attention-varies-less", rows) == pytest.approx([wanted], rel=NEAR)


@pytest.mark.parametrize(
    ("name", "rows", "quantities"),
    [
        ("freeze-bottom", freeze_bottom, 2),  # all seeds read the same texts
        ("top-layers-can-go", top_layers_can_go, 2),  # two layers of all models
        ("families-alike", families_alike, 1),  # within and across do not cancel
    ],
)
def test_the_errors_of_two_sides_add_up(name, rows, quantities):
    assert added(name, rows(HOLDS, 9)) == pytest.approx([math.sqrt(2)] * quantities, rel=NEAR)


def test_texts_that_all_models_share_are_drawn_once():
    """Errors of nine localization scores go up together: their mean is no surer than one."""
    every = tuning_delocalizes(HOLDS, 9)
    rows, before = ([one for one in every if one.stage_x == stage] for stage in (FT, ORIG))
    frame = pd.concat([with_intervals(rows, HALF), to_frame(before)], ignore_index=True)
    (share,) = added("tuning-delocalizes", [*rows, *before], frame)
    assert 1 - 1e-6 < share < 1 + NEAR


def test_an_end_that_was_cut_off_does_not_shrink_the_error():
    frame = with_intervals(freeze_bottom(HOLDS), 0.05)
    whole = judged("freeze-bottom", frame)
    for end, limit in (("high", frame["value"] + 0.01), ("low", frame["value"] - 0.01)):
        assert judged("freeze-bottom", frame.assign(**{end: limit})) == whole


def test_wide_intervals_leave_a_claim_undecided_and_two_units_have_none():
    found = judged("freeze-bottom", with_intervals(freeze_bottom(HOLDS), 1.0))
    assert {f.verdict for f in found} == {UNDECIDED}
    for found in judged("freeze-bottom", with_intervals(freeze_bottom(HOLDS, 2), 0.01)):
        assert math.isnan(found.low)
        assert "interval" not in found.note


def test_blocks_are_scored_as_simcore_blocks_scores_them():
    noise = np.random.default_rng(2).uniform(size=(7, 7))
    similarity = (noise + noise.T) / 2
    found = judged("block-diagonal", to_frame(grid("FT-FT", similarity, *labels(1) * 2)))[0]
    assert found.estimate == pytest.approx(find_blocks(similarity, 2).calibrated, rel=1e-12)


# Draws of examples.


@pytest.mark.parametrize(("correlation", "share"), [(0.0, 1 / 3), (1.0, 1.0)])
def test_seeds_that_err_together_are_no_surer_than_one(correlation, share):
    """Nine pairs of ways of freezing: one way has errors, in each seed its own or the same."""
    rows = [one for one in freeze_bottom(HOLDS, 9) if one.label_x.endswith(":2")]
    plain = to_frame(rows)
    noise = np.random.default_rng(0).normal(0, HALF / 1.96, (KEPT, len(plain)))
    noise = math.sqrt(correlation) * noise[:, :1] + math.sqrt(1 - correlation) * noise
    noise[:, plain["label_x"] == "top:2"] = 0
    assert added("freeze-bottom", rows, with_draws(plain, noise)) == pytest.approx(
        [share], rel=NEAR
    )


def test_draws_that_both_sides_share_cancel():
    """The metric without the top layers errs as that of the whole model does."""
    rows = top_layers_can_go(HOLDS, 9)
    plain = to_frame(rows)
    noise = np.random.default_rng(0).normal(0, HALF / 1.96, (KEPT, 1)) * np.ones(len(plain))
    known = with_draws(plain, noise)
    found = judged("top-layers-can-go", known)
    assert all(math.isnan(one.low) for one in found)  # all models agree: no error is left
    # Of intervals alone it is not known that they cancel.
    wanted = [math.sqrt(2)] * 2
    assert added("top-layers-can-go", rows, known.assign(draws=None)) == pytest.approx(
        wanted, rel=NEAR
    )


def test_rows_of_other_texts_have_errors_of_their_own():
    rows = to_frame(freeze_bottom(HOLDS)[:3])
    noise = np.random.default_rng(0).normal(0, 0.01, (KEPT, 1)) * np.ones(3)
    parts = [with_draws(rows[:2], noise[:, :2], 100), with_draws(rows[2:], noise[:, 2:], 99)]
    (task,) = tasks_of(pd.concat(parts, ignore_index=True), ClaimOptions())
    errors = task.values(task.frame)[:, 1 : KEPT + 1]
    together = np.corrcoef(errors)
    assert together[0, 1] == pytest.approx(1)
    assert abs(together[0, 2]) < 0.3
    assert np.std(errors[2]) == pytest.approx(np.std(errors[0]))
