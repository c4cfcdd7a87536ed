"""``simcore truncate``: every layer straight to a head; models of the first layers alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simlab.commands.options import (
    HeldoutSize,
    LabelColumn,
    MaxLength,
    Overwrite,
    SplitSeed,
    TaskArgument,
    TextColumn,
    TextPairColumn,
    TrainSize,
    continues,
    when,
)


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(truncate)


def truncate(
    checkpoint: Annotated[Path, typer.Argument(help="A folder of `simcore finetune`.")],
    task: TaskArgument,
    out: Annotated[Path, typer.Option(help="Results file (.parquet) to write.")],
    label: Annotated[str | None, typer.Option(help="Name in results and figures.")] = None,
    seed: Annotated[int | None, typer.Option(help="Fine-tuning seed to note.")] = None,
    text_column: TextColumn = None,
    text_pair_column: TextPairColumn = None,
    label_column: LabelColumn = None,
    train_size: TrainSize = None,
    heldout_size: HeldoutSize = None,
    split_seed: SplitSeed = 0,
    max_length: MaxLength = 64,
    overwrite: Overwrite = False,
) -> None:
    """Feed every layer of a fine-tuned model straight to its head; nothing is trained.

    Example: `simcore truncate runs/ft-1 rt --label "FT[1]" --out runs/results/truncation.parquet`
    """
    from simlab import console, tasks
    from simlab import truncate as step

    options = tasks.TaskOptions(
        text_column, text_pair_column, label_column, train_size, heldout_size, split_seed
    )
    with continues(f"of {out}"):
        loaded = tasks.load_task(task, options)
        outcome = step.write_truncation(
            checkpoint, loaded, out, max_length, label=label, seed=seed, replace=overwrite
        )
    console.out.print(f"{out}: written ({when(outcome.skipped, outcome.seconds)})")
