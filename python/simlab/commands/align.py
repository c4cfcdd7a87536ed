"""``simcore inject`` and ``simcore align-study``: how well one model's states map to another's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simlab.commands.options import (
    HeldoutSize,
    LabelColumn,
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

if TYPE_CHECKING:
    import pandas as pd

Epochs = Annotated[
    int | None, typer.Option(help="Passes of inn and mlp over their rows (100, or until no gain).")
]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command()(inject)
    app.command(name="align-study")(align_study)


def inject(
    a: ModelArgument,
    b: Annotated[str, typer.Argument(help="A folder of `simcore finetune`, which goes on.")],
    task: TaskArgument,
    out: Annotated[Path, typer.Option(help="Results file (.parquet) to write.")],
    layer: Annotated[
        int | None, typer.Option(help="0 is the embedding output; default: the last.")
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="`itself`, `identity`, `linear`, `cca`, `svcca`, `pwcca`, `mlp`, `inn`, "
            "`random-embeddings` or `random-labels`, repeatable; default: all but svcca."
        ),
    ] = None,
    tokens: Annotated[
        str, typer.Option(help="Replace `cls`, the classifier token, or `all` tokens.")
    ] = "cls",
    fit_size: Annotated[int, typer.Option(help="Training examples that the maps learn from.")] = (
        1600
    ),
    epochs: Epochs = None,
    seed: Annotated[int, typer.Option(min=0, help="Of trained maps and random rows.")] = 0,
    label_a: Annotated[str | None, typer.Option(help="A's name in results and figures.")] = None,
    label_b: Annotated[str | None, typer.Option(help="B's name in results and figures.")] = None,
    text_column: TextColumn = None,
    text_pair_column: TextPairColumn = None,
    label_column: LabelColumn = None,
    train_size: TrainSize = None,
    heldout_size: HeldoutSize = None,
    split_seed: SplitSeed = None,
    max_length: MaxLength = 64,
    overwrite: Overwrite = False,
) -> None:
    """Let B go on from g(hidden states of A) at one layer, for several maps g, and score it.

    The maps are fitted on training examples, the metric is that of the held-out ones. A map that
    the states do not allow has no value, and a note says why.

    Example: `simcore inject runs/ft-1 runs/ft-2 rt --layer 6 --out runs/results/injection.parquet`
    """
    from simlab import tasks
    from simlab.experiments import inject as step
    from simlab.store import console
    from simlab.store.results import read_results

    task_options = tasks.TaskOptions(
        text_column, text_pair_column, label_column, train_size, heldout_size, split_seed
    )
    with continues(out):
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
    console.out.print(f"{out}: written ({when(outcome.skipped, outcome.seconds)})")


def _describe_undefined(frame: pd.DataFrame) -> list[str]:
    """One line for each reason why injected methods of a results table have no value."""
    from simlab.store.results import INJECTION

    methods: dict[tuple[int, str], list[str]] = {}
    for row in frame[frame["comparison"] == INJECTION].itertuples():
        options = json.loads(row.options)
        if "undefined" in options:
            methods.setdefault((row.layer_x, options["undefined"]), []).append(options["method"])
    return [
        f"{', '.join(names)}: no value at layer {layer}: {reason}"
        for (layer, reason), names in methods.items()
    ]


def align_study(
    folders: Annotated[
        list[Path],
        typer.Argument(help="Representation folders of the models, of the same rows."),
    ],
    out: Annotated[Path, typer.Option(help="Folder of results files to write.")],
    name: Annotated[
        str, typer.Option(help="Of this set of models in results and figures, e.g. `fine-tuned`.")
    ] = "models",
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="`linear`, `cca`, `svcca`, `pwcca`, `mlp` or `inn`, repeatable; default: inn."
        ),
    ] = None,
    within: Annotated[
        bool, typer.Option("--within", help="Also every layer of a model to every other of it.")
    ] = False,
    heldout_share: Annotated[
        float, typer.Option(help="Share of the examples that the maps are judged on.")
    ] = 0.5,
    rows: Annotated[
        int, typer.Option(help="Most rows that a map learns from, and is judged on.")
    ] = 20_000,
    at_once: Annotated[
        int, typer.Option(min=1, help="Maps trained in one batched loop; bounds the memory.")
    ] = 16,
    epochs: Epochs = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the split and of trained maps.")] = 0,
    causal: Annotated[
        bool, typer.Option("--causal", help="Attention: leave out what decoders mask.")
    ] = False,
    overwrite: Overwrite = False,
) -> None:
    """Alignment error from every model to every other, layer by layer, and layers' complexity.

    One file for each ordered pair and method; an interrupted study goes on where it was.

    Example: `simcore align-study runs/reps/ft-* --name fine-tuned --method linear --method inn
    --within --out runs/results/alignment`
    """
    from simlab.experiments import align_study as step
    from simlab.store import console

    with continues(out):
        outcomes = step.align_study(
            folders,
            out,
            name=name,
            methods=tuple(method or ("inn",)),
            within=within,
            heldout_share=heldout_share,
            rows=rows,
            at_once=at_once,
            epochs=epochs,
            seed=seed,
            causal=causal,
            overwrite=overwrite,
        )
    seconds = sum(outcome.seconds for outcome in outcomes)
    skipped = all(outcome.skipped for outcome in outcomes)
    console.out.print(f"{out}: {len(outcomes)} files ({when(skipped, seconds)})")
