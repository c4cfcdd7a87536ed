"""The page of the benchmark: facts, ranks by test with intervals and chance, and every score."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.judge import tables
from simlab.judge.ranks import mean_ranks
from simlab.judge.scores import RANKED, SPEARMAN
from simlab.report.write import policy_hash
from simlab.store.files import write_bytes

if TYPE_CHECKING:
    import pandas as pd

WIDTH = 60.0  # of the drawing of a cell, in pixels
ALPHA = 0.05


@dataclass(frozen=True)
class Cell:
    """A score with its interval, drawn on the range of its test."""

    rank: str  # as printed, like `score`
    score: str
    words: str  # for a pointer or a screen reader
    # Place in the drawing, from 0 to `WIDTH`, as are the three below; None where there is none.
    at: float | None
    low: float | None
    high: float | None
    chance: float | None


def write_page(frame: pd.DataFrame, path: Path) -> None:
    """Write the page of a table of `judge_measures`: one file that loads and runs nothing."""
    asked = tables.asked_of(frame)
    domains = [
        {
            "name": domain,
            "facts": [_fact(part, measure) for measure in asked],
            "rows": _rows(part, asked),
            "scores": [tables.scores(part, measure, measure) for measure in asked],
            "dependences": tables.dependences(part, list(mean_ranks(part).index)),
        }
        for domain, part in tables.domains_of(frame).items()
    ]
    title = _title(asked)
    several = tables.means_over_domains(frame) if len(domains) > 1 else None
    write_bytes(path, _page(title, asked, domains, several).encode())


def _page(title: str, asked: list[str], domains: list[dict[str, Any]], means: Any) -> str:
    from jinja2 import Environment, StrictUndefined

    own = resources.files("simlab.judge") / "page"
    shared = resources.files("simlab.report") / "page" / "page.css"
    style = shared.read_text(encoding="utf-8") + (own / "page.css").read_text(encoding="utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string((own / "page.html.j2").read_text(encoding="utf-8")).render(
        title=title,
        style=style,
        style_hash=policy_hash(style),
        asked=asked,
        domains=domains,
        means=means,
        tests=RANKED,
        low_is_good=tables.low_is_good,
        least=_least,
        legend=tables.LEGEND,
        width=WIDTH,
    )


def _title(asked: list[str]) -> str:
    if not asked:
        return "Measures of similarity, judged"
    return f"Where {_listed(asked)} {'stands' if len(asked) == 1 else 'stand'}"


def _fact(part: pd.DataFrame, measure: str) -> str:
    """Return the place of a measure, its best and worst tests, and where it may be chance."""
    means = mean_ranks(part)
    place = int((means < means[measure]).sum()) + 1
    rows = part[part["ranked"] & (part["measure"] == measure)].set_index("test")
    defined = rows["value"].notna()
    told = defined & (rows["pvalue"] < ALPHA)
    facts = [f"{measure} has place {place} of {len(means)} (mean rank {means[measure]:.1f})."]
    if told.any():
        where = "It" if told.all() else "Where it is told from chance, it"
        facts.append(f"{where} {_extremes(rows['rank'][told], len(rows))}.")
    if (defined & ~told).any():
        tests = _listed(list(rows.index[defined & ~told]))
        facts.append(f"Not told from chance (p of {ALPHA} or more): {tests}.")
    if not defined.all():
        tests = _listed(list(rows.index[~defined])) if defined.any() else "every test"
        facts.append(f"Undefined in {tests}.")
    return " ".join(facts)


def _extremes(ranks: pd.Series, tests: int) -> str:
    """Return the best and the worst of ranks by test, or the one rank of all."""
    best, worst = ranks.idxmin(), ranks.idxmax()
    if ranks[best] < ranks[worst]:
        return f"is best in {best} (rank {ranks[best]:g}), worst in {worst} (rank {ranks[worst]:g})"
    where = "every test" if len(ranks) == tests else _listed(list(ranks.index))
    return f"has rank {ranks[best]:g} in {where}"


def _listed(names: list[str]) -> str:
    """Return names as words: ``a, b and c``."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _rows(part: pd.DataFrame, asked: list[str]) -> list[dict[str, Any]]:
    """Return every measure with a cell for each test, the best mean rank first."""
    ranked = part[part["ranked"]].set_index(["measure", "test"])
    return [
        {
            "measure": measure,
            "own": measure in asked,
            "mean": f"{mean:.1f}",
            "cells": [_cell(ranked.loc[measure, test]) for test in RANKED],
        }
        for measure, mean in mean_ranks(part).items()
    ]


def _cell(row: pd.Series) -> Cell:
    def place(value: float) -> float | None:
        if math.isnan(value):
            return None
        least = _least(row["score"])
        return round(WIDTH * min(max((value - least) / (1 - least), 0.0), 1.0), 1)

    words = f"{row['score']} {tables.number(row['value'])}"
    if not math.isnan(row["low"]):
        words += f", 95 % {tables.number(row['low'])} to {tables.number(row['high'])}"
    if not math.isnan(row["pvalue"]):
        words += f", p = {row['pvalue']:.4f}"
    if row["undefined"]:
        words += f", {row['undefined']} of {row['pairs']} values undefined"
    places = [place(row[name]) for name in ("value", "low", "high", "chance")]
    return Cell(f"{row['rank']:g}", tables.hundredths(row["value"]), words, *places)


def _least(score: str) -> int:
    """Return the left end of the drawings of a score; the right one is 1."""
    return -1 if score == SPEARMAN else 0
