"""``simcore freeze-study``: compare fine-tuning with and without frozen layers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simlab.commands.finetune import (
    AdamEpsilon,
    BatchSize,
    Epochs,
    GroupByLength,
    LearningRate,
    MaxLength,
    MaxSteps,
    RecipeName,
    Warmup,
    WeightDecay,
    print_evaluation,
)
from simlab.commands.options import (
    HeldoutSize,
    LabelColumn,
    ModelArgument,
    Overwrite,
    Paper,
    SplitSeed,
    TaskArgument,
    TextColumn,
    TextPairColumn,
    TrainSize,
    explain_interrupt,
)
from simlab.errors import argument

if TYPE_CHECKING:
    import pandas as pd


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("freeze-study")(freeze_study)


def freeze_study(
    model: ModelArgument,
    task: TaskArgument,
    out: Annotated[Path, typer.Option(help="Folder for checkpoints, results and figures.")],
    bottom: Annotated[
        list[int] | None,
        typer.Option(help="Number of layers to freeze from the bottom, repeatable."),
    ] = None,
    top: Annotated[
        list[int] | None, typer.Option(help="Number of layers to freeze from the top, repeatable.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, such as `0..4` or `0,3,7`.")] = "1",
    recipe_name: RecipeName = "quick",
    text_column: TextColumn = None,
    text_pair_column: TextPairColumn = None,
    label_column: LabelColumn = None,
    train_size: TrainSize = None,
    heldout_size: HeldoutSize = None,
    split_seed: SplitSeed = None,
    epochs: Epochs = None,
    max_steps: MaxSteps = None,
    learning_rate: LearningRate = None,
    batch_size: BatchSize = None,
    max_length: MaxLength = None,
    warmup: Warmup = None,
    weight_decay: WeightDecay = None,
    adam_epsilon: AdamEpsilon = None,
    group_by_length: GroupByLength = None,
    paper: Paper = None,
    overwrite: Overwrite = False,
) -> None:
    """Fine-tune with no layers, top layers or bottom layers frozen; compare metric and time.

    Example: `simcore freeze-study minilm rt --bottom 2 --bottom 4 --top 2 --top 4 --seeds 1..3
    --out runs/freezing`
    """
    from simlab import tasks
    from simlab.experiments import freeze_study as study
    from simlab.figures import draw as plots
    from simlab.store import console
    from simlab.store.results import read_results
    from simlab.training import recipes

    options = tasks.TaskOptions(
        text_column, text_pair_column, label_column, train_size, heldout_size, split_seed
    )
    given = {
        "epochs": epochs,
        "max_steps": max_steps,
        "learning_rate": learning_rate,
        "batch_size": batch_size,
        "max_length": max_length,
        "warmup": warmup,
        "weight_decay": weight_decay,
        "adam_epsilon": adam_epsilon,
        "group_by_length": group_by_length,
    }
    numbers = recipes.parse_seeds(seeds)
    if paper is not None and paper != recipe_name:
        console.note(
            f"{argument('recipe', recipe_name)} takes the place of the recipe of "
            f"{argument('paper', paper)}"
        )
    with explain_interrupt(out):
        outcome = study.freeze_study(
            model,
            task,
            out,
            recipe_name,
            bottom=bottom or (),
            top=top or (),
            seeds=numbers,
            task_options=options,
            overwrite=overwrite,
            tell=print_evaluation,
            **given,
        )
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
