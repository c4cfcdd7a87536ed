"""The tables of the benchmark, as text: ranks, scores of a measure, and what values depend on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from simlab.judge.dependence import INDEPENDENT, NEURONS, OFFSET, OUTLIER, ROWS
from simlab.judge.ranks import mean_ranks
from simlab.judge.scores import (
    ACCURACY,
    CHANGE,
    COST,
    DISAGREEMENT,
    DIVERGENCE,
    IDENTIFICATION,
    RANKED,
    SECONDS,
    SMALL_IS_GOOD,
    VALUE,
)

if TYPE_CHECKING:
    import pandas as pd

Table = tuple[list[str], list[list[str]]]  # the heads of the columns, and the rows
# Tests that do not rank, and their scores.
DEPENDENCES = (
    *((test, CHANGE) for test in (ROWS, NEURONS, OUTLIER, OFFSET)),
    *((INDEPENDENT, score) for score in (VALUE, CHANGE)),
    (COST, SECONDS),
)
# Heads of the tests that let the table of ranks fit a terminal of 100 columns.
SHORT = {
    ACCURACY: "acc.",
    DISAGREEMENT: "dis.",
    DIVERGENCE: "div.",
    "random labels": "rand.",
    "shortcut": "short.",
    "augmentation": "augm.",
    IDENTIFICATION: "ident.",
}
LEGEND = (
    "Chance is the score of a measure that says nothing.",
    "p-values permute networks, answers or layers; 95 % intervals are over networks.",
    "A dash stands for a score that is undefined, and ranks last.",
    "Ranks are close together: compare intervals before you say that one measure is better.",
)


def asked_of(frame: pd.DataFrame) -> list[str]:
    """Return the measures that were asked for."""
    return list(frame.loc[frame["asked"], "measure"].unique())


def domains_of(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the rows of each domain."""
    return {str(domain): part for domain, part in frame.groupby("domain", sort=False)}


def means_over_domains(frame: pd.DataFrame) -> Table:
    """Return the mean ranks over all domains, and in each."""
    parts = {domain: mean_ranks(part) for domain, part in domains_of(frame).items()}
    rows = [
        [measure, f"{mean:.1f}", *(f"{part[measure]:.1f}" for part in parts.values())]
        for measure, mean in mean_ranks(frame).items()
    ]
    return ["measure", "mean rank", *parts], rows


def ranks(part: pd.DataFrame, domain: str) -> Table:
    """Return the mean rank of each measure in a domain, and its score in each test."""
    values = part[part["ranked"]].pivot(index="measure", columns="test", values="value")
    rows = [
        [measure, f"{mean:.1f}", *(hundredths(values.loc[measure, test]) for test in RANKED)]
        for measure, mean in mean_ranks(part).items()
    ]
    return [domain, "mean", *(SHORT.get(test, test) for test in RANKED)], rows


def heads() -> list[str]:
    """Return what the heads of the table of ranks stand for, in a line for each score."""
    lines = ["mean: the mean rank over the tests"]
    for score in dict.fromkeys(RANKED.values()):
        tests = [test for test, ranks_by in RANKED.items() if ranks_by == score]
        spelled = [f"{SHORT[test]} ({test})" if test in SHORT else test for test in tests]
        lines.append(f"{', '.join(spelled)}: {score}{low_is_good(score)}")
    return lines


def low_is_good(score: str) -> str:
    """Return a remark on a score of which small values are good."""
    return ", low is good" if score in SMALL_IS_GOOD else ""


def scores(part: pd.DataFrame, measure: str, title: str) -> Table:
    """Return every score of a measure in a domain."""
    others = part.groupby(["test", "score"])["measure"].size()
    rows = [
        [
            f"{one.test}: {one.score}",
            number(one.value),
            "" if math.isnan(one.low) else f"{number(one.low)} to {number(one.high)}",
            "" if math.isnan(one.chance) else number(one.chance),
            "" if math.isnan(one.pvalue) else f"{one.pvalue:.4f}",
            "" if math.isnan(one.rank) else f"{one.rank:g} of {others[one.test, one.score]}",
            f"{one.undefined} of {one.pairs}" if one.undefined else "",
        ]
        for one in part[part["measure"] == measure].itertuples()
    ]
    return [title, "score", "95 %", "chance", "p", "rank", "undefined"], rows


def dependences(part: pd.DataFrame, measures: Sequence[str]) -> Table:
    """Return how far the values of measures depend on what they should not, and what they cost."""
    values = part.set_index(["measure", "test", "score"])["value"]
    rows = [
        [measure, *(number(values[measure, *row]) for row in DEPENDENCES)] for measure in measures
    ]
    return ["measure", *(f"{test}: {score}" for test, score in DEPENDENCES)], rows


def number(value: float) -> str:
    """Return a score as it is printed; a dash where it is undefined."""
    if math.isnan(value):
        return "-"
    return f"{value:.2f}" if value == 0 or 0.005 <= abs(value) < 1000 else f"{value:.1e}"


def hundredths(score: float) -> str:
    """Return a score from -1 to 1 as it stands among ranks."""
    return "-" if math.isnan(score) else f"{score:z.2f}"
