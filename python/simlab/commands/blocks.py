"""``simcore blocks``: split layers into clusters, and score how block diagonal a grid is."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.commands.options import explain_interrupt, took
from simlab.steps.catalogue import BLOCKS
from simlab.steps.record import Step

if TYPE_CHECKING:
    from simlab.results.results import ResultRow
    from simlab.similarity.block_scores import Blocks
    from simlab.store.jobs import Outcome

STEPS = (BLOCKS,)


def run(step: Step, values: dict[str, Any], paper: str | None) -> None:
    """Print a table of the scores, and write them if a file is named."""
    from rich.table import Table

    from simlab.store import console

    written: list[Outcome] = []
    with explain_interrupt(values["out"] and Path(values["out"])):
        blocks = step.call(**values, tell=written.append)
    table = Table(title="Score: 1 for perfect blocks, 0 if similarity depends on distance alone")
    for name in ("task", "model", "measure", "clusters"):
        table.add_column(name)
    for name in ("score", "calibrated", "p", "within", "between"):
        table.add_column(name, justify="right")
    for split, (first, *_) in blocks:
        table.add_row(*_cells(split, first))
    console.print_table(table)
    legend = (
        "calibrated: the score with chance removed, 0 at chance.\n"
        "p: the share of permuted grids that score as high.\n"
        "within, between: mean similarity of two layers of one cluster, and of different clusters."
    )
    console.out.print(legend, markup=False)
    for outcome in written:
        console.out.print(f"{outcome.path}: written ({took(outcome)})")


def _cells(split: Blocks, row: ResultRow) -> list[str]:
    from rich.markup import escape

    parts = (row.measure, row.kernel, row.estimator, row.kind, row.options)
    # First and last layer of each cluster; 0 is the embedding output.
    spans = " | ".join("–".join(map(str, sorted({c[0], c[-1]}))) for c in split.clusters)
    names = (row.task, row.label_x, " ".join(part for part in parts if part), spans)
    numbers = (split.score, split.calibrated, split.within, split.between)
    score, calibrated, *means = ("–" if math.isnan(value) else f"{value:.2f}" for value in numbers)
    return [*map(escape, names), score, calibrated, f"{split.pvalue:.3f}", *means]
