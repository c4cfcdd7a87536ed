"""``simcore influence``: write how much every contiguous span of layers turns the states."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simlab.commands.options import (
    HeldoutSize,
    LabelColumn,
    MaxLength,
    ModelArgument,
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
    app.command()(influence)


def influence(
    model: ModelArgument,
    task: TaskArgument,
    out: Annotated[Path, typer.Option(help="Results file (.parquet) to write.")],
    split: Annotated[
        str, typer.Option(help="Split: `heldout`, `train`, or `all`: every text of TASK.")
    ] = "heldout",
    limit: Annotated[
        int | None, typer.Option(min=1, help="Number of examples, from the first; default: all.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Name of the model in results and figures.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Seed to store: of the fine-tuning, or of the weights of a random twin."),
    ] = None,
    random_init: Annotated[
        bool,
        typer.Option("--random-init", help="Draw random weights with --seed (a random twin)."),
    ] = False,
    text_column: TextColumn = None,
    pair_column: PairColumn = None,
    label_column: LabelColumn = None,
    train_size: TrainSize = None,
    heldout_size: HeldoutSize = None,
    split_seed: SplitSeed = None,
    max_length: MaxLength = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Examples per forward pass.")] = 32,
    overwrite: Overwrite = False,
) -> None:
    """Write the block influence of every contiguous span of layers: 1 - cosine of its two ends.

    Nothing is trained, and no labels are read.

    Example: `simcore influence runs/ft-1 rt --label "FT[1]" --out runs/results/influence.parquet`
    """
    from simlab import tasks
    from simlab.experiments import influence as step
    from simlab.store import console

    given = (text_column, pair_column, label_column, train_size, heldout_size, split_seed)
    with explain_interrupt(out):
        outcome = step.influence(
            model,
            task,
            out,
            split=split,
            limit=limit,
            max_length=max_length,
            batch_size=batch_size,
            random_init_seed=(seed or 0) if random_init else None,
            label=label,
            seed=seed,
            task_options=tasks.TaskOptions(*given),
            overwrite=overwrite,
        )
    console.out.print(f"{out}: written ({duration(outcome.skipped, outcome.seconds)})")
