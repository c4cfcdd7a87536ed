"""Commands that write a representation folder: ``extract`` and ``import``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simlab.commands.options import explain_interrupt, took
from simlab.errors import UserError, argument
from simlab.steps.catalogue import EXTRACT, IMPORT
from simlab.steps.record import Step

STEPS = (EXTRACT, IMPORT)


def run(step: Step, values: dict[str, Any], paper: str | None) -> None:
    """Write a folder for each step of training, or the only one, and print what it holds."""
    from simlab.models.revisions import equal_steps
    from simlab.representations import folder as representations
    from simlab.store import console

    out, revisions = Path(values["out"]), values.pop("revisions", None)
    every = [{}] if revisions is None else _steps(values, revisions)
    with explain_interrupt(out):
        same: dict[str, list[int]] = {}
        for of_step in every:
            outcome = step.call(**values | of_step)
            held = representations.describe(outcome.path)
            console.out.print(f"{outcome.path}: {held} ({took(outcome)})")
            if of_step:
                rows = representations.load_representations(outcome.path).manifest["data_sha256"]
                same.setdefault(rows, []).append(of_step["step"])
        for steps in same.values():
            if len(steps) > 1:  # a revision may serve the weights of another one
                console.note(f"steps {equal_steps(steps)} have equal rows, bit by bit")


def _steps(values: dict[str, Any], revisions: str) -> list[dict[str, Any]]:
    """Return model, step, label and folder of every step of a training run."""
    from simlab.models.revisions import training_runs
    from simlab.results.labels import at_step
    from simlab.store.jobs import RECORD

    out = Path(values["out"])
    if values["step"] is not None:
        raise UserError(
            f"{argument('revisions')}: wanted steps in the names of revisions, found "
            f"{argument('step', values['step'])}"
        )
    if (out / RECORD).exists():
        raise UserError(
            f"{argument('out', out)}: wanted a folder for a folder of each of "
            f"{argument('revisions')}, found the folder of one extraction; choose another "
            f"{argument('out')}"
        )
    label = values["label"] or Path(str(values["model"])).name
    return [
        {
            "model": one.name,
            "step": one.step,
            "label": at_step(label, one.step),
            "out": out / f"step-{one.step}",
        }
        for one in training_runs(str(values["model"]), (), revisions.split())
    ]
