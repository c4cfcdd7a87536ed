"""Conditions of a verdict beside the t test: chance, signs, and units that agree exactly.

They are compared with the level itself, and Holm's correction is one of the t test alone.
"""

import numpy as np
import pytest

from simlab.evidence.claim import TASKS, Quantity
from simlab.evidence.phang import LEAST_LAYERS
from simlab.evidence.rows import ClaimOptions
from simlab.evidence.verdicts import CANNOT, FAILS, HOLDS, UNDECIDED, Units, decide
from simlab.results.results import to_frame
from simlab.similarity.blocks import pvalue_of_split
from simlab.similarity.catalogue import MEASURES
from support.lab.claimrows import band, grid, labels, planted, pretrained_apart
from support.lab.judging import BY_NAME, judged

LAYERS = 12
SIMILARITIES = [name for name, one in MEASURES.items() if not one.distance][:12]


@pytest.mark.parametrize(
    ("score", "pvalue", "unable", "verdict"),
    [
        (0.5, 0.005, "", HOLDS),
        (0.5, 0.3, "", UNDECIDED),
        (0.5, 0.005, "too few layers", CANNOT),
        (0.05, 0.3, "", FAILS),
        (0.05, 0.3, "too few layers", FAILS),  # which keep a claim from holding, not from failing
    ],
)
def test_blocks_are_beyond_chance(score, pvalue, unable, verdict):
    values = {str(more): np.array([score + more]) for more in (-0.01, 0, 0.01)}
    quantity = Quantity("", values, chance=lambda: pvalue, unable=unable)
    found = decide(BY_NAME["block-diagonal"], quantity, Units(values), "models", ClaimOptions())
    assert found.verdict == verdict
    assert "p of chance" in found.note


def test_six_layers_are_enough_for_blocks_and_five_are_not():
    least = {
        layers: min(pvalue_of_split(planted(size, layers), 2) for size in range(1, layers))
        for layers in (4, 5, 6, 7)
    }
    assert [layers for layers, pvalue in least.items() if pvalue <= 0.05] == [LEAST_LAYERS, 7]
    rows = [one for label in labels(8) for one in grid("FT-FT", planted(2, 5), label, label)]
    (found,) = judged("block-diagonal", to_frame(rows))
    assert found.verdict == CANNOT
    assert "blocks of 5 layers are never beyond chance" in found.note


def test_one_task_without_blocks_forbids_none_over_twelve_tasks():
    """The paper's claim is one about almost every task."""
    rows = []
    for task in range(12):
        values = band() if task == 5 else planted(4)
        for label in labels(2):
            rows += grid("FT-FT", values, label, label, task=f"task {task}")
    (found,) = [one for one in judged("block-diagonal", to_frame(rows)) if one.unit == TASKS]
    assert (found.units, found.verdict) == (12, HOLDS)


def trends(draw, units, drift, measures=SIMILARITIES):
    """Return changes by fine-tuning that are random walks over depth, for each measure."""
    rows = []
    for label in labels(units):
        for measure in measures:
            change = 0.001 * np.cumsum(draw.normal(drift, 1.0, LAYERS))
            for layer, value in enumerate(change, 1):
                rows += grid("FT-ORIG", [[0.5 - value]], label, "ORIG", measure, first=layer)
    return judged("top-layers-change", to_frame(pretrained_apart(rows)))


def test_many_trends_of_eight_units_hold_beside_each_other():
    """Signs of eight units have p = .0078, which a correction for more than six would lose."""
    found = trends(np.random.default_rng(0), 8, 3.0)
    assert len(found) > 10
    assert {(one.units, one.verdict) for one in found} == {(8, HOLDS)}
    assert all("p of signs .0078" in one.note for one in found)


def test_a_trend_with_units_of_other_signs_is_undecided_whatever_its_t_test():
    draw = np.random.default_rng(0)
    up, down = np.arange(LAYERS), np.r_[np.arange(6), np.arange(6)[::-1]]
    rows = []
    for at, label in enumerate(labels(12)):
        change = 0.01 * (down if at > 8 else up) + draw.normal(0, 1e-3, LAYERS)
        rows += grid("FT-ORIG", np.diag(0.9 - change), label, "ORIG", first=1)
    (found,) = judged("top-layers-change", to_frame(pretrained_apart(rows)))
    assert found.adjusted < 0.05
    assert "p of signs .15" in found.note
    assert found.verdict == UNDECIDED


def test_units_that_agree_exactly_need_no_corrected_signs():
    found = trends(np.random.default_rng(0), 8, 1e6)
    assert {one.pvalue for one in found} == {2.0**-7}
    assert {(one.adjusted, one.verdict) for one in found} == {(2.0**-7, HOLDS)}
