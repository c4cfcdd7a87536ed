"""``simcore truncate``: feed every layer straight to a head; export the first layers as a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simlab.commands.head_options import (
    HeadBatchSize,
    HeadDecay,
    HeadLearningRate,
    HeadMostSteps,
    HeadPatience,
    HeadScale,
    HeadSeed,
    HeadStepsBetween,
    HeadValidationShare,
    HeadWarmup,
    HeadWeightDecay,
)
from simlab.commands.options import (
    HeldoutSize,
    LabelColumn,
    MaxLength,
    Overwrite,
    Paper,
    SplitSeed,
    TaskArgument,
    TextColumn,
    TextPairColumn,
    TrainSize,
    duration,
    explain_interrupt,
)
from simlab.errors import Argument, UserError, argument, spelled
from simlab.steps.words import as_option

if TYPE_CHECKING:
    from simlab.experiments.truncate import TruncationOptions
    from simlab.tasks import Task

MODES_HELP = "Mode: `untuned`, `tuned` or `tuned-orig`, repeatable; default: untuned."


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(truncate)


def truncate(
    checkpoint: Annotated[Path, typer.Argument(help="A folder that `simcore finetune` made.")],
    task: TaskArgument,
    out: Annotated[Path | None, typer.Option(help="Results file (.parquet) to write.")] = None,
    mode: Annotated[list[str] | None, typer.Option(help=MODES_HELP)] = None,
    original: Annotated[
        str | None,
        typer.Option(help="Model before fine-tuning; default: as named in the checkpoint."),
    ] = None,
    export: Annotated[
        tuple[int, Path] | None,
        typer.Option(metavar="K DIR", help="Write the first K layers and the head to DIR."),
    ] = None,
    advise: Annotated[
        float | None,
        typer.Option(help="Print the fewest layers whose metric is lower by this much at most."),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="Metric of --advise; default: the main metric of the task."),
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Name of the model in results and figures.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the fine-tuning, to store.")] = None,
    text_column: TextColumn = None,
    text_pair_column: TextPairColumn = None,
    label_column: LabelColumn = None,
    train_size: TrainSize = None,
    heldout_size: HeldoutSize = None,
    split_seed: SplitSeed = None,
    max_length: MaxLength = None,
    head_learning_rate: HeadLearningRate = None,
    head_batch_size: HeadBatchSize = None,
    head_weight_decay: HeadWeightDecay = None,
    head_most_steps: HeadMostSteps = None,
    head_warmup: HeadWarmup = None,
    head_decay: HeadDecay = None,
    head_scale: HeadScale = None,
    head_validation_share: HeadValidationShare = None,
    head_steps_between: HeadStepsBetween = None,
    head_patience: HeadPatience = None,
    head_seed: HeadSeed = None,
    paper: Paper = None,
    overwrite: Overwrite = False,
) -> None:
    """Feed every layer of a fine-tuned model straight to a head, and write the metrics.

    Mode `untuned` uses the model's own head, `tuned` fine-tunes this head further for each layer,
    and `tuned-orig` trains a head for each layer of the model before fine-tuning. Options that
    begin with `--head-` say how these heads are trained.

    Example: `simcore truncate runs/ft-1 rt --mode untuned --mode tuned --mode tuned-orig
    --label "FT[1]" --out runs/results/truncation.parquet`

    Example: `simcore truncate runs/ft-1 rt --advise 0.01 --out runs/results/advice.parquet`

    Example: `simcore truncate runs/ft-1 rt --export 4 runs/ft-1-short`
    """
    from simlab import tasks
    from simlab.experiments import truncate as step
    from simlab.experiments.advice import describe_advice
    from simlab.store import console
    from simlab.store.results import read_results
    from simlab.tasks import trained_splits

    if out is None and (export is None or advise is not None):
        raise UserError(f"{argument('out')}: wanted a results file, found none")
    heads = {
        "head_learning_rate": head_learning_rate,
        "head_batch_size": head_batch_size,
        "head_weight_decay": head_weight_decay,
        "head_most_steps": head_most_steps,
        "head_warmup": head_warmup,
        "head_decay": head_decay,
        "head_scale": head_scale,
        "head_validation_share": head_validation_share,
        "head_steps_between": head_steps_between,
        "head_patience": head_patience,
        "head_seed": head_seed,
    }
    given = {name: value for name, value in heads.items() if value is not None}
    options = step.TruncationOptions(
        tuple(mode or (step.UNTUNED,)), original, advise, metric=metric
    )
    options = options.changed(given)
    options.check()
    task_options = tasks.TaskOptions(
        text_column, text_pair_column, label_column, train_size, heldout_size, split_seed
    )
    with explain_interrupt(out, export and export[1]):
        loaded = trained_splits.load_task_of([checkpoint], task, task_options)
        if out is not None:
            outcome = step.truncate(
                checkpoint,
                loaded,
                out,
                options,
                max_length=max_length,
                label=label,
                seed=seed,
                overwrite=overwrite,
            )
            for line in describe_advice(read_results(out)):
                console.out.print(line)
            console.out.print(f"{out}: written ({duration(outcome.skipped, outcome.seconds)})")
        if export is not None:
            _export(checkpoint, *export, loaded, max_length, options, overwrite)


def _export(
    checkpoint: Path,
    layers: int,
    folder: Path,
    task: Task,
    max_length: int | None,
    options: TruncationOptions,
    overwrite: bool,
) -> None:
    """Write the shorter model, and print its size, speed and metrics beside the whole model's."""
    from rich.table import Table

    from simlab.experiments.shorten import measure_checkpoint, shorten
    from simlab.store import console
    from simlab.tasks.trained_lengths import chosen_length

    try:
        outcome = shorten(
            checkpoint, task, layers, folder, options, max_length=max_length, overwrite=overwrite
        )
    except UserError as error:
        raise type(error)(spelled(error.message, _as_export)) from error
    table = Table("", "layers", "parameters", "MB", "ms per example", *task.all_metrics)
    kept = chosen_length([checkpoint], max_length)
    for name in (checkpoint, folder):
        found = measure_checkpoint(name, task, kept)
        table.add_row(
            str(name),
            str(found.layers),
            f"{found.parameters:,}",
            f"{found.megabytes:.1f}",
            f"{found.ms_per_example:.2f}",
            *(f"{value:.3f}" for value in found.scores.values()),
        )
    console.print_table(table)
    console.out.print(f"{folder}: written ({duration(outcome.skipped, outcome.seconds)})")


def _as_export(named: Argument) -> str:
    """Spell an argument of `shorten`, whose layers and folder are the two values of --export."""
    if named.name in ("layers", "out"):
        return f"--export {named.value}" if named.has_value else "--export"
    return as_option("truncate")(named)
