"""Options of ``simcore truncate`` that say how the heads of layers are trained.

An option that is None keeps the value of `simlab.models.head_recipe.HeadRecipe`.
"""

from __future__ import annotations

from typing import Annotated

import typer

HeadLearningRate = Annotated[
    float | None, typer.Option(help="Peak learning rate of heads; default: 0.001.")
]
HeadBatchSize = Annotated[
    int | None, typer.Option(help="Examples per training step of heads; default: 64.")
]
HeadWeightDecay = Annotated[
    float | None, typer.Option(help="Weight decay of AdamW for heads; default: 0.01.")
]
HeadMostSteps = Annotated[
    int | None, typer.Option(help="Most training steps of heads; default: 2000.")
]
HeadWarmup = Annotated[
    float | None,
    typer.Option(
        help="Warm-up steps of heads; a value below 1 is a share of the steps; default: 0."
    ),
]
HeadDecay = Annotated[
    bool | None,
    typer.Option(
        "--head-decay/--no-head-decay",
        help="Let the learning rate of heads fall linearly to 0; default: no.",
    ),
]
HeadScale = Annotated[
    bool | None,
    typer.Option(
        "--head-scale/--no-head-scale",
        help="Bring the vectors of each layer to one scale before heads read them; default: yes.",
    ),
]
HeadValidationShare = Annotated[
    float | None,
    typer.Option(
        help="Share of the training rows on which the best head of each layer is chosen; 0 takes "
        "the heads of the last step; default: 0.1."
    ),
]
HeadStepsBetween = Annotated[
    int | None, typer.Option(help="Steps between two validations of heads; default: 50.")
]
HeadPatience = Annotated[
    int | None,
    typer.Option(help="Validations without a lower loss before a head stops; default: 5."),
]
HeadSeed = Annotated[
    int | None, typer.Option(help="Seed of new heads and of their rows; default: 0.")
]
