"""``simcore finetune``: fine-tune a model by a named recipe, with one seed or several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
    duration,
    explain_interrupt,
)
from simlab.errors import UserError, argument

if TYPE_CHECKING:
    from simlab.store.jobs import Outcome

# An option that is None keeps the value of the recipe.
RecipeName = Annotated[
    str, typer.Option("--recipe", help="Recipe: `quick`, `phang2021`, `wu2020` or `ren2023`.")
]
Epochs = Annotated[
    float | None, typer.Option(help="Passes over the training rows; may be fractional.")
]
MaxSteps = Annotated[
    int | None,
    typer.Option(help="Training steps, in place of --epochs; with both, the first end counts."),
]
LearningRate = Annotated[
    float | None, typer.Option(help="Peak learning rate, with linear warm-up and decay.")
]
BatchSize = Annotated[int | None, typer.Option(help="Examples per training step.")]
MaxLength = Annotated[int | None, typer.Option(min=3, help="Tokens kept per example.")]
Warmup = Annotated[
    float | None, typer.Option(help="Warm-up steps; a value below 1 is a share of all steps.")
]
WeightDecay = Annotated[
    float | None, typer.Option(help="Weight decay of AdamW; with 0, AdamW is Adam.")
]
AdamEpsilon = Annotated[float | None, typer.Option(help="Epsilon of AdamW.")]
GroupByLength = Annotated[
    bool | None,
    typer.Option(
        "--group-by-length/--random-batches",
        help="Make batches of examples of similar length, or of random examples.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(finetune)


def finetune(
    model: ModelArgument,
    task: TaskArgument,
    out: Annotated[
        Path, typer.Option(help="Checkpoint folder to write; with --seeds, a folder for all seeds.")
    ],
    recipe_name: RecipeName = "quick",
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, help="Seed of head, row order and dropout; default: the recipe's, or 1."
        ),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Several seeds (`0..4`, `0,3,7`): a folder OUT/seed-N each.")
    ] = None,
    freeze: Annotated[
        str | None,
        typer.Option(help="Layers not to train: `bottom:K` (with the embeddings) or `top:K`."),
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
        bool, typer.Option("--random-init", help="Start from random weights.")
    ] = False,
    cka_every: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Every N steps, record the CKA of each layer with its initial state, in "
            "OUT/cka.parquet.",
        ),
    ] = None,
    paper: Paper = None,
    overwrite: Overwrite = False,
) -> None:
    """Fine-tune a model on a task; plain `from_pretrained` loads the checkpoint folder.

    If the command is interrupted, the same command continues it, and ends with the same weights.

    Example: `simcore finetune minilm rt --seed 1 --out runs/ft-1`

    Example: `simcore finetune ./my-bert reviews.csv --text-column body --label-column stars
    --recipe wu2020 --freeze bottom:6 --seeds 0..4 --out runs/mine`
    """
    from simlab import tasks
    from simlab.models import sources
    from simlab.tasks import trained_splits
    from simlab.training import finetune as step

    options = tasks.TaskOptions(
        text_column, text_pair_column, label_column, train_size, heldout_size, split_seed
    )
    given: dict[str, Any] = {
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
        raise UserError(
            f"{argument('seeds')}: wanted {argument('seeds')} or {argument('seed')}, found both"
        )
    if paper is not None and paper != recipe_name:
        raise UserError(
            f"{argument('paper', paper)}, {argument('recipe', recipe_name)}: wanted one recipe, "
            "found two; here both options name the recipe"
        )
    folders = seed_folders(out, seed, seeds)
    with explain_interrupt(out):
        source = sources.resolve(model)
        step.require_trainable(source, recipe_name, given)
        loaded = trained_splits.load_task_of([source.path], task, options)
        for number, folder in folders.items():  # each folder is a job of its own
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
            print_evaluation(outcome)
    if seeds is not None:
        _summarise(list(folders.values()))


def seed_folders(out: Path, seed: int | None, seeds: str | None) -> dict[int | None, Path]:
    """Return the checkpoint folder of every seed: `out` itself, or with --seeds ``out/seed-N``.

    The seed None is that of the recipe.

    Raises
    ------
    UserError
        The seeds cannot be parsed, or `out` is itself a checkpoint folder.
    """
    from simlab.store.jobs import RECORD
    from simlab.training.recipes import parse_seeds

    if seeds is None:
        return {seed: out}
    if (out / RECORD).exists():
        raise UserError(
            f"{argument('out', out)}: wanted a folder for a checkpoint of each of "
            f"{argument('seeds')}, found a folder "
            f"that is itself a checkpoint; choose another {argument('out')}"
        )
    return {number: out / f"seed-{number}" for number in parse_seeds(seeds)}


def print_evaluation(outcome: Outcome) -> None:
    """Print the held-out metrics of a checkpoint."""
    from simlab.models.evaluate import read_evaluation
    from simlab.store import console

    evaluation = read_evaluation(outcome.path)
    scores = ", ".join(f"{name} {value:.3f}" for name, value in evaluation["scores"].items())
    console.out.print(
        f"{outcome.path}: held-out {scores} "
        f"(n = {evaluation['n']:,}, {duration(outcome.skipped, outcome.seconds)})"
    )


def _summarise(folders: Sequence[Path]) -> None:
    import numpy as np

    from simlab.models.evaluate import read_evaluation
    from simlab.store import console

    evaluations = [read_evaluation(folder) for folder in folders]
    for metric in evaluations[0]["scores"]:
        values = np.array([evaluation["scores"].get(metric, np.nan) for evaluation in evaluations])
        spread = f", standard deviation {values.std(ddof=1):.3f}" if len(values) > 1 else ""
        console.out.print(f"{len(values)} seeds: mean {metric} {values.mean():.3f}{spread}")
