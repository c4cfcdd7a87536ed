"""``simcore extract``: write the representations of every layer of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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

KINDS_HELP = (
    "`cls`, `mean`, `mean-all`, `mean-padded`, `token`, `word-last`, `word-mean` or `attention`"
)


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(extract)


def extract(
    model: Annotated[
        str,
        typer.Argument(
            help="Model: `minilm` (offline), a local folder, or a model of the hub; with --modules "
            "also `timm:NAME`, `torchvision:NAME`, or `module:function` that returns a module."
        ),
    ],
    task: TaskArgument,
    out: Annotated[Path, typer.Option(help="Representation folder to write.")],
    split: Annotated[
        str,
        typer.Option(
            help="Split: `heldout`, `train`, or `all`: every text of TASK, which may then be a "
            ".txt file or a table without labels."
        ),
    ] = "heldout",
    modules: Annotated[
        list[str] | None,
        typer.Option(
            help="Record the outputs of these modules in place of hidden states: a name or a glob "
            "over names (`*` stops at a dot, `**` does not); repeatable."
        ),
    ] = None,
    pool: Annotated[
        str | None,
        typer.Option(
            help="Rows of --modules: `first`, `last`, `mean`, `tokens`, `flatten` of tokens; "
            "`spatial-mean`, `positions`, `flatten` of images."
        ),
    ] = None,
    kind: Annotated[str, typer.Option(help=f"Kind of rows: {KINDS_HELP}.")] = "cls",
    words: Annotated[
        str | None,
        typer.Option(
            help="Split texts into words by the `tokenizer` or at `spaces`; default: spaces for "
            "texts that are lists of words, else tokenizer."
        ),
    ] = None,
    special_tokens: Annotated[
        bool,
        typer.Option(
            "--special-tokens/--no-special-tokens",
            help="Let the model read special tokens (such as [CLS]) around a text, or not.",
        ),
    ] = True,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Number of examples, from the first; default: all.")
    ] = None,
    dtype: Annotated[
        str,
        typer.Option(help="Type of the stored values: `float32`, or `float16` for half the room."),
    ] = "float32",
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
    text_pair_column: TextPairColumn = None,
    label_column: LabelColumn = None,
    train_size: TrainSize = None,
    heldout_size: HeldoutSize = None,
    split_seed: SplitSeed = None,
    max_length: MaxLength = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Examples per forward pass.")] = 64,
    paper: Paper = None,
    overwrite: Overwrite = False,
) -> None:
    """Write the representations of every layer, the embedding output first, with row ids.

    Example: `simcore extract runs/ft-1 rt --label "FT[1]" --seed 1 --out runs/reps/ft-1`

    Example: `simcore extract minilm rt --kind word-last --words spaces --limit 200
    --out runs/reps/words`

    Example: `simcore extract minilm sentences.txt --split all --kind attention --words spaces
    --no-special-tokens --out runs/reps/attention`

    Example: `simcore extract timm:resnet18 digits --modules "layer?" --pool spatial-mean
    --out runs/reps/resnet`
    """
    from simlab import tasks
    from simlab.representations import extract as step
    from simlab.representations import folder as representations
    from simlab.store import console

    task_options = tasks.TaskOptions(
        text_column, text_pair_column, label_column, train_size, heldout_size, split_seed
    )
    with explain_interrupt(out):
        outcome = step.extract(
            model,
            task,
            out,
            modules=modules or (),
            pool=pool,
            kind=kind,
            split=split,
            words=words,
            special_tokens=special_tokens,
            limit=limit,
            dtype=dtype,
            max_length=max_length,
            batch_size=batch_size,
            random_init_seed=(seed or 0) if random_init else None,
            label=label,
            seed=seed,
            task_options=task_options,
            overwrite=overwrite,
        )
    console.out.print(
        f"{out}: {representations.describe(out)} ({duration(outcome.skipped, outcome.seconds)})"
    )
