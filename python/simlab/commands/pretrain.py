"""``simcore pretrain``: pretrain a model from scratch, with one seed or several."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.commands.finetune import seed_folders
from simlab.commands.options import explain_interrupt, took
from simlab.steps.catalogue import PRETRAIN
from simlab.steps.record import Step

if TYPE_CHECKING:
    from simlab.store.jobs import Outcome

STEPS = (PRETRAIN,)


def run(step: Step, values: dict[str, Any], paper: str | None) -> None:
    """Make the model of every seed, and print its losses."""
    from simlab.tasks.corpus import load_texts

    out = Path(values["out"])
    folders = seed_folders(out, values.pop("seed"), values.pop("seeds"))
    with explain_interrupt(out):
        if len(folders) > 1:  # every seed takes the texts that are read here
            options = step.task_options(**values)
            values["texts"] = [load_texts(name, options) for name in values["texts"]]
        for number, folder in folders.items():  # each folder is a job of its own
            print_losses(step.call(**values | {"out": folder, "seed": number}))


def print_losses(outcome: Outcome) -> None:
    """Print what the pretraining measured on held-out texts."""
    from simlab.store import console
    from simlab.training.pretrain import read_pretraining

    record = read_pretraining(outcome.path)
    console.out.print(
        f"{outcome.path}: held-out loss {record['loss']:.3f} (frequencies of words alone "
        f"{record['unigram_loss']:.3f}), accuracy {record['accuracy']:.3f} (n = {record['n']:,} "
        f"predicted tokens, {took(outcome)})"
    )
