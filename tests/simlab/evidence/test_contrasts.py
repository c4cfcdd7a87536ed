"""Kinds of models are compared in each task, and tasks are the units."""

import pandas as pd
import pytest

from simlab.evidence.claim import TASKS
from simlab.evidence.contrasts import spare_share
from simlab.evidence.intervals import CANNOT, HOLDS
from simlab.store.results import to_frame
from support.lab.contrastrows import (
    albert_spares_more,
    electra_needs_top_layers,
    electra_no_blocks,
)
from support.lab.judging import judged


def test_the_units_are_the_tasks_of_all_base_models():
    (found,) = judged("electra-no-blocks", to_frame(electra_no_blocks(HOLDS, 9)))
    assert (found.task, found.base, found.unit, found.interval.count) == ("all", "", TASKS, 9)


def test_one_task_has_an_estimate_and_decides_nothing():
    found = judged("electra-needs-top-layers", to_frame(electra_needs_top_layers(HOLDS, 1)))
    assert {f.verdict for f in found} == {CANNOT}
    assert [f.interval.estimate for f in found] == pytest.approx([-0.09, -0.09])


def test_albert_is_not_compared_with_electra():
    """ELECTRA can spare nothing in the paper, so that it would favour the claim."""
    rows = to_frame(albert_spares_more(HOLDS, 3))
    losing = rows["label_x"].eq("electra-FT[1]") & rows["layer_x"].lt(8)
    poor = rows.assign(value=rows["value"].mask(losing, 0.0))
    before, after = (judged("albert-spares-more", some) for some in (rows, poor))
    assert [f.interval.estimate for f in before] == [f.interval.estimate for f in after]


def test_models_of_one_kind_alone_are_no_contrast():
    rows = to_frame(electra_needs_top_layers(HOLDS, 3))
    assert judged("electra-needs-top-layers", rows[rows["label_x"] == "electra-FT[1]"]) == []


@pytest.mark.parametrize(
    ("gains", "share"),
    [
        ([0.0, 0.0, 0.0, 0.0], 0.75),
        ([-0.2, -0.2, 0.0, 0.0], 0.25),
        ([0.0, -0.2, 0.0, 0.0], 0.25),  # layer 1 is lucky
        ([0.0, 0.0, -0.2, 0.0], 0.0),
    ],
)
def test_layers_go_one_after_the_other_from_the_top(gains, share):
    assert spare_share(pd.Series(gains, [1, 2, 3, 4]), 0.01) == share
