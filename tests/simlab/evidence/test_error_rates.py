"""How often verdicts are wrong: at most 5 % of trials, by simulation."""

import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from simlab.evidence.table import CLAIMS
from simlab.evidence.verdicts import ALPHA, FAILS, HOLDS
from simlab.results.results import to_frame
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


def agree(found, row, trials):
    """Return whether rates in new trials can be the committed rates."""
    return all(
        min(binom.cdf(count, trials, p), binom.sf(count - 1, trials, p)) >= ANOTHER
        for name, share in found.items()
        for count in [round(share * trials)]
        # A rate of 0 in the committed trials excludes no rate below 3 in as many.
        for p in [np.clip(row[name], 3 / row["trials"], 1 - 3 / row["trials"])]
    )


def test_the_t_test_alone_would_trust_trends_that_agree_by_chance(errors):
    """At the least effect it says "holds" too often; with the test of signs it does not."""
    found = list(errors.found("top-layers-change", 5, errors.EDGE, 300, rows=False))
    alone = [one.pvalue <= ALPHA and one.estimate > one.least for one in found]
    assert np.mean(alone) > MOST_WRONG >= np.mean([one.verdict == HOLDS for one in found])


@pytest.mark.parametrize("claim", NAMES)
def test_the_committed_rates_come_out_again(errors, committed, claim):
    """At the edge, where the mean is the least effect, so that no verdict is right."""
    rows = committed[(committed["claim"] == claim) & (committed["truth"] == errors.EDGE)]
    row = rows[(rows["units"] == "5") & (rows["drawn"] == "values")].iloc[0]
    trials = 6 if claim == "block-diagonal" else 60
    found = list(errors.found(claim, 5, errors.EDGE, trials, rows=False))
    rates = {name: np.mean([one.verdict == name for one in found]) for name in (HOLDS, FAILS)}
    assert agree(rates, row, trials), rates
    means = [one.estimate for one in found]
    error = np.std(means, ddof=1) / np.sqrt(trials)
    assert np.mean(means) == pytest.approx(found[0].least, abs=5 * error)


@pytest.mark.deep
def test_drawn_rows_get_the_committed_verdicts(errors, committed):
    for claim in errors.ROWS:
        every = committed[(committed["claim"] == claim) & (committed["truth"] == errors.EFFECT)]
        row = every[every["units"] == "5"].iloc[-1]
        found = [one.verdict for one in errors.found(claim, 5, errors.EFFECT, 2, rows=True)]
        assert agree({HOLDS: np.mean([one == HOLDS for one in found])}, row, 2), claim


@pytest.mark.deep
def test_the_rates_of_designs_come_out_again(errors, committed):
    for name in (*errors.DESIGNS, *errors.PAGES):
        rows = committed[(committed["units"] == name) & (committed["truth"] == errors.EFFECT)]
        found = errors.rates_of_design(name, errors.EFFECT, 2)
        assert agree(found, rows.iloc[0], 2), (name, found)


def test_no_committed_verdict_is_often_wrong(errors, committed):
    wrong = errors.wrong(committed)
    assert wrong[committed["drawn"] == "values"].max() <= MOST_WRONG
    # Of few trials with rows, a rate of 5 % gives more than this in one of a thousand.
    most = [binom.isf(UNLIKELY, count, MOST_WRONG) / count for count in committed["trials"]]
    sharing = committed["units"].isin(list(errors.MORE))
    assert (wrong <= most)[~sharing].all(), committed[~sharing & (wrong > most)]
    assert errors.EDGES.keys() == errors.VALUES.keys() == set(committed["claim"]) == set(NAMES)
    assert set(committed["truth"]) == set(errors.TRUTHS)
    assert set(committed["units"]) == {*map(str, errors.UNITS), *errors.DESIGNS, *errors.PAGES}


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
    assert svcca.low > svcca.least  # by the t test alone it would hold
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
