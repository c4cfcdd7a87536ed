"""Commands that write a representation folder: ``extract`` and ``import``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.commands.options import explain_interrupt, took
from simlab.errors import UserError, argument
from simlab.steps.catalogue import EXTRACT, IMPORT

if TYPE_CHECKING:
    from simlab.store.jobs import Outcome


def run_import(values: dict[str, Any]) -> None:
    """Write the folder, and print what it holds."""
    from simlab.representations.imported import import_representations

    with explain_interrupt(values["out"]):
        _print_folder(import_representations(**IMPORT.arguments(values)))


def run_extract(values: dict[str, Any]) -> None:
    """Write a folder for each step of training, or the only one, and print what it holds."""
    from simlab.models.revisions import equal_steps
    from simlab.representations.extract import extract
    from simlab.representations.folder import load_representations
    from simlab.store import console

    with explain_interrupt(values["out"]):
        if values["revisions"] is None:
            _print_folder(extract(**EXTRACT.arguments(values)))
            return
        same: dict[str, list[int]] = {}
        for changes in _steps(values):
            outcome = extract(**EXTRACT.arguments(values | changes))
            _print_folder(outcome)
            rows = load_representations(outcome.path).manifest["data_sha256"]
            same.setdefault(rows, []).append(changes["step"])
        for steps in same.values():
            if len(steps) > 1:  # a revision may serve the weights of another one
                console.note(f"steps {equal_steps(steps)} have equal rows, bit by bit")


def _print_folder(outcome: Outcome) -> None:
    from simlab.representations.folder import describe
    from simlab.store import console

    console.out.print(f"{outcome.path}: {describe(outcome.path)} ({took(outcome)})")


def _steps(values: dict[str, Any]) -> list[dict[str, Any]]:
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
            "model": model.name,
            "step": model.step,
            "label": at_step(label, model.step),
            "out": out / f"step-{model.step}",
        }
        for model in training_runs(str(values["model"]), (), values["revisions"].split())
    ]
