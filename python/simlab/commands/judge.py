"""``simcore judge``: where a measure stands among all of simcore's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from simlab.commands.options import explain_interrupt
from simlab.steps.catalogue import JUDGE
from simlab.steps.record import Step

if TYPE_CHECKING:
    import pandas as pd

STEPS = (JUDGE,)


def run(step: Step, values: dict[str, Any], paper: str | None) -> None:
    """Print the ranks of all measures, and every score of the measures that were asked for."""
    from simlab.judge.judge import cache_of
    from simlab.store import console

    with explain_interrupt(cache_of(values["cache"])):
        frame = step.call(**values)
    for domain, part in frame.groupby("domain"):
        console.print_rows(*_table_of_ranks(part, str(domain)))
        for measure in part.loc[part["asked"], "measure"].unique():
            console.print_rows(*_table_of_scores(part, f"{domain}: {measure}", measure))
    if frame["domain"].nunique() > 1:
        console.print_rows(*_table_of_means(frame))
    for line in _LEGEND:
        console.out.print(line, markup=False)
    if values["out"] is not None:
        console.out.print(f"{values['out']}: written")


_LEGEND = (
    "chance: the score of a measure that says nothing. p: permuted networks, answers or layers.",
    "95 %: intervals over networks. -: undefined, which ranks last.",
    "Ranks are close together: compare intervals before you say that one measure is better.",
)


def _table_of_means(frame: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Return the mean ranks over all domains, and in each."""
    from simlab.judge.ranks import mean_ranks

    parts = {str(domain): mean_ranks(part) for domain, part in frame.groupby("domain")}
    asked = set(frame.loc[frame["asked"], "measure"])
    rows = [
        [
            _marked(measure, asked),
            f"{mean:.1f}",
            *(f"{part[measure]:.1f}" for part in parts.values()),
        ]
        for measure, mean in mean_ranks(frame).items()
    ]
    return ["measure", "mean rank", *parts], rows


def _marked(measure: str, asked: set[str]) -> str:
    return f"{'> ' if measure in asked else ''}{measure}"


def _table_of_ranks(frame: pd.DataFrame, domain: str) -> tuple[list[str], list[list[str]]]:
    from simlab.judge.ranks import mean_ranks
    from simlab.judge.scores import RANKED

    values = frame[frame["ranked"]].pivot(index="measure", columns="test", values="value")
    asked = set(frame.loc[frame["asked"], "measure"])
    rows = [
        [
            _marked(measure, asked),
            f"{mean:.1f}",
            *(_number(values.loc[measure, test]) for test in RANKED),
        ]
        for measure, mean in mean_ranks(frame).items()
    ]
    heads = [f"{test}: {score}" for test, score in RANKED.items()]
    return [domain, "mean rank", *heads], rows


def _table_of_scores(
    frame: pd.DataFrame, title: str, measure: str
) -> tuple[list[str], list[list[str]]]:
    others = frame.groupby(["test", "score"])["measure"].size()
    rows = [
        [
            f"{one.test}: {one.score}",
            _number(one.value),
            "" if math.isnan(one.low) else f"{_number(one.low)} to {_number(one.high)}",
            "" if math.isnan(one.chance) else _number(one.chance),
            "" if math.isnan(one.pvalue) else f"{one.pvalue:.4f}",
            "" if one.score == "value" else f"{one.rank:g} of {others[one.test, one.score]}",
            f"{one.undefined} of {one.pairs}" if one.undefined else "",
        ]
        for one in frame[frame["measure"] == measure].itertuples()
    ]
    return [title, "score", "95 %", "chance", "p", "rank", "undefined"], rows


def _number(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:.2f}" if value == 0 or 0.005 <= abs(value) < 1000 else f"{value:.1e}"
