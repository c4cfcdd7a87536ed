"""``simcore judge``: where a measure stands among all of simcore's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simlab.commands.options import explain_interrupt
from simlab.steps.catalogue import JUDGE
from simlab.steps.record import Step

if TYPE_CHECKING:
    import pandas as pd

STEPS = (JUDGE,)
_LABEL = 24  # the narrowest column of labels, whose longer ones are folded


def run(step: Step, values: dict[str, Any], paper: str | None) -> None:
    """Judge the measures, and print what came out."""
    from simlab.judge.judge import cache_of
    from simlab.store import console

    with explain_interrupt(cache_of(values["cache"])):
        frame = step.call(**values)
    _print(frame)
    if values["out"] is not None:
        console.out.print(f"{values['out']}: written")


def _print(frame: pd.DataFrame) -> None:
    """Print the ranks of all measures, and every score of the measures that were asked for."""
    from simlab.judge import tables
    from simlab.store import console

    domains, asked = tables.domains_of(frame), tables.asked_of(frame)
    for domain, part in domains.items():
        _print_marked(tables.ranks(part, domain), asked)
        for measure in asked:
            scores = tables.scores(part, measure, f"{domain}: {measure}")
            console.print_rows(*scores, fold=_LABEL)
    if len(domains) > 1:
        _print_marked(tables.means_over_domains(frame), asked)
    for line in (*tables.heads(), *tables.LEGEND):
        console.out.print(line, markup=False)


def _print_marked(table: tuple[list[str], list[list[str]]], asked: list[str]) -> None:
    """Print a table of measures, with a mark before the measures that were asked for."""
    from simlab.store import console

    heads, rows = table
    marked = [[f"{'> ' if name in asked else ''}{name}", *rest] for name, *rest in rows]
    console.print_rows(heads, marked, fold=_LABEL)
