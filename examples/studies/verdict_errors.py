"""Error rates of the verdicts of `simcore claims`, by simulation.

Each rule judges drawn models, 3, 5, 10 and 25 units of them: without any effect, with an effect as
large as the paper's, and at the edge, where the truth is the least effect of interest. Without an
effect "holds" is false; with the paper's effect "fails" is. At the edge both are: just short of it
"holds" is false, just beyond it "fails". `drawn_values.py` draws the values of units;
`drawn_rows.py` draws results rows of few units, and `drawn_designs.py` tables with other units.
Verdicts are before Holm's correction, but of pages, which hold if any of their rows does.

    python examples/studies/verdict_errors.py

The rows are in `results/verdict-errors.csv`.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from drawn_designs import DESIGNS, PAGES, found_in_table, verdict_of_page
from drawn_rows import BY_NAME, ROWS
from drawn_values import VALUES
from simlab.evidence.claim import Quantity
from simlab.evidence.rows import ClaimOptions, tasks_of
from simlab.evidence.verdicts import CANNOT, FAILS, HOLDS, UNDECIDED, Units, Verdict, decide
from simlab.evidence.verdicts import verdicts as verdicts_in
from simlab.results.results import to_frame

RESULTS = Path(__file__).parent / "results" / "verdict-errors.csv"
UNITS = (3, 5, 10, 25)
NO_EFFECT, EDGE, EFFECT = TRUTHS = ("no effect", "least effect", "effect")
TRIALS = {NO_EFFECT: 200, EDGE: 1000, EFFECT: 200}
TRIALS_WITH_ROWS = {NO_EFFECT: 40, EDGE: 200, EFFECT: 40}
FEWER = {"block-diagonal": 5, "12 tasks": 8}  # slow ones
# Designs whose units share more than a verdict assumes, and pages at the least effect in all rows,
# are wrong more often: five times the trials.
MORE = dict.fromkeys(("5 seeds of 2 base models", *PAGES), 5)
# Claims and numbers of units whose rates by rows are in the table.
OF_ROWS, BY_ROWS = (
    (3, 5),
    (
        *("freeze-bottom", "inn-beats-linear", "attention-varies-less", "deep-layers-move-apart"),
        *("attention-is-kept", "inn-keeps-metric", "complexity-drops"),
    ),
)
WRONG = {NO_EFFECT: (HOLDS,), EDGE: (HOLDS, FAILS), EFFECT: (FAILS,)}
# The strength at which the mean is the least effect, where the paper's has strength 1.
EDGES = {
    "block-diagonal": 0.395,
    "blocks-agree": 0.38,
    "top-layers-can-go": 0.8,
    "tuned-beats-orig": 0.1,
    "first-layer-matters": 0.05,
    "later-spans-cost-less": 0.5,
    "electra-no-blocks": 0.25,
    "electra-needs-top-layers": 0.1,
    "albert-spares-more": 0.65,
    "top-layers-change": 0.162,
    "higher-layers-localized": 0.162,
    "tuning-delocalizes": 0.2,
    "equal-depth": 0.25,
    "families-alike": 0.25,
    "representations-not-neurons": 0.25,
    "lower-layers-alike": 0.324,
    "freeze-bottom": 0.2,
    "inn-beats-linear": 0.1,
    "deeper-layers-vary": 0.229,
    "attention-varies-less": 0.05 / 0.9,
    "deep-layers-move-apart": 0.05,
    "attention-is-kept": 0.8,
    "inn-keeps-metric": 1 / 30,
    "complexity-drops": 0.25,
    "top-layers-unlike-any": 0.25,
    "families-share-blocks": 0.483,
    "inn-finds-known-map": 0.1,
}


def verdict(claim: str, quantity: Quantity) -> Verdict:
    """Return the verdict on a quantity that stands in a table alone."""
    units = Units(quantity.values, quantity.minus)
    return decide(BY_NAME[claim], quantity, units, "", ClaimOptions())


def found(claim: str, units: int, truth: str, trials: int, rows: bool) -> Iterator[Verdict]:
    """Yield the verdict of each trial, with `rows` on results rows.

    Equal arguments give equal trials.
    """
    draw = np.random.default_rng([list(EDGES).index(claim), units, TRUTHS.index(truth)])
    effect = {NO_EFFECT: 0.0, EDGE: EDGES[claim], EFFECT: 1.0}[truth]
    for _ in range(trials):
        if rows:
            models = [f"1{unit:02d}" for unit in range(units)]
            table = to_frame(ROWS[claim](draw, models, effect))
            *_, last = verdicts_in(BY_NAME[claim], tasks_of(table, ClaimOptions()))
            yield last
        else:
            yield verdict(claim, VALUES[claim](draw, units, effect))


def rates(claim: str, units: int, truth: str, trials: int, rows: bool = False) -> dict[str, float]:
    """Return the share of each verdict on one claim."""
    return _shares([one.verdict for one in found(claim, units, truth, trials, rows)])


def rates_of_design(name: str, truth: str, trials: int) -> dict[str, float]:
    """Return the share of each verdict on the claim of one of the `DESIGNS`, or of `PAGES`."""
    *_, edge = (DESIGNS | PAGES)[name]
    draw = np.random.default_rng([[*DESIGNS, *PAGES].index(name), TRUTHS.index(truth)])
    effect = {NO_EFFECT: 0.0, EDGE: edge, EFFECT: 1.0}[truth]
    if name in PAGES:
        return _shares([verdict_of_page(name, draw, effect) for _ in range(trials)])
    return _shares([found_in_table(name, draw, effect).verdict for _ in range(trials)])


def _shares(verdicts: list[str]) -> dict[str, float]:
    counts = Counter(verdicts)
    return {name: counts[name] / len(verdicts) for name in (HOLDS, FAILS, UNDECIDED, CANNOT)}


def wrong(rates: pd.DataFrame) -> pd.Series:
    """Return the share of the false verdict of each row; of two, the larger share."""
    return pd.Series(
        [max(row[name] for name in WRONG[row["truth"]]) for _, row in rates.iterrows()], rates.index
    )


def table(claim: str) -> pd.DataFrame:
    """Return the error rates of one claim, by values and by rows."""
    rows = []
    for truth, units in product(TRUTHS, UNITS):
        trials = TRIALS[truth] // FEWER.get(claim, 1)
        names = {"claim": claim, "truth": truth, "units": units, "drawn": "values"}
        rows.append(names | {"trials": trials} | rates(claim, units, truth, trials))
    for truth, units in product(TRUTHS, OF_ROWS) if claim in BY_ROWS else ():
        trials = TRIALS_WITH_ROWS[truth]
        names = {"claim": claim, "truth": truth, "units": units, "drawn": "rows"}
        rows.append(names | {"trials": trials} | rates(claim, units, truth, trials, rows=True))
    return pd.DataFrame(rows)


def table_of_design(name: str) -> pd.DataFrame:
    """Return the error rates of one design or page."""
    rows = []
    for truth in TRUTHS:
        trials = TRIALS_WITH_ROWS[truth] * MORE.get(name, 1) // FEWER.get(name, 1)
        names = {
            "claim": (DESIGNS | PAGES)[name][0],
            "truth": truth,
            "units": name,
            "drawn": "rows",
        }
        rows.append(names | {"trials": trials} | rates_of_design(name, truth, trials))
    return pd.DataFrame(rows)


def page_table(rates: pd.DataFrame) -> str:
    """Return the table of the page: in percent, the false verdicts and the effects that are found.

    False is the larger share of the three truths.
    """
    lines = ["| claim | " + " | ".join(f"{units} units" for units in UNITS) + " |"]
    lines.append("| --- |" + " --- |" * len(UNITS))
    for claim, of_claim in rates[rates["drawn"] == "values"].groupby("claim", sort=False):
        cells = [_cell(of_claim[of_claim["units"] == str(units)]) for units in UNITS]
        lines.append(f"| {claim} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(rates: pd.DataFrame) -> str:
    true = rates.loc[rates["truth"] == EFFECT, HOLDS].iloc[0]
    return f"{100 * wrong(rates).max():.3g}, {100 * true:.3g}"


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    with ProcessPoolExecutor(parser.parse_args().workers) as pool:
        tables = [*pool.map(table, EDGES), *pool.map(table_of_design, [*DESIGNS, *PAGES])]
    pd.concat(tables).to_csv(RESULTS, index=False)
    print(page_table(pd.read_csv(RESULTS)))


if __name__ == "__main__":
    main()
