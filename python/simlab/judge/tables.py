"""The tables of the benchmark, as text: ranks, scores of a measure, and what values depend on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from simlab.judge.dependence import INDEPENDENT, NEURONS, OFFSET, OUTLIER, ROWS
from simlab.judge.ranks import mean_ranks
from simlab.judge.scores import CHANGE, COST, RANKED, SECONDS, VALUE

if TYPE_CHECKING:
    import pandas as pd

Table = tuple[list[str], list[list[str]]]  # the heads of the columns, and the rows
# Tests that do not rank, and their scores.
DEPENDENCES = (
    *((test, CHANGE) for test in (ROWS, NEURONS, OUTLIER, OFFSET)),
    *((INDEPENDENT, score) for score in (VALUE, CHANGE)),
    (COST, SECONDS),
)
LEGEND = (
    "chance: the score of a measure that says nothing. p: permuted networks, answers or layers.",
    "95 %: intervals over networks. -: undefined, which ranks last.",
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
        [measure, f"{mean:.1f}", *(number(values.loc[measure, test]) for test in RANKED)]
        for measure, mean in mean_ranks(part).items()
    ]
    heads = [f"{test}: {score}" for test, score in RANKED.items()]
    return [domain, "mean rank", *heads], rows


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
            "" if one.score == VALUE else f"{one.rank:g} of {others[one.test, one.score]}",
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
