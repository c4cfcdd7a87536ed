"""Errors over examples in the intervals of claims."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from simlab.evidence.intervals import HOLDS, UNDECIDED
from simlab.evidence.judge import judge
from simlab.evidence.rows import TaskRows
from simlab.similarity.block_scores import find_blocks
from simlab.store.results import FT, HELDOUT, MSE, ORIG, to_frame
from support.lab.claimrows import (
    OPTIONS,
    attention_varies_less,
    block_diagonal,
    families_alike,
    freeze_bottom,
    grid,
    labels,
    top_layers_can_go,
    tuning_delocalizes,
)
from support.lab.judging import BY_NAME, judged


def with_intervals(rows, half):
    """Return a table whose values have 95 % intervals of this half width."""
    frame = to_frame(rows)
    return frame.assign(low=frame["value"] - half, high=frame["value"] + half)


def added(name, rows, with_errors=None):
    """Return the error over examples in each finding, as a share of the error of one value."""
    without = judged(name, to_frame(rows))
    found = judged(name, with_intervals(rows, HALF) if with_errors is None else with_errors)
    shares = []
    for one, other in zip(without, found, strict=True):
        assert "error over examples" in other.note
        assert one.interval.estimate == other.interval.estimate
        # Units that agree have no interval of their own.
        halves = np.nan_to_num([(f.interval.high - f.interval.low) / 2 for f in (one, other)])
        error = math.sqrt(halves[1] ** 2 - halves[0] ** 2)
        error /= stats.t.ppf(0.975, one.interval.count - 1)
        shares.append(error * stats.norm.ppf(0.975) / HALF)
    return shares


# Half the width of intervals over examples, and how near the drawn errors come.
HALF, NEAR = 0.02, 0.25


@pytest.mark.parametrize("models", [3, 5])
def test_errors_that_the_curves_of_one_side_share_do_not_average_out(models):
    """Of maps of attention beside maps of hidden states, in any number of pairs."""
    # The quantity is .25 / .35 - 1, in which both errors have the same deviation.
    wanted = math.hypot(1 / 0.35, 0.25 / 0.35**2)
    every = [one for one in attention_varies_less(HOLDS, models) if one.measure == MSE]
    rows = [one for one in every if "linear" in one.options and HELDOUT in one.options]
    assert added("attention-varies-less", rows) == pytest.approx([wanted], rel=NEAR)


@pytest.mark.parametrize("models", [3, 9])
def test_errors_of_two_ways_of_freezing_do_not_cancel(models):
    """All seeds read the same texts."""
    rows = freeze_bottom(HOLDS, models)
    assert added("freeze-bottom", rows) == pytest.approx([math.sqrt(2)] * 2, rel=NEAR)


def test_errors_of_one_layer_of_all_models_do_not_average_out():
    """The metric without the top layers has another error than that of the whole model."""
    rows = top_layers_can_go(HOLDS, 9)
    assert added("top-layers-can-go", rows) == pytest.approx([math.sqrt(2)] * 2, rel=NEAR)


def test_errors_within_and_across_families_do_not_cancel():
    assert added("families-alike", families_alike(HOLDS)) == pytest.approx([2**0.5], rel=NEAR)


def test_an_end_that_was_cut_off_does_not_shrink_the_error():
    frame = with_intervals(freeze_bottom(HOLDS), 0.05)
    whole = judged("freeze-bottom", frame)
    for end, limit in (("high", frame["value"] + 0.01), ("low", frame["value"] - 0.01)):
        assert judged("freeze-bottom", frame.assign(**{end: limit})) == whole


def test_wide_intervals_over_examples_leave_a_claim_undecided():
    found = judged("freeze-bottom", with_intervals(freeze_bottom(HOLDS), 1.0))
    assert {f.verdict for f in found} == {UNDECIDED}


def test_no_note_tells_of_an_interval_that_is_missing():
    for found in judged("freeze-bottom", with_intervals(freeze_bottom(HOLDS, 2), 0.01)):
        assert math.isnan(found.interval.low)
        assert "interval" not in found.note


def test_rows_of_other_claims_add_no_error():
    mine, other = freeze_bottom(HOLDS), with_intervals(block_diagonal(HOLDS), 0.3)
    frame = pd.concat([to_frame(mine), other], ignore_index=True)
    assert judged("freeze-bottom", frame) == judged("freeze-bottom", to_frame(mine))
    (found,) = judged("block-diagonal", frame)
    assert "error over examples" in found.note


def test_blocks_are_scored_as_simcore_blocks_scores_them():
    noise = np.random.default_rng(2).uniform(size=(7, 7))
    similarity = (noise + noise.T) / 2
    found = judged("block-diagonal", to_frame(grid("FT-FT", similarity, *labels(1) * 2)))[0]
    assert found.interval.estimate == find_blocks(similarity, 2).calibrated


def test_texts_that_all_models_share_are_drawn_once():
    """Errors of nine localization scores go up together: their mean is no surer than one."""
    rows = [one for one in tuning_delocalizes(HOLDS, 9) if one.stage_x == FT]
    before = [one for one in tuning_delocalizes(HOLDS, 9) if one.stage_x == ORIG]
    frame = pd.concat([with_intervals(rows, HALF), to_frame(before)], ignore_index=True)
    (share,) = added("tuning-delocalizes", [*rows, *before], frame)
    assert 1 - 1e-6 < share < 1 + NEAR


def test_the_error_takes_no_more_than_a_move_of_each_layer():
    """Of seven layers of two heads, which are the sides, up and down; and twice no move."""
    claim, calls = BY_NAME["top-layers-can-go"], []

    def counted(rows):
        calls.append(rows)
        return claim.judge(rows)

    frame = with_intervals(top_layers_can_go(HOLDS, 9), HALF)
    judge(frame, [dataclasses.replace(claim, judge=counted)], OPTIONS)
    layers = frame[["experiment", "layer_x"]].drop_duplicates()
    sides = layers["experiment"].nunique()
    assert len(calls) == 2 * (len(layers) + sides) + 2


def test_a_claim_changes_nothing_that_is_known_of_the_models():
    """Copies of rows that share it would see the models that another claim invents."""
    rows = TaskRows("rt", to_frame(freeze_bottom(HOLDS)), OPTIONS)
    known = dict(rows.who)
    assert list(BY_NAME["freeze-bottom"].judge(rows.with_values(rows.frame["value"])))
    assert rows.who == known
