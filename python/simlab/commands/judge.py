"""``simcore judge``: where a measure stands among all of simcore's."""

from __future__ import annotations

from typing import Any

from simlab.commands.options import explain_interrupt
from simlab.steps.catalogue import JUDGE
from simlab.steps.record import Step

STEPS = (JUDGE,)


def run(step: Step, values: dict[str, Any], paper: str | None) -> None:
    """Print the ranks of all measures, and every score of the measures that were asked for."""
    from simlab.judge import tables
    from simlab.judge.judge import cache_of
    from simlab.store import console

    with explain_interrupt(cache_of(values["cache"])):
        frame = step.call(**values)
    domains, asked = tables.domains_of(frame), tables.asked_of(frame)
    for domain, part in domains.items():
        _print_marked(tables.ranks(part, domain), asked)
        for measure in asked:
            console.print_rows(*tables.scores(part, measure, f"{domain}: {measure}"))
    if len(domains) > 1:
        _print_marked(tables.means_over_domains(frame), asked)
    for line in tables.LEGEND:
        console.out.print(line, markup=False)
    if values["out"] is not None:
        console.out.print(f"{values['out']}: written")


def _print_marked(table: tuple[list[str], list[list[str]]], asked: list[str]) -> None:
    """Print a table of measures, with a mark before the measures that were asked for."""
    from simlab.store import console

    heads, rows = table
    marked = [[f"{'> ' if name in asked else ''}{name}", *rest] for name, *rest in rows]
    console.print_rows(heads, marked)
