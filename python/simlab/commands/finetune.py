"""``simcore finetune``: fine-tune a model by a named recipe, with one seed or several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.commands.options import explain_interrupt, opened, took
from simlab.errors import UserError, argument
from simlab.steps.catalogue import FINETUNE
from simlab.steps.record import Step

if TYPE_CHECKING:
    from simlab.models.checkpoint import Checkpoint
    from simlab.store.jobs import Outcome

STEPS = (FINETUNE,)


def run(step: Step, values: dict[str, Any], paper: str | None) -> None:
    """Make the checkpoint of every seed, and print its held-out metrics."""
    seed, seeds, recipe = values.pop("seed"), values.pop("seeds"), values["recipe"]
    if paper is not None and paper != recipe:
        raise UserError(
            f"{argument('paper', paper)}, {argument('recipe', recipe)}: wanted one recipe, found "
            "two; here both options name the recipe"
        )
    out = Path(values["out"])
    folders = seed_folders(out, seed, seeds)
    with explain_interrupt(out):
        if seeds is not None:  # every seed takes what is opened here
            values = opened(step, values, "model")
        made = []
        for number, folder in folders.items():  # each folder is a job of its own
            outcome = step.call(**values | {"out": folder, "seed": number})
            made.append(print_scores(outcome))
    if seeds is not None:
        _summarise([checkpoint.scores for checkpoint in made])


def seed_folders(out: Path, seed: int | None, seeds: str | None) -> dict[int | None, Path]:
    """Return the checkpoint folder of every seed: `out` itself, or with --seeds ``out/seed-N``.

    None is the seed of the recipe.
    """
    from simlab.store.jobs import RECORD
    from simlab.training.recipes import parse_seeds

    if seeds is None:
        return {seed: out}
    if seed is not None:
        raise UserError(
            f"{argument('seeds')}: wanted {argument('seeds')} or {argument('seed')}, found both"
        )
    if (out / RECORD).exists():
        raise UserError(
            f"{argument('out', out)}: wanted a folder for a checkpoint of each of "
            f"{argument('seeds')}, found a folder "
            f"that is itself a checkpoint; choose another {argument('out')}"
        )
    return {number: out / f"seed-{number}" for number in parse_seeds(seeds)}


def print_scores(outcome: Outcome) -> Checkpoint:
    """Open the checkpoint that was made, and print its held-out metrics."""
    from simlab.models.checkpoint import Checkpoint
    from simlab.store import console

    checkpoint = Checkpoint.open(outcome.path)
    scores = ", ".join(f"{name} {value:.3f}" for name, value in checkpoint.scores.items())
    console.out.print(
        f"{outcome.path}: held-out {scores} (n = {checkpoint.evaluation['n']:,}, {took(outcome)})"
    )
    return checkpoint


def _summarise(scores: Sequence[Mapping[str, float]]) -> None:
    import numpy as np

    from simlab.store import console

    for metric in scores[0]:
        values = np.array([of_seed[metric] for of_seed in scores])
        spread = f", standard deviation {values.std(ddof=1):.3f}" if len(values) > 1 else ""
        console.out.print(f"{len(values)} seeds: mean {metric} {values.mean():.3f}{spread}")
