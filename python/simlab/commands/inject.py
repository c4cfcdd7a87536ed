"""``simcore inject``: models that continue from the mapped states of others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simlab.commands.options import (
    HeldoutSize,
    LabelColumn,
    MapEpochs,
    MapSteps,
    MaxLength,
    Overwrite,
    Paper,
    SplitSeed,
    TaskArgument,
    TextColumn,
    TextPairColumn,
    Training,
    TrainSize,
    Truncation,
    count_or_share,
    duration,
    explain_interrupt,
)

if TYPE_CHECKING:
    import pandas as pd


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(inject)


def inject(
    models: Annotated[
        list[str],
        typer.Argument(
            help="Model A, and model B, a folder that `simcore finetune` made. Three models or "
            "more: every model into every other."
        ),
    ],
    task: TaskArgument,
    out: Annotated[
        Path,
        typer.Option(
            help="Results file (.parquet) to write; for several pairs, a folder for a file each."
        ),
    ],
    into: Annotated[
        list[str] | None,
        typer.Option(help="Model B, repeatable: every other model into each of them."),
    ] = None,
    pairs: Annotated[
        int | None,
        typer.Option(help="Pairs of models to draw; default: all."),
    ] = None,
    pair_seed: Annotated[int, typer.Option(min=0, help="Seed of the drawn pairs.")] = 0,
    directions: Annotated[
        str,
        typer.Option(
            help="More than two models in `both` directions, or in `one`: from the model that is "
            "given first."
        ),
    ] = "both",
    layer: Annotated[
        int | None, typer.Option(help="Layer; 0 is the embedding output; default: the last layer.")
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="Method: `itself`, `identity`, `linear`, `linear-gd`, `cca`, `svcca`, `pwcca`, "
            "`mlp`, `inn`, `random-classifier`, `random-embeddings` or `random-labels`, "
            "repeatable; default: all except svcca and linear-gd."
        ),
    ] = None,
    tokens: Annotated[
        str, typer.Option(help="Tokens to replace: `cls`, the classifier token, or `all`.")
    ] = "cls",
    fit_on: Annotated[
        str,
        typer.Option(
            help="Rows that the maps are fitted on: `tokens`, the same as are replaced; `mean`, "
            "the mean over the tokens of each text; `mean-all`, over special tokens too; or "
            "`mean-padded`, over all --max-length positions, padding included."
        ),
    ] = "tokens",
    continue_with: Annotated[
        str,
        typer.Option(
            help="Part of B that continues from the mapped states: `model`, all of B; or "
            "`classifier`, its last weights, after A's own layers and pooler."
        ),
    ] = "model",
    fit_size: Annotated[
        int, typer.Option(help="Training examples that the maps are fitted on.")
    ] = 1600,
    epochs: MapEpochs = None,
    steps: MapSteps = None,
    training: Training = "ours",
    truncation: Truncation = None,
    seed: Annotated[
        int,
        typer.Option(min=0, help="Seed of trained maps, and of random heads, states and labels."),
    ] = 0,
    original: Annotated[
        str | None,
        typer.Option(
            help="Model before the fine-tuning of B, for `random-classifier`; default: the model "
            "that the checkpoint names."
        ),
    ] = None,
    label_a: Annotated[
        str | None, typer.Option(help="Name of model A in results and figures.")
    ] = None,
    label_b: Annotated[
        str | None, typer.Option(help="Name of model B in results and figures.")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(help="Name of a model of several pairs, repeatable: once for each model."),
    ] = None,
    text_column: TextColumn = None,
    text_pair_column: TextPairColumn = None,
    label_column: LabelColumn = None,
    train_size: TrainSize = None,
    heldout_size: HeldoutSize = None,
    split_seed: SplitSeed = None,
    max_length: MaxLength = None,
    paper: Paper = None,
    overwrite: Overwrite = False,
) -> None:
    """Let model B continue from g(hidden states of A) at one layer, and score B for several maps g.

    The maps are fitted on training examples, and B is scored on held-out examples. If the states
    do not allow a map, its value is missing, and a note gives the reason. Several pairs give a
    folder with a results file for each pair; an interrupted call continues where it was.

    Example: `simcore inject runs/ft-1 runs/ft-2 rt --layer 6 --out runs/results/injection.parquet`

    Example: `simcore inject runs/ft-* rt --pairs 8 --fit-on mean --out runs/results/injection`
    """
    from simlab import tasks
    from simlab.experiments import inject as step
    from simlab.store import console
    from simlab.store.results import read_results

    task_options = tasks.TaskOptions(
        text_column, text_pair_column, label_column, train_size, heldout_size, split_seed
    )
    common: dict[str, Any] = {
        "layer": layer,
        "methods": tuple(method) if method else None,
        "tokens": tokens,
        "fit_on": fit_on,
        "continue_with": continue_with,
        "fit_size": fit_size,
        "max_length": max_length,
        "epochs": epochs,
        "steps": steps,
        "training": training,
        "truncation": count_or_share(truncation),
        "seed": seed,
        "original": original,
        "task_options": task_options,
        "overwrite": overwrite,
    }
    several = len(models) != 2 or bool(into) or pairs not in (None, 1)
    _check_labels(several, label_a, label_b, label)
    with explain_interrupt(out):
        if several:
            chosen: dict[str, Any] = {"into": into, "pairs": pairs, "pair_seed": pair_seed}
            chosen |= {"directions": directions, "labels": label}
            outcomes = step.inject_pairs(models, task, out, **chosen, **common)
        else:
            names: dict[str, Any] = {"label_a": label_a, "label_b": label_b}
            outcomes = [step.inject(models[0], models[1], task, out, **names, **common)]
    for line in _describe_undefined(read_results([outcome.path for outcome in outcomes])):
        console.note(line)
    seconds = sum(outcome.seconds for outcome in outcomes)
    took = duration(all(outcome.skipped for outcome in outcomes), seconds)
    count = f"{len(outcomes)} pairs" if several else "written"
    console.out.print(f"{out}: {count} ({took})")


def _check_labels(several: bool, a: str | None, b: str | None, label: list[str] | None) -> None:
    """Raise UserError if labels come by the options for the other number of pairs."""
    from simlab.errors import UserError, argument

    if several and (a or b):
        raise UserError(
            f"{argument('label_a')}, {argument('label_b')}: wanted {argument('labels')} for "
            "several pairs, found one of them"
        )
    if label and not several:
        raise UserError(
            f"{argument('labels')}: wanted {argument('label_a')} and {argument('label_b')} for one "
            f"pair, found {argument('labels')}"
        )


def _describe_undefined(frame: pd.DataFrame) -> list[str]:
    """Return a line for each reason why methods in a results table have no value."""
    from simlab.store.results import INJECTION

    methods: dict[tuple[int, str], dict[str, None]] = {}
    for row in frame[frame["experiment"] == INJECTION].itertuples():
        options = json.loads(row.options)
        if "undefined" in options:
            names = methods.setdefault((row.layer_x, options["undefined"]), {})
            names[options["method"]] = None  # one name for all metrics of a method
    return [
        f"{', '.join(names)}: no value at layer {layer}: {reason}"
        for (layer, reason), names in methods.items()
    ]
