"""How often verdicts are wrong: at most 5 % of trials, by simulation."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from simlab.evidence.catalogue import CLAIMS
from simlab.evidence.claim import Evidence
from simlab.evidence.intervals import interval, value_of

STUDIES = Path(__file__).parents[3] / "examples" / "studies"
MOST_WRONG = 0.05


@pytest.fixture(scope="module")
def errors():
    """The script of the study, as a module."""
    spec = importlib.util.spec_from_file_location("verdict_errors", STUDIES / "verdict_errors.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("units", [5, 25])
def test_equal_costs_of_all_layers_are_no_evidence_that_the_first_matters(errors, units):
    """The mean of the other layers is fair; their maximum would decide against the claim."""
    found = errors.rates("first-layer-matters", units, 1, 100)
    assert found["fails"] <= MOST_WRONG
    assert errors.rates("first-layer-matters", units, 0, 100)["holds"] <= MOST_WRONG
    draw, decided = np.random.default_rng(0), 0
    for _ in range(100):
        losses = draw.normal(0.1, 0.05, (units, 12))
        losses[:, 0] += 0.025  # dearer than the others by half a standard deviation
        worst = losses[:, 0] - losses[:, 1:].max(axis=1)
        decided += interval([value_of(str(i), v) for i, v in enumerate(worst)]).high < 0
    assert decided / 100 > 5 * MOST_WRONG


def test_three_fine_tunings_of_one_model_would_decide_a_trend_without_effect(errors):
    """As three pretrained models would not."""
    draw, wrong = np.random.default_rng(0), 0
    for _ in range(200):
        curve = np.cumsum(draw.normal(size=12))
        seeds = [errors.depth_trend(range(12), curve + draw.normal(0, 0.2, 12)) for _ in range(3)]
        evidence = Evidence("", [value_of(str(i), v) for i, v in enumerate(seeds)], 0.3)
        wrong += errors.verdict(evidence) == "holds"
    assert wrong / 200 > 2 * MOST_WRONG  # were they taken for three models
    assert errors.rates("top-layers-change", 3, 0, 200)["holds"] <= MOST_WRONG


def test_every_rule_is_simulated(errors):
    assert errors.RULES.keys() == {claim.name for claim in CLAIMS}


@pytest.mark.parametrize("claim", [claim.name for claim in CLAIMS])
def test_verdicts_are_seldom_wrong(errors, claim):
    for effect, units in ((0, 3), (0, 5), (1, 3), (1, 5)):
        found = errors.rates(claim, units, effect, 60)
        assert found["fails" if effect else "holds"] <= MOST_WRONG, (effect, units)


def test_the_page_says_the_largest_committed_rate():
    rates = pd.read_csv(STUDIES / "results" / "verdict-errors.csv")
    wrong = rates["holds"].where(rates["truth"] == "no effect", rates["fails"])
    assert wrong.max() <= MOST_WRONG
    page = (STUDIES.parents[1] / "docs" / "results" / "claims.md").read_text()
    assert f"verdict came in {100 * wrong.max():g} % of the trials" in " ".join(page.split())


@pytest.mark.slow
def test_no_rule_is_often_wrong(errors):
    for claim in errors.RULES:
        for effect, units in ((0, 3), (0, 10), (1, 3), (1, 10)):
            trials = 40 if claim == "block-diagonal" else 300
            found = errors.rates(claim, units, effect, trials)
            assert found["fails" if effect else "holds"] <= MOST_WRONG, (claim, effect, units)
