"""Every claim on constructed results: it holds, it fails, and it cannot be decided."""

import pandas as pd
import pytest

from simlab.evidence.claim import TASKS
from simlab.evidence.verdicts import ALL, CANNOT, FAILS, HOLDS, UNDECIDED
from simlab.results.results import to_frame
from support.lab import claimrows, contrastrows
from support.lab.claimrows import OPTIONS
from support.lab.judging import BY_NAME, judged

BUILDERS = claimrows.BUILDERS | contrastrows.BUILDERS
FAMILIES = "families-alike"


def findings(name, rows, options=OPTIONS):
    """Return the findings of one claim in single tasks, or over tasks if it has no others."""
    found = judged(name, to_frame(rows), options)
    single = BY_NAME[name].about != TASKS
    return [finding for finding in found if not single or finding.task != ALL]


def test_every_claim_has_constructed_results():
    assert BUILDERS.keys() == BY_NAME.keys()


@pytest.mark.parametrize(
    "case", [HOLDS, *(pytest.param(case, marks=pytest.mark.deep) for case in (FAILS, UNDECIDED))]
)
@pytest.mark.parametrize("name", BUILDERS)
def test_a_claim_gets_the_verdict_of_its_results(name, case):
    found = findings(name, BUILDERS[name](case, 9))  # equal values need six units
    assert found
    assert {f.quantity: f.verdict for f in found} == {f.quantity: case for f in found}


@pytest.mark.parametrize("name", BUILDERS)
def test_two_models_are_too_few(name):
    found = findings(name, BUILDERS[name](HOLDS, 2))
    assert {f.verdict for f in found} == {CANNOT}
    assert all(f.units == 2 for f in found)


def test_a_training_run_is_judged_at_its_last_step():
    """Its steps are no models of their own."""
    name = "top-layers-can-go"
    rows = to_frame(BUILDERS[name](HOLDS, 9))
    run = rows.assign(step_x=1000, label_x=rows["label_x"] + " @ 1000")
    early = run.assign(step_x=1, label_x=rows["label_x"] + " @ 1", value=rows["value"] - 0.3)
    both = pd.concat([early, run], ignore_index=True)
    alone, together = (judged(name, frame) for frame in (run, both))
    assert alone
    assert [(f.verdict, f.pvalue) for f in together] == [(f.verdict, f.pvalue) for f in alone]


def test_distances_are_not_read_as_similarities():
    name = "families-alike"
    rows = to_frame(BUILDERS[name](HOLDS))
    distances = rows.assign(measure="gulp", value=1 - rows["value"])
    both = pd.concat([rows, distances], ignore_index=True)
    assert judged(name, both) == judged(name, rows)
    assert judged(name, distances) == []
