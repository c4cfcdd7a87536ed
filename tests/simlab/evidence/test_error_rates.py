"""How often verdicts are wrong: at most 5 % of trials, by simulation."""

import re
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from simlab.evidence.catalogue import CLAIMS
from simlab.evidence.claim import Evidence
from simlab.evidence.intervals import ALPHA, HOLDS, interval, value_of
from simlab.evidence.rows import depth_trend
from simlab.store.results import to_frame
from support.lab.claimrows import grid
from support.lab.judging import judged

STUDIES = Path(__file__).parents[3] / "examples" / "studies"
PAGE = STUDIES.parents[1] / "docs" / "results" / "claims.md"
MOST_WRONG = 0.05
UNLIKELY = 1e-3
ANOTHER = 1e-5  # a share of trials that the committed rate gives as seldom is another rate
NAMES = [claim.name for claim in CLAIMS]


@pytest.fixture(scope="module")
def errors():
    """The script of the study, as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(STUDIES))
        import verdict_errors

        yield verdict_errors
    for name in ("verdict_errors", "drawn_rows", "drawn_values", "drawn_designs"):
        sys.modules.pop(name)


@pytest.fixture(scope="module")
def committed():
    return pd.read_csv(STUDIES / "results" / "verdict-errors.csv")


def with_rows():
    """Return the claims that have builders of drawn rows."""
    import drawn_rows

    return drawn_rows.ROWS


def agree(found, row, trials):
    """Return whether rates in new trials can be the committed rates."""
    return all(
        min(binom.cdf(count, trials, p), binom.sf(count - 1, trials, p)) >= ANOTHER
        for name, share in found.items()
        for count in [round(share * trials)]
        # A rate of 0 in the committed trials excludes no rate below 3 in as many.
        for p in [np.clip(row[name], 3 / row["trials"], 1 - 3 / row["trials"])]
    )


@pytest.mark.parametrize("units", [5, 25])
def test_equal_costs_of_all_layers_are_no_evidence_that_the_first_matters(errors, units):
    """The mean of the other layers is fair; their maximum would decide against the claim."""
    found = errors.rates("first-layer-matters", units, errors.EFFECT, 100)
    assert found["fails"] <= MOST_WRONG
    assert errors.rates("first-layer-matters", units, errors.NO_EFFECT, 100)[HOLDS] <= MOST_WRONG
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
        seeds = [depth_trend(range(12), curve + draw.normal(0, 0.2, 12)) for _ in range(3)]
        evidence = Evidence("", [value_of(str(i), v) for i, v in enumerate(seeds)], 0.3)
        wrong += errors.verdict(evidence) == HOLDS
    assert wrong / 200 > 2 * MOST_WRONG  # were they taken for three models
    assert errors.rates("top-layers-change", 3, errors.NO_EFFECT, 200)[HOLDS] <= MOST_WRONG


@pytest.mark.parametrize("units", [3, 5, 10])
def test_the_t_test_alone_would_trust_trends_that_agree_by_chance(errors, units):
    """At the least effect it says "holds" too often; with the test of signs it does not."""
    verdicts = {True: 0, False: 0}
    for one in errors.found("top-layers-change", units, errors.EDGE, 300, rows=False):
        for signs in verdicts:
            verdicts[signs] += errors.verdict(replace(one, signs=signs)) == HOLDS
    assert verdicts[True] / 300 <= MOST_WRONG
    if units < 10:
        assert verdicts[False] / 300 > MOST_WRONG


def test_trends_are_rank_correlations_with_depth(errors):
    import drawn_values

    curves = np.random.default_rng(0).normal(size=(5, drawn_values.LAYERS))
    wanted = [depth_trend(range(drawn_values.LAYERS), curve) for curve in curves]
    assert drawn_values.trends(curves) == pytest.approx(wanted)


def test_every_rule_is_simulated(errors):
    assert errors.EDGES.keys() == errors.VALUES.keys() == set(NAMES)
    assert with_rows().keys() <= set(NAMES)


def test_families_are_drawn_as_units_with_one_value_within_each(errors):
    """As `units_of_task` makes them: the pairs of one family, or of two, are averaged first."""
    (drawn,) = errors.found("families-alike", 4, errors.EFFECT, 1, rows=False)
    assert [len(one.names) for one in drawn.values] == [1] * 4 + [2] * 6
    assert {one.group for one in drawn.values if len(one.names) == 1} == {"within"}


@pytest.mark.deep
@pytest.mark.parametrize("claim", NAMES)
def test_the_committed_rates_come_out_again(errors, committed, claim):
    rows = committed[(committed["claim"] == claim) & committed["units"].isin(["3", "5"])]
    for _, row in rows.iterrows():
        trials = 10 if row["drawn"] == "rows" or claim == "block-diagonal" else 60
        case = (claim, int(row["units"]), row["truth"], trials, row["drawn"] == "rows")
        found = errors.rates(*case)
        assert agree(found, row, trials), (case, found)


@pytest.mark.deep
@pytest.mark.parametrize("claim", NAMES)
def test_at_the_edge_the_mean_is_the_least_effect(errors, claim):
    """So that no verdict at the edge is right."""
    units, trials = (10, 20) if claim == "block-diagonal" else (25, 60)
    for rows in (False, True) if claim in with_rows() else (False,):
        count = 8 if rows else trials
        drawn = list(errors.found(claim, units, errors.EDGE, count, rows))
        means = [one.statistic(one.values) for one in drawn]
        error = np.std(means, ddof=1) / np.sqrt(count)
        assert np.mean(means) == pytest.approx(drawn[0].least, abs=5 * error), rows


def test_no_committed_verdict_is_often_wrong(errors, committed):
    wrong = errors.wrong(committed)
    of_values = committed["drawn"] == "values"
    assert wrong[of_values].max() <= MOST_WRONG
    # Of few trials with rows, a rate of 5 % gives more than this in one of a thousand.
    most = [binom.isf(UNLIKELY, count, MOST_WRONG) / count for count in committed["trials"]]
    sharing = committed["units"].isin(list(errors.MORE))
    assert (wrong <= most)[~sharing].all(), committed[~sharing & (wrong > most)]
    assert set(committed["claim"]) == set(NAMES)
    assert set(committed["truth"]) == set(errors.TRUTHS)
    assert set(committed["units"]) == {
        *map(str, errors.UNITS),
        *errors.DESIGNS,
        *errors.PAGES,
    }


@pytest.mark.parametrize("units", [3, 5])
def test_rows_get_from_judge_what_the_simulation_finds(errors, units):
    """The whole of `simcore claims`, without Holm's correction, on the rows of one trial each."""
    import drawn_rows

    for claim in drawn_rows.ROWS:
        number = list(errors.EDGES).index(claim)
        seed = [number, units, errors.TRUTHS.index(errors.EDGE)]
        effect = errors.EDGES[claim]
        rows = drawn_rows.drawn_rows(claim, np.random.default_rng(seed), units, effect, 1)
        found = judged(claim, to_frame(rows))[-1]
        (one,) = errors.found(claim, units, errors.EDGE, 1, rows=True)
        assert one.statistic(one.values) == pytest.approx(found.interval.estimate), claim
        assert errors.verdict(one) == errors.alone(found), claim
        assert found.interval.count == units, claim


