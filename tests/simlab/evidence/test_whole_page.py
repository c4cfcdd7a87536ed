"""Holm's correction over all claims of a sweep like that of Phang et al.: power, and errors."""

from collections import Counter

import numpy as np
import pytest

from simlab.evidence.catalogue import CLAIMS
from simlab.evidence.claim import BOTH, TASKS
from simlab.evidence.intervals import CANNOT, HOLDS
from simlab.evidence.judge import judge
from simlab.evidence.options import ClaimOptions
from simlab.store.results import to_frame
from support.lab.phangpage import page

MOST_WRONG = 0.05


def judged_page(seed, effect):
    """Return each claim's findings over tasks or models, with the number of all findings."""
    rows = to_frame(page(np.random.default_rng(seed), effect))
    return [
        (claim.name, found) for claim, each in judge(rows, CLAIMS, ClaimOptions()) for found in each
    ]


def test_the_headlines_hold_on_a_whole_page():
    found = judged_page(0, 1)
    assert sum(one.verdict != CANNOT for _, one in found) > 25  # corrected together
    over = [(name, one) for name, one in found if one.unit in (TASKS, BOTH)]
    holds = Counter((name, one.base) for name, one in over if one.verdict == HOLDS)
    for name in ("tuned-beats-orig", "first-layer-matters", "later-spans-cost-less"):
        for base in ("hub/roberta-base", "hub/albert-base", "hub/electra-base"):
            assert holds[name, base], (name, base)
    for name in ("block-diagonal", "top-layers-can-go"):
        assert holds[name, "hub/roberta-base"], name
        assert holds[name, "hub/albert-base"], name
        assert not holds[name, "hub/electra-base"], name
    for name in ("electra-no-blocks", "electra-needs-top-layers", "albert-spares-more"):
        assert holds[name, ""], name
    assert holds["top-layers-change", ""]  # 36 tasks of three models


def test_nothing_holds_on_a_page_without_effect():
    assert HOLDS not in {one.verdict for _, one in judged_page(1, 0)}


@pytest.mark.slow
def test_few_pages_without_effect_have_a_false_verdict():
    pages = 25
    wrong = sum(HOLDS in {one.verdict for _, one in judged_page(seed, 0)} for seed in range(pages))
    assert wrong / pages <= MOST_WRONG
