"""``simcore inject``: a model that continues from the mapped states of another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simlab.commands.options import (
    HeldoutSize,
    LabelColumn,
    MapEpochs,
    MaxLength,
    Overwrite,
    SplitSeed,
    TaskArgument,
    TextColumn,
    TextPairColumn,
    TrainSize,
    duration,
    explain_interrupt,
)

if TYPE_CHECKING:
    import pandas as pd


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(inject)


def inject(
    a: Annotated[
        str,
        typer.Argument(help="Model A: `minilm` (offline), a local folder, or a model of the hub."),
    ],
    b: Annotated[str, typer.Argument(help="Model B: a folder that `simcore finetune` made.")],
    task: TaskArgument,
    out: Annotated[Path, typer.Option(help="Results file (.parquet) to write.")],
    layer: Annotated[
        int | None, typer.Option(help="Layer; 0 is the embedding output; default: the last layer.")
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="Method: `itself`, `identity`, `linear`, `cca`, `svcca`, `pwcca`, `mlp`, `inn`, "
            "`random-embeddings` or `random-labels`, repeatable; default: all except svcca."
        ),
    ] = None,
    tokens: Annotated[
        str, typer.Option(help="Tokens to replace: `cls`, the classifier token, or `all`.")
    ] = "cls",
    fit_size: Annotated[
        int, typer.Option(help="Training examples that the maps are fitted on.")
    ] = 1600,
    epochs: MapEpochs = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of trained maps, random states and random labels.")
    ] = 0,
    label_a: Annotated[
        str | None, typer.Option(help="Name of model A in results and figures.")
    ] = None,
    label_b: Annotated[
        str | None, typer.Option(help="Name of model B in results and figures.")
    ] = None,
    text_column: TextColumn = None,
    text_pair_column: TextPairColumn = None,
    label_column: LabelColumn = None,
    train_size: TrainSize = None,
    heldout_size: HeldoutSize = None,
    split_seed: SplitSeed = None,
    max_length: MaxLength = None,
    overwrite: Overwrite = False,
) -> None:
    """Let model B continue from g(hidden states of A) at one layer, and score B for several maps g.

    The maps are fitted on training examples, and B is scored on held-out examples. If the states
    do not allow a map, its value is missing, and a note gives the reason.

    Example: `simcore inject runs/ft-1 runs/ft-2 rt --layer 6 --out runs/results/injection.parquet`
    """
    from simlab import tasks
    from simlab.experiments import inject as step
    from simlab.store import console
    from simlab.store.results import read_results

    task_options = tasks.TaskOptions(
        text_column, text_pair_column, label_column, train_size, heldout_size, split_seed
    )
    with explain_interrupt(out):
        outcome = step.inject(
            a,
            b,
            task,
            out,
            layer=layer,
            methods=tuple(method) if method else None,
            tokens=tokens,
            fit_size=fit_size,
            max_length=max_length,
            epochs=epochs,
            seed=seed,
            label_a=label_a,
            label_b=label_b,
            task_options=task_options,
            overwrite=overwrite,
        )
    for line in _describe_undefined(read_results(out)):
        console.note(line)
    console.out.print(f"{out}: written ({duration(outcome.skipped, outcome.seconds)})")


def _describe_undefined(frame: pd.DataFrame) -> list[str]:
    """Return a line for each reason why methods in a results table have no value."""
    from simlab.store.results import INJECTION

    methods: dict[tuple[int, str], dict[str, None]] = {}
    for row in frame[frame["comparison"] == INJECTION].itertuples():
        options = json.loads(row.options)
        if "undefined" in options:
            names = methods.setdefault((row.layer_x, options["undefined"]), {})
            names[options["method"]] = None  # one name for all metrics of a method
    return [
        f"{', '.join(names)}: no value at layer {layer}: {reason}"
        for (layer, reason), names in methods.items()
    ]
