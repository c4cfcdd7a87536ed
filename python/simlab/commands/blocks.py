"""``simcore blocks``: split layers into clusters, and score how block diagonal a grid is."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.commands.options import explain_interrupt, took
from simlab.steps.catalogue import BLOCKS
from simlab.steps.record import Step

if TYPE_CHECKING:
    from simlab.similarity.block_scores import Blocks
    from simlab.store.jobs import Outcome
    from simlab.store.results import ResultRow

STEPS = (BLOCKS,)


def run(step: Step, values: dict[str, Any], paper: str | None) -> None:
    """Print a table of the scores, and write them if a file is named."""
    from rich.table import Table

    from simlab.similarity.blocks import CLUSTERS
    from simlab.store import console

    out = values["out"]
    written: list[Outcome] = []
    with explain_interrupt(out and Path(out)):
        blocks = step.call(**values, tell=written.append)
    table = Table(title="Score: 1 for perfect blocks, 0 if similarity depends on distance alone")
    for name in ("task", "model", "measure", "clusters"):
        table.add_column(name)
    intervals = bool(values["bootstrap"])
    for name in ("score", *(["95 %"] if intervals else []), "calibrated", "p", "within", "between"):
        table.add_column(name, justify="right")
    for layers, rows in blocks:
        table.add_row(*_cells(layers, rows, intervals))
    console.print_table(table)
    for line in _LEGEND:
        console.out.print(line.format(clusters=values["clusters"] or CLUSTERS), markup=False)
    for outcome in written:
        console.out.print(f"{outcome.path}: written ({took(outcome)})")


_LEGEND = (
    "First row of each grid: {clusters} clusters; second row: the number whose score lies the "
    "furthest above chance.",
    "calibrated: the score with chance removed, 0 at chance; chance grows with the number of "
    "clusters.",
    "p: the share of permuted grids that score as high, in the first row with {clusters} clusters, "
    "in the second each with its own best number. So p may be larger in the second row even where "
    "both rows have the same clusters.",
    "within, between: mean similarity of two layers of one cluster, and of different clusters.",
)


def _cells(layers: Blocks, rows: list[ResultRow], intervals: bool) -> list[str]:
    from rich.markup import escape

    first = rows[0]
    options = json.loads(first.options) if first.options else {}
    options.pop("clusters", None)  # the column of clusters shows their number
    shown = ", ".join(f"{name} {value}" for name, value in options.items())
    parts = (first.measure, first.kernel, first.estimator, first.kind, shown)
    measure = " ".join(part for part in parts if part)
    model = first.label_x + (f" → {first.label_y}" if first.label_y else "")
    names = (first.task, model, measure, _spans(layers))
    bounds = f"{_number(layers.low)} to {_number(layers.high)}"
    return [
        *map(escape, names),
        _number(layers.score),
        *([bounds if not math.isnan(layers.low) else "–"] if intervals else []),
        _number(layers.calibrated),
        f"{layers.pvalue:.3f}",
        _number(layers.within),
        _number(layers.between),
    ]


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"


def _spans(layers: Blocks) -> str:
    """Return the clusters as text, by first and last layer; 0 is the embedding output."""
    spans = (
        f"{cluster[0]}–{cluster[-1]}" if len(cluster) > 1 else f"{cluster[0]}"
        for cluster in layers.clusters
    )
    return " | ".join(spans)
