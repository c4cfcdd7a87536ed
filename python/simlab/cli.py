"""The ``simcore`` command. Each subcommand is one step; ``simcore demo`` runs them all."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from simlab.commands import align, blocks, finetune, freeze_study, listing, skip, truncate
from simlab.commands.options import (
    BatchSize,
    Epochs,
    HeldoutSize,
    LabelColumn,
    LearningRate,
    MaxLength,
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
from simlab.similarity.catalogue import help_lines

KINDS_HELP = "`cls`, `mean`, `token`, `word-last`, `word-mean` or `attention`"
USAGE_ERROR = 2

app = typer.Typer(
    name="simcore",
    help="How alike are neural representations? Fine-tune, extract, compare, truncate, plot.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


@app.command()
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
    from simlab.commands.demo import DemoConfig, run_demo
    from simlab.tasks import TaskOptions
    from simlab.training.recipes import Recipe

    options = TaskOptions(
        text_column, text_pair_column, label_column, train_size, heldout_size, split_seed
    )
    recipe = Recipe(epochs, learning_rate, batch_size, max_length)
    with continues(out):
        run_demo(out, DemoConfig(model, task, options, recipe))


finetune.register(app)
freeze_study.register(app)


@app.command()
def extract(
    model: ModelArgument,
    task: TaskArgument,
    out: Annotated[Path, typer.Option(help="Representation folder to write.")],
    split: Annotated[str, typer.Option(help="`heldout` or `train`.")] = "heldout",
    kind: Annotated[str, typer.Option(help=f"What a row is: {KINDS_HELP}.")] = "cls",
    words: Annotated[
        str, typer.Option(help="Words as the `tokenizer` cuts them, or between `spaces`.")
    ] = "tokenizer",
    limit: Annotated[int | None, typer.Option(min=1, help="The first examples only.")] = None,
    label: Annotated[str | None, typer.Option(help="Name in results and figures.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Fine-tuning seed to note; of the weights if random.")
    ] = None,
    random_init: Annotated[
        bool, typer.Option("--random-init", help="The model's random twin, drawn with --seed.")
    ] = False,
    text_column: TextColumn = None,
    text_pair_column: TextPairColumn = None,
    label_column: LabelColumn = None,
    train_size: TrainSize = None,
    heldout_size: HeldoutSize = None,
    split_seed: SplitSeed = None,
    max_length: MaxLength = 64,
    batch_size: Annotated[int, typer.Option(min=1, help="Examples per forward pass.")] = 64,
    overwrite: Overwrite = False,
) -> None:
    """Write the representations of every layer, embedding output first, with row ids.

    Example: `simcore extract runs/ft-1 rt --label "FT[1]" --seed 1 --out runs/reps/ft-1`

    Example: `simcore extract minilm rt --kind word-last --words spaces --limit 200
    --out runs/reps/words`
    """
    from simlab import tasks
    from simlab.models import sources
    from simlab.representations import extract as step
    from simlab.representations import folder as representations
    from simlab.store import console
    from simlab.tasks import splits

    task_options = tasks.TaskOptions(
        text_column, text_pair_column, label_column, train_size, heldout_size, split_seed
    )
    random_seed = (seed or 0) if random_init else None
    options = step.ExtractOptions(
        kind, split, max_length, batch_size, random_seed, words=words, limit=limit
    )
    with continues(out):
        source = sources.resolve(model)
        loaded = splits.load_task_of([source.path], task, task_options)
        outcome = step.extract(
            source, loaded, out, options, label=label, seed=seed, replace=overwrite
        )
    console.out.print(
        f"{out}: {representations.describe(out)} ({when(outcome.skipped, outcome.seconds)})"
    )


@app.command(epilog="\n\n".join(["Measures:", *help_lines()]))
def grid(
    folders: Annotated[
        list[Path],
        typer.Argument(help="X and Y, representation folders: the rows and the columns; or X."),
    ],
    out: Annotated[Path, typer.Option(help="Results file (.parquet) to write.")],
    measure: Annotated[str, typer.Option(help="One of the names below.")] = "cka",
    comparison: Annotated[
        str | None, typer.Option(help="Name of the grid, e.g. FT-ORIG; default: the labels.")
    ] = None,
    joint: Annotated[
        bool, typer.Option("--joint", help="All layers of all FOLDERS in one grid.")
    ] = False,
    estimator: Annotated[str | None, typer.Option(help="`biased`, `unbiased`, `both`.")] = None,
    kernel: Annotated[str | None, typer.Option(help="`linear` or `rbf`.")] = None,
    bandwidth: Annotated[float | None, typer.Option(help="RBF width in medians.")] = None,
    reduction: Annotated[str | None, typer.Option(help="`mean` or `r2`.")] = None,
    truncation: Annotated[
        str | None, typer.Option(help="Components kept: share of variance (0.99) or count (20).")
    ] = None,
    standardize: Annotated[
        bool, typer.Option("--standardize", help="Columns of unit variance first.")
    ] = False,
    correlation: Annotated[str | None, typer.Option(help="`pearson` or `spearman`.")] = None,
    causal: Annotated[
        bool, typer.Option("--causal", help="Attention: the lower triangle alone counts.")
    ] = False,
    overwrite: Overwrite = False,
) -> None:
    """Compare every layer of X with every layer of Y.

    Example: `simcore grid runs/reps/ft-1 runs/reps/orig --comparison FT-ORIG
    --out runs/results/ft-orig.parquet`

    Example: `simcore grid runs/reps/words-* --joint --measure svcca --truncation 0.95
    --out runs/results/svcca.parquet`
    """
    from simlab.similarity import grids
    from simlab.store import console

    options = {
        "estimator": estimator,
        "kernel": kernel,
        "bandwidth": bandwidth,
        "reduction": reduction,
        "truncation": _number(truncation),
        "standardize": standardize or None,
        "correlation": correlation,
        "causal": causal or None,
    }
    given = {name: value for name, value in options.items() if value is not None}
    with continues(out):
        outcome = grids.write_grid(
            folders, out, comparison, measure, given, joint=joint, replace=overwrite
        )
    console.out.print(f"{out}: written ({when(outcome.skipped, outcome.seconds)})")


@app.command()
def localize(
    results: Annotated[
        list[Path], typer.Argument(help="Results files with joint grids, or folders of them.")
    ],
    out: Annotated[Path, typer.Option(help="Results file (.parquet) to write.")],
    overwrite: Overwrite = False,
) -> None:
    """Localization score of every layer, from stored joint grids of neuronsim and svcca.

    Example: `simcore localize runs/results --out runs/results/localization.parquet`
    """
    from simlab.similarity import localization
    from simlab.store import console

    with continues(out):
        outcome = localization.write_localization(results, out, replace=overwrite)
    console.out.print(f"{out}: written ({when(outcome.skipped, outcome.seconds)})")


truncate.register(app)
blocks.register(app)
skip.register(app)


@app.command()
def plot(
    results: Annotated[list[Path], typer.Argument(help="Results files, or folders of them.")],
    out: Annotated[Path, typer.Option(help="Folder for the figures.")],
    comparison: Annotated[
        list[str] | None, typer.Option(help="Grid to show, repeatable; default: P's four, or all.")
    ] = None,
    format: Annotated[
        list[str] | None, typer.Option(help="png, pdf or svg, repeatable; default: png and pdf.")
    ] = None,
) -> None:
    """Draw heatmaps and truncation curves from results files; computes nothing.

    Example: `simcore plot runs/demo/results --out runs/demo/figures --format svg`
    """
    from simlab.figures.draw import plot_results
    from simlab.store import console
    from simlab.store.results import read_results

    files = plot_results(read_results(results), out, format or ("png", "pdf"), comparison or ())
    for file in files:
        console.out.print(str(file))


align.register(app)
listing.register(app)


def main() -> None:
    """Run the command line and exit with its code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code: 0, 2 for a user's mistake, 130 for Ctrl-C."""
    # Waiting threads that spin make a two-core machine up to ten times slower as soon as anything
    # else runs on it. Read once, when torch loads its thread pool.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        return app(arguments, prog_name="simcore", standalone_mode=False) or 0
    except (UserError, TyperException) as error:
        message = error.format_message() if isinstance(error, TyperException) else str(error)
        print(f"error: {' '.join(message.split())}", file=sys.stderr)
        return USAGE_ERROR


def _number(text: str | None) -> int | float | str | None:
    """An integer is a count, another number a share; what is no number is refused further on."""
    if text is None or text.isdecimal():
        return None if text is None else int(text)
    try:
        return float(text)
    except ValueError:
        return text


if __name__ == "__main__":
    main()
