"""``simcore align-study``: maps between the layers of several models, and their errors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simlab.commands.options import (
    MapEpochs,
    MapSteps,
    Overwrite,
    Paper,
    Training,
    Truncation,
    count_or_share,
    duration,
    explain_interrupt,
)


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command(name="align-study")(align_study)


def align_study(
    folders: Annotated[
        list[Path],
        typer.Argument(help="Representation folders, one for each model, with the same rows."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the results files.")],
    name: Annotated[
        str,
        typer.Option(help="Name of this set of models in results, for example `fine-tuned`."),
    ] = "models",
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="Method: `linear`, `linear-gd`, `cca`, `svcca`, `pwcca`, `mlp` or `inn`, "
            "repeatable; default: inn."
        ),
    ] = None,
    judge: Annotated[
        list[Path] | None,
        typer.Option(
            help="Representation folders of other examples to judge the maps on, or a folder of "
            "such folders, repeatable; each model's is found by its label. Default: a share of the "
            "examples of FOLDERS (--heldout-share)."
        ),
    ] = None,
    map: Annotated[
        str,
        typer.Option(
            help="`per-layer`: a map for every layer; `shared`: one map, fitted on all layers.",
        ),
    ] = "per-layer",
    training: Training = "ours",
    truncation: Truncation = None,
    within: Annotated[
        bool, typer.Option("--within", help="Align also the layers of each model with each other.")
    ] = False,
    across_layers: Annotated[
        bool,
        typer.Option(
            "--across-layers",
            help="Align also every layer of one model with every layer of the other; in attention, "
            "every head with every head.",
        ),
    ] = False,
    pairs: Annotated[
        int | None, typer.Option(min=1, help="Pairs of models to draw; default: all.")
    ] = None,
    pair_seed: Annotated[int, typer.Option(min=0, help="Seed of the drawn pairs.")] = 0,
    directions: Annotated[
        str,
        typer.Option(
            help="`both` directions of every pair, or `one`: from the model that is given first."
        ),
    ] = "both",
    heldout_share: Annotated[
        float, typer.Option(help="Share of the examples that the maps are judged on.")
    ] = 0.5,
    rows: Annotated[
        int, typer.Option(help="Largest number of rows to fit a map on, and to judge it on.")
    ] = 20_000,
    at_once: Annotated[
        int, typer.Option(min=1, help="Maps trained in one batched loop; fewer take less memory.")
    ] = 16,
    epochs: MapEpochs = None,
    steps: MapSteps = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split and of trained maps.")] = 0,
    causal: Annotated[
        bool,
        typer.Option("--causal", help="For attention: leave out word pairs that decoders mask."),
    ] = False,
    paper: Paper = None,
    overwrite: Overwrite = False,
) -> None:
    """Fit maps between the layers of every two models, and measure the complexity of layers.

    Writes a results file for each ordered pair and method. An interrupted study continues where it
    was.

    Example: `simcore align-study runs/reps/ft-* --name fine-tuned --method linear --method inn
    --within --out runs/results/alignment`

    With extracts of training rows in `runs/train/*` and of test rows in `runs/test/*`:
    `simcore align-study runs/train/* --judge runs/test --out runs/results/alignment`
    """
    from simlab.experiments import align_study as step
    from simlab.store import console

    with explain_interrupt(out):
        outcomes = step.align_study(
            folders,
            out,
            name=name,
            methods=tuple(method or ("inn",)),
            judge=judge or (),
            map=map,
            training=training,
            truncation=count_or_share(truncation),
            within=within,
            across_layers=across_layers,
            pairs=pairs,
            pair_seed=pair_seed,
            directions=directions,
            heldout_share=heldout_share,
            rows=rows,
            at_once=at_once,
            epochs=epochs,
            steps=steps,
            seed=seed,
            causal=causal,
            overwrite=overwrite,
        )
    seconds = sum(outcome.seconds for outcome in outcomes)
    skipped = all(outcome.skipped for outcome in outcomes)
    console.out.print(f"{out}: {len(outcomes)} files ({duration(skipped, seconds)})")
