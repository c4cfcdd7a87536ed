"""``simcore import``: make a representation folder of arrays that another program wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("import")(import_files)


def import_files(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Files of layers [rows, columns] or [layers, rows, columns], or one file with an "
            "array [layers, words, columns] for each sentence: .npy .npz .safetensors .h5 .hdf5 "
            ".pt .pth"
        ),
    ],
    label: Annotated[str, typer.Option(help="Name of the model in results and figures.")],
    out: Annotated[Path, typer.Option(help="Representation folder to write.")],
    seed: Annotated[int | None, typer.Option(help="Seed of the training, to store.")] = None,
    kind: Annotated[
        str,
        typer.Option(help="What a row is, as in `simcore extract`: `mean`, `word-last`, ..."),
    ] = "imported",
    layer: Annotated[
        list[str] | None,
        typer.Option(help="Array to take as a layer, by name; repeatable; default: all in order."),
    ] = None,
    ids: Annotated[
        Path | None,
        typer.Option(help="Text file with the id of a row on each line; default: those in FILES."),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="Task, file or data set whose examples, or whose words between spaces, the rows "
            "are, as `simcore extract` takes it."
        ),
    ] = None,
    split: Annotated[
        str, typer.Option(help="Split of --task: `heldout`, `train` or `all`.")
    ] = "heldout",
    limit: Annotated[
        int | None, typer.Option(min=1, help="Number of examples of --task, from the first.")
    ] = None,
    dtype: Annotated[
        str,
        typer.Option(help="Type of the stored values: `float32`, or `float16` for half the room."),
    ] = "float32",
    text_column: TextColumn = None,
    pair_column: PairColumn = None,
    label_column: LabelColumn = None,
    train_size: TrainSize = None,
    heldout_size: HeldoutSize = None,
    split_seed: SplitSeed = None,
    overwrite: Overwrite = False,
) -> None:
    """Make a representation folder of arrays that another program wrote; nothing is unpickled.

    Example: `simcore import layers.npz --label mine --out runs/reps/mine`

    Example: `simcore import elmo.hdf5 --label ELMo --kind word-last --task sentences.txt
    --split all --out runs/words/elmo`
    """
    from simlab import tasks
    from simlab.representations import folder as representations
    from simlab.representations import imported as step
    from simlab.store import console

    given = (text_column, pair_column, label_column, train_size, heldout_size, split_seed)
    with explain_interrupt(out):
        outcome = step.import_representations(
            files,
            out,
            label=label,
            seed=seed,
            kind=kind,
            layers=layer or (),
            ids=ids,
            task=task,
            split=split,
            limit=limit,
            dtype=dtype,
            task_options=tasks.TaskOptions(*given),
            overwrite=overwrite,
        )
    console.out.print(
        f"{out}: {representations.describe(out)} ({duration(outcome.skipped, outcome.seconds)})"
    )
