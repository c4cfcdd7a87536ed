"""Every claim on constructed results: it holds, it fails, and it cannot be decided."""

import pytest

from simlab.evidence.blocks import TASKS
from simlab.evidence.catalogue import CLAIMS
from simlab.evidence.intervals import FAILS, HOLDS, UNDECIDED
from simlab.evidence.judge import judge
from simlab.store.results import to_frame
from support.lab.claimrows import BUILDERS, OPTIONS

BY_NAME = {claim.name: claim for claim in CLAIMS}
TWO_MODELS = dict.fromkeys(BUILDERS, 2)


def findings(name, rows, options=OPTIONS):
    """Return the findings of one claim in single tasks."""
    ((_, found),) = judge(to_frame(rows), [BY_NAME[name]], options)
    return [finding for finding in found if finding.task != TASKS]


def test_every_claim_has_constructed_results():
    assert BUILDERS.keys() == BY_NAME.keys()


@pytest.mark.parametrize("case", [HOLDS, FAILS, UNDECIDED])
@pytest.mark.parametrize("name", BUILDERS)
def test_a_claim_gets_the_verdict_of_its_results(name, case):
    found = findings(name, BUILDERS[name](case))
    assert found
    assert {f.quantity: f.verdict for f in found} == {f.quantity: case for f in found}


@pytest.mark.parametrize("case", [HOLDS, FAILS])
@pytest.mark.parametrize("name", BUILDERS)
def test_two_models_are_too_few(name, case):
    if name == "families-alike":
        pytest.skip("two models have no pair within a family and across families")
    found = findings(name, BUILDERS[name](case, 2))
    assert {f.verdict for f in found} == {UNDECIDED}
    assert all(f.interval.models == 2 for f in found)
