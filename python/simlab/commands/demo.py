"""``simcore demo``: all steps from a model to figures, offline."""

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
    PairColumn,
    SplitSeed,
    TextColumn,
    TrainSize,
    explain_interrupt,
)

DEFAULT_FOLDER = Path("runs/demo")


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(demo)


def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for everything that the demo writes.")
    ] = DEFAULT_FOLDER,
    model: Annotated[str, typer.Option(help="Model, as for `simcore finetune`.")] = "minilm",
    task: Annotated[str, typer.Option(help="Task, as for `simcore finetune`.")] = "rt",
    text_column: TextColumn = None,
    pair_column: PairColumn = None,
    label_column: LabelColumn = None,
    train_size: TrainSize = None,
    heldout_size: HeldoutSize = None,
    split_seed: SplitSeed = None,
    epochs: Epochs = 1.0,
    learning_rate: LearningRate = 1e-4,
    batch_size: BatchSize = 32,
    max_length: Annotated[int, typer.Option(min=3, help="Tokens kept per example.")] = 64,
) -> None:
    """Run all steps offline: fine-tune, extract, compare, truncate, plot.

    The demo takes minutes on two cores. If it is interrupted, the same command continues it.

    Example: `simcore demo --out runs/demo`
    """
    from simlab.commands.demo_steps import DemoConfig, run_demo
    from simlab.tasks import TaskOptions
    from simlab.training.recipes import Recipe

    options = TaskOptions(
        text_column, pair_column, label_column, train_size, heldout_size, split_seed
    )
    recipe = Recipe(epochs, learning_rate, batch_size, max_length)
    with explain_interrupt(out):
        run_demo(out, DemoConfig(model, task, options, recipe))
