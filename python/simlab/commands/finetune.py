"""``simcore finetune``: one model or one for every seed, after a named recipe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simlab.commands.options import (
    HeldoutSize,
    LabelColumn,
    ModelArgument,
    Overwrite,
    SplitSeed,
    TaskArgument,
    TextColumn,
    TextPairColumn,
    TrainSize,
    continues,
    when,
)
from simlab.errors import UserError

if TYPE_CHECKING:
    from simlab.store.jobs import Outcome

# Each None unless given: the recipe says what it is then.
RecipeName = Annotated[
    str, typer.Option("--recipe", help="`quick`, `phang2021`, `wu2020` or `ren2023`.")
]
Epochs = Annotated[
    float | None, typer.Option(help="Passes over the training rows; may be fractional.")
]
MaxSteps = Annotated[int | None, typer.Option(help="Steps to train, in place of --epochs.")]
LearningRate = Annotated[float | None, typer.Option(help="Peak rate; linear warm-up and decay.")]
BatchSize = Annotated[int | None, typer.Option(help="Examples per training step.")]
MaxLength = Annotated[int | None, typer.Option(min=3, help="Tokens kept per example.")]
Warmup = Annotated[
    float | None, typer.Option(help="Steps of warm-up; below 1 a share of all steps.")
]
WeightDecay = Annotated[float | None, typer.Option(help="Of AdamW; without it AdamW is Adam.")]
AdamEpsilon = Annotated[float | None, typer.Option(help="Of Adam.")]
GroupByLength = Annotated[
    bool | None,
    typer.Option("--group-by-length/--random-batches", help="Batches of similar length, or not."),
]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(finetune)


def finetune(
    model: ModelArgument,
    task: TaskArgument,
    out: Annotated[Path, typer.Option(help="Checkpoint folder to write; of --seeds their parent.")],
    recipe_name: RecipeName = "quick",
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of head, row order and dropout; default 1.")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="`0..4` or `0,3,7`: a folder OUT/seed-N for each.")
    ] = None,
    freeze: Annotated[
        str | None, typer.Option(help="`bottom:K` (embeddings too) or `top:K` layers stay.")
    ] = None,
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
    random_init: Annotated[
        bool, typer.Option("--random-init", help="Start from random weights instead.")
    ] = False,
    cka_every: Annotated[
        int | None,
        typer.Option(min=1, help="Every N steps, CKA of each layer to its start: OUT/cka.parquet."),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Fine-tune a model on a task; the folder loads with plain `from_pretrained`.

    Interrupt it and run it again: it continues, and ends with the weights it would have had.

    Example: `simcore finetune minilm rt --seed 1 --out runs/ft-1`

    Example: `simcore finetune ./my-bert reviews.csv --text-column body --label-column stars
    --recipe wu2020 --freeze bottom:6 --seeds 0..4 --out runs/mine`
    """
    from simlab import tasks
    from simlab.models import sources
    from simlab.tasks import splits
    from simlab.training import finetune as step

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
        "freeze": freeze,
        "random_init": random_init or None,
    }
    if seed is not None and seeds is not None:
        raise UserError("--seeds: wanted --seeds or --seed, found both")
    folders = seed_folders(out, seed, seeds)
    with continues(out):
        source = sources.resolve(model)
        loaded = splits.load_task_of([source.path], task, options)
        for number, folder in folders.items():  # each is a step of its own and resumes alone
            outcome = step.finetune(
                source,
                loaded,
                folder,
                recipe_name,
                seed=number,
                cka_every=cka_every,
                overwrite=overwrite,
                **given,
            )
            tell_evaluation(outcome)
    if seeds is not None:
        _summarise(list(folders.values()))


def seed_folders(out: Path, seed: int | None, seeds: str | None) -> dict[int, Path]:
    """The checkpoint folder of every seed: `out` itself, or with --seeds one below it.

    Raises
    ------
    UserError
        Seeds that cannot be read, or `out` is a finished step of its own.
    """
    from simlab.store.jobs import RECORD
    from simlab.training.recipes import Recipe, parse_seeds

    if seeds is None:
        return {Recipe().seed if seed is None else seed: out}
    if (out / RECORD).exists():
        raise UserError(
            f"--out {out}: wanted a folder for one folder of each of --seeds, found a finished "
            "step; choose another --out"
        )
    return {number: out / f"seed-{number}" for number in parse_seeds(seeds)}


def tell_evaluation(outcome: Outcome) -> None:
    """Say what a checkpoint reached on the held-out rows."""
    from simlab.models.evaluate import read_evaluation
    from simlab.store import console

    evaluation = read_evaluation(outcome.path)
    console.out.print(
        f"{outcome.path}: held-out {evaluation['metric']} {evaluation['value']:.3f} "
        f"(n = {evaluation['n']:,}, {when(outcome.skipped, outcome.seconds)})"
    )


def _summarise(folders: Sequence[Path]) -> None:
    import numpy as np

    from simlab.models.evaluate import read_evaluation
    from simlab.store import console

    evaluations = [read_evaluation(folder) for folder in folders]
    values = np.array([evaluation["value"] for evaluation in evaluations])
    spread = f", standard deviation {values.std(ddof=1):.3f}" if len(values) > 1 else ""
    console.out.print(
        f"{len(values)} seeds: mean {evaluations[0]['metric']} {values.mean():.3f}{spread}"
    )