def test_a_verdict_alone_is_without_the_correction_for_others(errors):
    """Findings of `judge` are corrected: the error rates are not."""
    name, effect = "4 tasks of 2 models", 0.0
    found = [errors.found_in_table(name, np.random.default_rng(seed), effect) for seed in range(12)]
    short = [one for one in found if one.interval.pvalue <= ALPHA < one.adjusted]
    assert short
    assert {errors.alone(one) for one in short} == {"fails"}


def test_unrelated_layers_are_no_similar_representations():
    """Gaussian layers of six models: SVCCA leaves more of itself by chance than neurons do."""
    import simcore

    draw, rows = np.random.default_rng(0), []
    models = {f"M{number}": _unrelated(draw) for number in range(6)}
    measures = {
        "cka": lambda x, y: simcore.cka_grid(x, y, estimator="unbiased"),
        "svcca": simcore.svcca_grid,
        "neuronsim": simcore.neuronsim_grid,
    }
    for (one, x), (other, y) in [(a, b) for a in models.items() for b in models.items()]:
        for measure, compute in measures.items():
            more = {"estimator": "unbiased"} if measure == "cka" else {}
            rows += grid("joint", np.asarray(compute(x, y)), one, other, measure, first=1, **more)
    cka, svcca = judged("representations-not-neurons", to_frame(rows))
    assert cka.verdict == "fails"
    assert svcca.interval.low > svcca.least  # by the t test alone it would hold
    assert svcca.verdict != HOLDS


def _unrelated(draw):
    """Return three layers of one model, each like the one before it."""
    layers = [draw.normal(size=(400, 40))]
    for _ in range(2):
        layers.append(0.85 * layers[-1] + 0.5 * draw.normal(size=layers[0].shape))
    return layers


def test_the_page_has_the_committed_rates(errors, committed):
    assert errors.page_table(committed) in PAGE.read_text()
    worst = 100 * errors.wrong(committed[committed["drawn"] == "values"]).max()
    assert f"verdict came in {worst:g} % of the trials" in " ".join(PAGE.read_text().split())


def test_the_page_has_the_rates_of_units_that_share_more(errors, committed):
    titles = {
        "4 tasks of 2 models, half shared": "Four tasks of two models",
        "5 seeds of 2 base models": "Five seeds of two base models",
        "page of 20 rows, 8 models": "Twenty such rows of eight models",
    }
    assert titles.keys() == errors.MORE.keys()
    bullets = re.split(r"\n+\* |\n\n", PAGE.read_text())
    for name, title in titles.items():
        (text,) = (one for one in bullets if one.startswith(title))
        rates = committed[committed["units"] == name].set_index("truth")[HOLDS]
        none, least = (f"{100 * rates[truth]:.3g} %" for truth in (errors.NO_EFFECT, errors.EDGE))
        assert re.findall(r"[\d.]+ %", text) == [none, least], name


@pytest.mark.slow
def test_no_rule_is_often_wrong(errors):
    for claim, units, rows in product(NAMES, (3, 10), (False, True)):
        if rows and claim not in with_rows():
            continue
        trials = 40 if rows or claim == "block-diagonal" else 200
        rates = pd.DataFrame(
            [{"truth": t} | errors.rates(claim, units, t, trials, rows) for t in errors.TRUTHS]
        )
        # A rate of 5 % gives more than this in one of a thousand simulations.
        most = binom.isf(UNLIKELY, trials, MOST_WRONG) / trials
        assert errors.wrong(rates).max() <= most, (claim, units, rows)


@pytest.mark.slow
def test_the_rates_of_designs_come_out_again(errors, committed):
    for name in (*errors.DESIGNS, *errors.PAGES):
        for _, row in committed[committed["units"] == name].iterrows():
            trials = min(20, row["trials"])
            found = errors.rates_of_design(name, row["truth"], trials)
            assert agree(found, row, trials), (name, found)
