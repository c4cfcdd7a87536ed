"""Conditions of a verdict beside the t test: chance, signs, and units that agree exactly.

They are compared with the level itself, and Holm's correction is one of the t test alone.
"""

from types import SimpleNamespace

import numpy as np
import pytest

from simlab.evidence import blocks
from simlab.evidence.claim import TASKS
from simlab.evidence.intervals import CANNOT, FAILS, HOLDS, UNDECIDED
from simlab.evidence.judge import judge
from simlab.evidence.options import ClaimOptions
from simlab.evidence.wording import number
from simlab.similarity.catalogue import MEASURES
from simlab.store.results import to_frame
from support.lab.claimrows import band, block_diagonal, grid, labels, planted, pretrained_apart
from support.lab.judging import BY_NAME, judged

MOST_WRONG = 0.05
LAYERS = 12
SIMILARITIES = [name for name, one in MEASURES.items() if not one.distance]


@pytest.mark.parametrize(
    ("score", "pvalue", "least", "verdict"),
    [
        (0.5, 0.005, 0.005, HOLDS),
        (0.5, 0.3, 0.005, UNDECIDED),
        (0.5, 0.19, 0.19, CANNOT),
        (0.05, 0.3, 0.005, FAILS),
        (0.05, 0.3, 0.19, FAILS),  # few layers keep a claim from holding, and not from failing
    ],
)
def test_blocks_are_beyond_chance(score, pvalue, least, verdict, monkeypatch):
    scores = iter([score - 0.01, score, score + 0.01])

    def find(table, clusters):
        return SimpleNamespace(calibrated=next(scores))

    monkeypatch.setattr(blocks, "find_blocks", find)
    monkeypatch.setattr(blocks, "pvalue_of_split", lambda table, clusters: pvalue)
    monkeypatch.setattr(blocks, "_least_pvalue", lambda layers: least)
    (found,) = judged("block-diagonal", to_frame(block_diagonal(HOLDS)))
    assert found.verdict == verdict
    assert f"p of chance {number(pvalue)}" in found.note


def test_six_layers_are_enough_for_blocks_and_five_are_not():
    least = {layers: blocks._least_pvalue(layers) for layers in range(3, 8)}
    assert min(least[3], least[4], least[5]) == pytest.approx(1 / 6)
    assert least[6] == pytest.approx(1 / 30)
    assert least[7] == 0
    seven = blocks.pvalue_of_split(planted(3, 7), 2)
    assert seven < 0.02  # so that no count is needed


def test_five_layers_are_too_few_for_blocks():
    rows = [one for label in labels(8) for one in grid("FT-FT", planted(2, 5), label, label)]
    (found,) = judged("block-diagonal", to_frame(rows))
    assert found.verdict == CANNOT
    assert "5 layers are too few: perfect blocks have p = .17" in found.note


def test_one_task_without_blocks_forbids_none_over_twelve_tasks():
    """The paper's claim is one about almost every task."""
    rows = []
    for task in range(12):
        values = band() if task == 5 else planted(4)
        for label in labels(2):
            rows += grid("FT-FT", values, label, label, task=f"task {task}")
    (found,) = [one for one in judged("block-diagonal", to_frame(rows)) if one.unit == TASKS]
    assert (found.interval.count, found.verdict) == (12, HOLDS)


def trends(draw, units, drift, measures=SIMILARITIES):
    """Return changes by fine-tuning that are random walks over depth, for each measure."""
    rows = []
    for label in labels(units):
        for measure in measures:
            change = 0.001 * np.cumsum(draw.normal(drift, 1.0, LAYERS))
            for layer, value in enumerate(change, 1):
                rows += grid("FT-ORIG", [[0.5 - value]], label, "ORIG", measure, first=layer)
    return to_frame(pretrained_apart(rows))


def verdicts(frame):
    ((_, found),) = judge(frame, [BY_NAME["top-layers-change"]], ClaimOptions())
    return found


def test_many_trends_of_eight_units_hold_beside_each_other():
    """Signs of eight units have p = .0078, which a correction for more than six would lose."""
    found = verdicts(trends(np.random.default_rng(0), 8, 3.0))
    assert len(found) > 10
    assert {(one.interval.count, one.verdict) for one in found} == {(8, HOLDS)}
    assert all("p of signs .0078" in one.note for one in found)


def test_a_trend_with_units_of_other_signs_is_undecided_whatever_its_t_test():
    draw = np.random.default_rng(0)
    up, down = np.arange(LAYERS), np.r_[np.arange(6), np.arange(6)[::-1]]
    rows = []
    for number_of, label in enumerate(labels(12)):
        change = 0.01 * (down if number_of > 8 else up) + draw.normal(0, 1e-3, LAYERS)
        rows += grid("FT-ORIG", np.diag(0.9 - change), label, "ORIG", first=1)
    (found,) = verdicts(to_frame(pretrained_apart(rows)))
    assert found.adjusted < 0.05
    assert "p of signs .15" in found.note
    assert found.verdict == UNDECIDED


def test_units_that_agree_exactly_need_no_corrected_signs():
    rows = trends(np.random.default_rng(0), 8, 1e6)
    found = verdicts(rows)
    assert {one.interval.pvalue for one in found} == {2.0**-7}
    assert {(one.adjusted, one.verdict) for one in found} == {(2.0**-7, HOLDS)}


@pytest.mark.slow
def test_few_pages_of_many_trends_without_effect_have_a_false_verdict():
    """A page with as many rows as there are measures, of which none has an effect."""
    draw, pages = np.random.default_rng(8), 200
    found = [verdicts(trends(draw, 8, 0.0)) for _ in range(pages)]
    wrong = sum(HOLDS in {one.verdict for one in page} for page in found)
    assert wrong / pages <= MOST_WRONG
