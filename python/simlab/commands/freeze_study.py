"""``simcore freeze-study``: compare fine-tuning with and without frozen layers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.commands.finetune import print_scores
from simlab.commands.options import explain_interrupt
from simlab.errors import argument
from simlab.steps.catalogue import FREEZE_STUDY
from simlab.steps.record import Step

if TYPE_CHECKING:
    import pandas as pd

STEPS = (FREEZE_STUDY,)


def run(step: Step, values: dict[str, Any], paper: str | None) -> None:
    """Do the study, draw its figures, and print a table of all ways of freezing."""
    from simlab.experiments import freeze_study as study
    from simlab.figures import draw as plots
    from simlab.results.reading import read_results
    from simlab.store import console

    out, recipe = Path(values["out"]), values["recipe"]
    if paper is not None and paper != recipe:
        console.note(
            f"{argument('recipe', recipe)} takes the place of the recipe of "
            f"{argument('paper', paper)}"
        )
    with explain_interrupt(out):
        outcome = step.call(**values, tell=print_scores)
        frame = read_results(outcome.path)
        files = plots.plot(frame, out / "figures")
    _print(study.summary(frame), frame["task"].iloc[0])
    for file in (outcome.path, out / study.CSV, *files):
        console.out.print(str(file))


def _print(summary: pd.DataFrame, task: str) -> None:
    import math

    from rich.table import Table

    from simlab.store import console

    table = Table(title=f"{task}: frozen layers, mean over {summary['seeds'].max()} seeds")
    table.add_column("frozen")
    metrics = summary["metric"].unique()
    headings = [part for metric in metrics for part in (metric, "± sd")]
    for name in (*headings, "trained parameters", "ms per step", "time saved"):
        table.add_column(name, justify="right")
    for freeze, rows in summary.groupby("freeze", sort=False):
        row, of_metric = rows.iloc[0], rows.set_index("metric")
        values = of_metric.loc[:, ["mean", "standard_deviation"]].reindex(metrics).to_numpy()
        cells = ["" if math.isnan(value) else f"{value:.3f}" for value in values.ravel()]
        table.add_row(
            str(freeze),
            *cells,
            f"{row.trained_parameters:,}",
            f"{1000 * row.seconds_per_step:.0f}",
            f"{row.time_saved:.0%}",
        )
    console.print_table(table)
