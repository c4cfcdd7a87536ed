"""Commands that write results files, and those that judge, draw, show and compare."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from simlab.commands.options import explain_interrupt, took
from simlab.errors import UserError, argument, require_known
from simlab.steps.catalogue import (
    ALIGN_STUDY,
    BLOCKS,
    CHECK,
    CLAIMS,
    COMPARE,
    GRID,
    LOCALIZE,
    PLOT,
    REPORT,
    SKIP,
)

if TYPE_CHECKING:
    from simlab.results.results import ResultRow
    from simlab.similarity.blocks import Blocks
    from simlab.store.jobs import Outcome


def run_grid(values: dict[str, Any]) -> None:
    """Write the results file, and print its name."""
    from simlab.similarity.grids import grid

    with explain_interrupt(values["out"]):
        _print_written([grid(**GRID.arguments(values))])


def run_localize(values: dict[str, Any]) -> None:
    """Write the results file, and print its name."""
    from simlab.similarity.localization import localize

    with explain_interrupt(values["out"]):
        _print_written([localize(**LOCALIZE.arguments(values))])


def run_skip(values: dict[str, Any]) -> None:
    """Write the results file, and print its name."""
    from simlab.experiments.skip import skip

    with explain_interrupt(values["out"]):
        _print_written([skip(**SKIP.arguments(values))])


def run_align_study(values: dict[str, Any]) -> None:
    """Write the results files, and print their folder and number."""
    from simlab.experiments.align_study import align_study
    from simlab.store import console

    with explain_interrupt(values["out"]):
        outcomes = align_study(**ALIGN_STUDY.arguments(values))
    console.out.print(f"{values['out']}: {len(outcomes)} files ({took(*outcomes)})")


def _print_written(outcomes: Sequence[Outcome]) -> None:
    from simlab.store import console

    for outcome in outcomes:
        console.out.print(f"{outcome.path}: written ({took(outcome)})")


def run_blocks(values: dict[str, Any]) -> None:
    """Print a table of the scores, and write them if a file is named."""
    from simlab.similarity.blocks import blocks
    from simlab.store import console

    written: list[Outcome] = []
    with explain_interrupt(values["out"]):
        scores = blocks(**BLOCKS.arguments(values), tell=written.append)
    columns = (
        *("task", "model", "measure", "clusters"),
        *("score", "calibrated", "p", "within", "between"),
    )
    console.print_rows(columns, [_cells(split, first) for split, (first, *_) in scores])
    legend = (
        "score: 1 for perfect blocks, 0 if similarity depends on distance alone.\n"
        "calibrated: the score with chance removed, 0 at chance.\n"
        "p: the share of permuted grids that score as high.\n"
        "within, between: mean similarity of two layers of one cluster, and of different clusters."
    )
    console.out.print(legend, markup=False)
    _print_written(written)


def _cells(split: Blocks, row: ResultRow) -> list[str]:
    parts = (row.measure, row.kernel, row.estimator, row.kind, row.options)
    # First and last layer of each cluster; 0 is the embedding output.
    spans = " | ".join("–".join(map(str, sorted({c[0], c[-1]}))) for c in split.clusters)
    names = (row.task, row.label_x, " ".join(part for part in parts if part), spans)
    numbers = (split.score, split.calibrated, split.within, split.between)
    score, calibrated, *means = ("–" if math.isnan(value) else f"{value:.2f}" for value in numbers)
    return [*names, score, calibrated, f"{split.pvalue:.3f}", *means]


def run_claims(values: dict[str, Any]) -> None:
    """Print the verdicts, and write them if a file is named; or print the rules."""
    from simlab.evidence.claim import TEXTS
    from simlab.evidence.table import CLAIMS as EVERY
    from simlab.evidence.table import NAMES, claims, claims_text
    from simlab.evidence.verdicts import NO_ROWS
    from simlab.store import console

    if values["list"]:
        rows = [(claim.name, claim.text, claim.source, claim.rule) for claim in EVERY]
        console.print_rows(("claim", "says", "source", "rule"), rows)
        for name in ("verdicts", "intervals", "roles"):
            console.out.print(" ".join(TEXTS[name].split()), markup=False)
        return
    if not values["results"]:
        raise UserError(
            f"RESULTS: wanted results files or folders, or {argument('list')}, found none"
        )
    with explain_interrupt(values["out"]):
        frame = claims(**CLAIMS.arguments(values))
    console.print_rows(NAMES, claims_text(frame))
    missing = frame.loc[frame["verdict"] == NO_ROWS, "claim"]
    for claim in EVERY:
        if claim.name in set(missing):
            console.out.print(f"no rows: {claim.name}; they come from {claim.made_by}")
    if values["out"] is not None:
        console.out.print(f"{values['out']}: written")


def run_plot(values: dict[str, Any]) -> None:
    """Draw the figures, and print the names of their files."""
    from simlab.figures.draw import plot
    from simlab.store import console

    for file in plot(**PLOT.arguments(values)):
        console.out.print(str(file))


def run_report(values: dict[str, Any]) -> None:
    """Write the page, and print its name and size."""
    from simlab.report.write import write_report
    from simlab.store import console

    file = write_report(**REPORT.arguments(values))
    size = file.stat().st_size / 2**20
    console.out.print(f"{file} ({size:.1f} MB): open it in a browser", markup=False)


def run_compare(values: dict[str, Any]) -> None:
    """Write layers, grids, figures and the page, and print which layers match."""
    from simlab.answers.compare import compare
    from simlab.store import console

    given = COMPARE.arguments(values)
    with explain_interrupt(values["out"]):
        found = compare(*given.pop("models"), **given)
    console.out.print(str(found), markup=False)
    for file in found.files:
        console.out.print(str(file), markup=False)


def run_check(values: dict[str, Any]) -> None:
    """Print a verdict for each layer; the exit code is 1 if a layer is not equal or allowed."""
    from simlab.answers.check import ALLOWED, check
    from simlab.store import console

    allow, given = values["allow"], CHECK.arguments(values)
    if allow is not None:
        require_known("allow", allow, ALLOWED)
    found = check(*given.pop("models"), **given)
    alike = found.is_alike(allow)
    facts = found.to_dict() | {"alike": alike, "allow": allow}
    text = json.dumps(facts, indent=1) if values["json"] else found.report(allow)
    console.out.print(text, markup=False)
    if not alike:
        raise typer.Exit(1)
