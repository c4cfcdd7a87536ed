"""``simcore demo``: the main job, every step of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simlab.commands.options import (
    BatchSize,
    Epochs,
    HeldoutSize,
    LabelColumn,
    LearningRate,
    MaxLength,
    SplitSeed,
    TextColumn,
    TextPairColumn,
    TrainSize,
    continues,
)


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(demo)


def demo(
    out: Annotated[Path, typer.Option(help="Run folder.")] = Path("runs/demo"),
    model: Annotated[str, typer.Option(help="As for `simcore finetune`.")] = "minilm",
    task: Annotated[str, typer.Option(help="As for `simcore finetune`.")] = "rt",
    text_column: TextColumn = None,
    text_pair_column: TextPairColumn = None,
    label_column: LabelColumn = None,
    train_size: TrainSize = None,
    heldout_size: HeldoutSize = None,
    split_seed: SplitSeed = None,
    epochs: Epochs = 1.0,
    learning_rate: LearningRate = 1e-4,
    batch_size: BatchSize = 32,
    max_length: MaxLength = 64,
) -> None:
    """Run the whole path offline: fine-tune, extract, compare, truncate, plot.

    Takes minutes on two cores. Interrupt it and run it again: it continues.

    Example: `simcore demo --out runs/demo`
    """
    from simlab.commands.demo_steps import DemoConfig, run_demo
    from simlab.tasks import TaskOptions
    from simlab.training.recipes import Recipe

    options = TaskOptions(
        text_column, text_pair_column, label_column, train_size, heldout_size, split_seed
    )
    recipe = Recipe(epochs, learning_rate, batch_size, max_length)
    with continues(out):
        run_demo(out, DemoConfig(model, task, options, recipe))
