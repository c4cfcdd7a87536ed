"""``simcore skip``: write the metrics of a model without every contiguous span of its layers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simlab.commands.options import (
    HeldoutSize,
    LabelColumn,
    MaxLength,
    Overwrite,
    PairColumn,
    SplitSeed,
    TaskArgument,
    TextColumn,
    TrainSize,
    duration,
    explain_interrupt,
)


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(skip)


def skip(
    checkpoint: Annotated[Path, typer.Argument(help="A folder that `simcore finetune` made.")],
    task: TaskArgument,
    out: Annotated[Path, typer.Option(help="Results file (.parquet) to write.")],
    label: Annotated[
        str | None, typer.Option(help="Name of the model in results and figures.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the fine-tuning, to store.")] = None,
    text_column: TextColumn = None,
    pair_column: PairColumn = None,
    label_column: LabelColumn = None,
    train_size: TrainSize = None,
    heldout_size: HeldoutSize = None,
    split_seed: SplitSeed = None,
    max_length: MaxLength = None,
    max_memory: Annotated[
        float | None,
        typer.Option(
            min=1, help="Bytes for hidden states, such as 1e9; default: 1/4 of the free memory."
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Leave out every contiguous span of layers of a fine-tuned model, and write the metrics.

    Nothing is trained.

    Example: `simcore skip runs/ft-1 rt --label "FT[1]" --out runs/results/skipping.parquet`
    """
    from simlab import tasks
    from simlab.experiments import skip as step
    from simlab.store import console

    options = tasks.TaskOptions(
        text_column, pair_column, label_column, train_size, heldout_size, split_seed
    )
    with explain_interrupt(out):
        outcome = step.skip(
            checkpoint,
            task,
            out,
            max_length=max_length,
            label=label,
            seed=seed,
            max_memory=None if max_memory is None else int(max_memory),
            task_options=options,
            overwrite=overwrite,
        )
    console.out.print(f"{out}: written ({duration(outcome.skipped, outcome.seconds)})")
