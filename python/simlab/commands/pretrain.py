"""``simcore pretrain``: pretrain a BERT from scratch, with one seed or several."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simlab.commands.finetune import seed_folders
from simlab.commands.options import (
    HeldoutSize,
    LabelColumn,
    Overwrite,
    PairColumn,
    SplitSeed,
    TextColumn,
    TrainSize,
    duration,
    explain_interrupt,
)
from simlab.errors import UserError, argument

if TYPE_CHECKING:
    from simlab.store.jobs import Outcome


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(pretrain)


def pretrain(
    texts: Annotated[
        list[str],
        typer.Argument(
            help="Tasks whose training texts are read (`rt`, `imdb`, `stsb`, `quartz` are "
            "offline), or files of sentences (.txt)."
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="Model folder to write; with --seeds, a folder for all seeds.")
    ],
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Seed of weights, row order, masks and dropout; default: 0."),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Several seeds (`0..24`, `0,3,7`): a folder OUT/seed-N each.")
    ] = None,
    layers: Annotated[int, typer.Option(min=1, help="Number of layers.")] = 4,
    hidden: Annotated[int, typer.Option(min=1, help="Width of the layers.")] = 128,
    heads: Annotated[int, typer.Option(min=1, help="Attention heads of a layer.")] = 4,
    intermediate: Annotated[
        int | None,
        typer.Option(min=1, help="Width of the feed-forward network; default: 4 times --hidden."),
    ] = None,
    tokenizer: Annotated[
        str, typer.Option(help="Model whose tokenizer is used: `minilm`, a folder, or a hub name.")
    ] = "minilm",
    vocabulary: Annotated[
        int, typer.Option(min=0, help="Words kept, the most frequent of the texts; 0: all.")
    ] = 8192,
    max_steps: Annotated[
        int | None, typer.Option(min=1, help="Training steps; default: 2000, or by --epochs.")
    ] = None,
    epochs: Annotated[
        float | None,
        typer.Option(
            help="Passes over the texts, in place of --max-steps; with both, the first end counts."
        ),
    ] = None,
    learning_rate: Annotated[
        float, typer.Option(help="Peak learning rate, with linear warm-up and decay.")
    ] = 1e-3,
    batch_size: Annotated[int, typer.Option(min=1, help="Rows of tokens per training step.")] = 32,
    max_length: Annotated[
        int, typer.Option(min=3, help="Tokens of a row, and positions of the model.")
    ] = 128,
    warmup: Annotated[
        float, typer.Option(help="Warm-up steps; a value below 1 is a share of all steps.")
    ] = 0.1,
    weight_decay: Annotated[float, typer.Option(help="Weight decay of AdamW.")] = 0.01,
    masked: Annotated[float, typer.Option(help="Share of the tokens to predict.")] = 0.15,
    dropout: Annotated[float, typer.Option(help="Probability of dropout.")] = 0.1,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of torch; equal bits need an equal number.")
    ] = None,
    text_column: TextColumn = None,
    pair_column: PairColumn = None,
    label_column: LabelColumn = None,
    train_size: TrainSize = None,
    heldout_size: HeldoutSize = None,
    split_seed: SplitSeed = None,
    overwrite: Overwrite = False,
) -> None:
    """Pretrain a BERT by masked language modelling; plain `from_pretrained` loads the folder.

    Models of different seeds have the same words. If the command is interrupted, the same command
    continues it, and ends with the same weights.

    Example: `simcore pretrain rt imdb --seeds 0..4 --hidden 128 --max-steps 2000 --out runs/mini`
    """
    from simlab import tasks
    from simlab.tasks.texts import load_texts
    from simlab.training import pretrain as step
    from simlab.training.pretraining import make_pretraining

    if seed is not None and seeds is not None:
        raise UserError(
            f"{argument('seeds')}: wanted {argument('seeds')} or {argument('seed')}, found both"
        )
    options = tasks.TaskOptions(
        text_column, pair_column, label_column, train_size, heldout_size, split_seed
    )
    recipe = make_pretraining(
        None,
        {
            "layers": layers,
            "hidden": hidden,
            "heads": heads,
            "intermediate": intermediate,
            "tokenizer": tokenizer,
            "vocabulary": vocabulary,
            "max_steps": max_steps,
            "epochs": epochs,
            "learning_rate": learning_rate,
            "batch_size": batch_size,
            "max_length": max_length,
            "warmup": warmup,
            "weight_decay": weight_decay,
            "masked": masked,
            "dropout": dropout,
        },
    )
    folders = seed_folders(out, seed, seeds)
    with explain_interrupt(out):
        read = [load_texts(name, options) for name in texts]
        for number, folder in folders.items():  # each folder is a job of its own
            outcome = step.pretrain(
                read, folder, recipe, seed=number, threads=threads, overwrite=overwrite
            )
            print_losses(outcome)


def print_losses(outcome: Outcome) -> None:
    """Print what the pretraining measured on held-out texts."""
    from simlab.store import console
    from simlab.training.pretrain import read_pretraining

    found = read_pretraining(outcome.path)
    console.out.print(
        f"{outcome.path}: held-out loss {found['loss']:.3f} (frequencies of words alone "
        f"{found['unigram_loss']:.3f}), accuracy {found['accuracy']:.3f} (n = {found['n']:,} "
        f"masked tokens, {duration(outcome.skipped, outcome.seconds)})"
    )
