"""Errors over examples in the intervals of claims."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from simlab.evidence.intervals import HOLDS, UNDECIDED
from simlab.similarity.block_scores import find_blocks
from simlab.store.results import FT, ORIG, to_frame
from support.lab.claimrows import (
    attention_varies_less,
    block_diagonal,
    families_alike,
    freeze_bottom,
    grid,
    labels,
    tuning_delocalizes,
)
from support.lab.judging import judged


def with_intervals(rows, half):
    """Return a table whose values have 95 % intervals of this half width."""
    frame = to_frame(rows)
    return frame.assign(low=frame["value"] - half, high=frame["value"] + half)


def test_intervals_over_examples_widen_the_interval():
    rows = freeze_bottom(HOLDS)
    without = judged("freeze-bottom", to_frame(rows))
    half = 0.01
    found = judged("freeze-bottom", with_intervals(rows, half))
    # Each of three differences has two values with this error.
    spread = half / stats.norm.ppf(0.975) * math.sqrt(2 / 3)
    for one, other in zip(without, found, strict=True):
        halves = [(f.interval.high - f.interval.low) / 2 for f in (one, other)]
        added = math.sqrt(halves[1] ** 2 - halves[0] ** 2) / stats.t.ppf(0.975, 2)
        assert 0.7 * spread < added < 1.6 * spread
        assert "error over examples" in other.note
        assert one.interval.estimate == other.interval.estimate


def test_errors_that_cells_share_do_not_average_out():
    half = 0.02
    (found,) = judged("families-alike", with_intervals(families_alike(HOLDS), half))
    (without,) = judged("families-alike", to_frame(families_alike(HOLDS)))
    halves = [(f.interval.high - f.interval.low) / 2 for f in (without, found)]
    added = math.sqrt(halves[1] ** 2 - halves[0] ** 2) / stats.t.ppf(0.975, 2)
    # Means of 3 pairs within and 12 pairs across families; each pair has two directions.
    shared = half / stats.norm.ppf(0.975) * math.sqrt((1 / 3 + 1 / 12) / 2)
    assert 0.6 * shared < added < 1.7 * shared


def test_errors_of_two_curves_between_the_same_models_do_not_cancel():
    half = 0.02
    rows = attention_varies_less(HOLDS)
    found = judged("attention-varies-less", with_intervals(rows, half))
    # Of three pairs in two directions, two curves, each with an error of its own; the quantity is
    # a share of errors that are .35 in the mean.
    spread = half / 0.35 / stats.norm.ppf(0.975) * math.sqrt(2 / (3 * 2))
    for without, one in zip(judged("attention-varies-less", to_frame(rows)), found, strict=True):
        halves = [(f.interval.high - f.interval.low) / 2 for f in (without, one)]
        added = math.sqrt(halves[1] ** 2 - halves[0] ** 2) / stats.t.ppf(0.975, 2)
        assert 0.6 * spread < added < 1.7 * spread


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
    """Errors of three localization scores go up together: their mean is no surer than one."""
    half = 0.02
    rows = [one for one in tuning_delocalizes(HOLDS, 9) if one.stage_x == FT]
    before = [one for one in tuning_delocalizes(HOLDS, 9) if one.stage_x == ORIG]
    frame = pd.concat([with_intervals(rows, half), to_frame(before)], ignore_index=True)
    sides = [judged("tuning-delocalizes", one)[0] for one in (frame, to_frame(rows + before))]
    halves = [(f.interval.high - f.interval.low) / 2 for f in sides]
    added = math.sqrt(halves[0] ** 2 - halves[1] ** 2) / stats.t.ppf(0.975, 8)
    assert added == pytest.approx(half / stats.norm.ppf(0.975), rel=1e-6)
