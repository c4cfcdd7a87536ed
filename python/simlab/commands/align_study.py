"""``simcore align-study``: maps between the layers of several models, and their errors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simlab.commands.options import MapEpochs, Overwrite, duration, explain_interrupt


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
            help="Method: `linear`, `cca`, `svcca`, `pwcca`, `mlp` or `inn`, repeatable; "
            "default: inn."
        ),
    ] = None,
    within: Annotated[
        bool, typer.Option("--within", help="Align also the layers of each model with each other.")
    ] = False,
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
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split and of trained maps.")] = 0,
    causal: Annotated[
        bool,
        typer.Option("--causal", help="For attention: leave out word pairs that decoders mask."),
    ] = False,
    overwrite: Overwrite = False,
) -> None:
    """Fit maps between the layers of every two models, and measure the complexity of layers.

    Writes a results file for each ordered pair and method. An interrupted study continues where it
    was.

    Example: `simcore align-study runs/reps/ft-* --name fine-tuned --method linear --method inn
    --within --out runs/results/alignment`
    """
    from simlab.experiments import align_study as step
    from simlab.store import console

    with explain_interrupt(out):
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
    console.out.print(f"{out}: {len(outcomes)} files ({duration(skipped, seconds)})")
