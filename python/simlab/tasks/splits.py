"""Which rows a checkpoint was trained on, so that no later step holds them out.

`simcore finetune` notes in ``evaluation.json`` how it split its task. A step that gets the
checkpoint and the same data takes that split where an option does not say otherwise, and refuses
options that would hold out what the checkpoint was trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from simlab.errors import UserError
from simlab.store.files import read_json
from simlab.tasks import Task, TaskOptions, load_task

EVALUATION = "evaluation.json"
_SIZES = ("train_size", "heldout_size", "split_seed")


def split_record(task: Task) -> dict[str, Any]:
    """How `task` was split, as a checkpoint notes it."""
    return {
        "train_size": len(task.train),
        "heldout_size": len(task.heldout),
        "split_seed": task.split_seed,
        "train_texts_sha256": task.train.text_fingerprint,
    }


def read_split_record(folder: Path) -> dict[str, Any] | None:
    """`split_record` of the task that a checkpoint folder was trained on; None if it has none."""
    file = folder / EVALUATION
    return read_json(file).get("split") if file.is_file() else None


def load_task_of(
    checkpoints: Sequence[Path], task: str | Path | Task, options: TaskOptions | None = None
) -> Task:
    """`load_task` for models that may have been trained on some of its rows.

    Parameters
    ----------
    checkpoints
        Model folders. The first that was fine-tuned on the same data decides what `options` leave
        open of the split.
    task
        As for `load_task`. A task that has been loaded already is returned as it is.

    Raises
    ------
    UserError
        As `load_task`; or a held-out row is one that a checkpoint was trained on.
    ValueError
        `options` for a task that has been loaded already.
    """
    if isinstance(task, Task):
        if options is not None:
            raise ValueError(f"task_options: wanted None with a loaded task, found {options}")
        return task
    name, options = str(task), options or TaskOptions()
    trained = {}
    for folder in checkpoints:
        record = read_split_record(folder)
        task = None if record is None else _trained_on(record, name, options)
        if task is not None:
            trained[folder] = (record, task)
    if not trained:
        return load_task(name, options)
    first, same = next(iter(trained.values()))
    open_sizes = {size: first[size] for size in _SIZES if getattr(options, size) is None}
    chosen = replace(options, **open_sizes)
    if any(getattr(chosen, size) != first[size] for size in _SIZES):
        same = load_task(name, chosen)
    for folder, (record, task) in trained.items():
        _require_unseen(folder, record, task, same)
    return same


def _trained_on(record: dict[str, Any], name: str, options: TaskOptions) -> Task | None:
    """Task `name` split as in `record`; None if a checkpoint's training rows were others."""
    try:
        task = load_task(name, replace(options, **{size: record[size] for size in _SIZES}))
    except UserError:  # fewer rows than those of the record; or `load_task` will say it again
        return None
    return task if task.train.text_fingerprint == record["train_texts_sha256"] else None


def _require_unseen(folder: Path, record: dict[str, Any], trained: Task, task: Task) -> None:
    leaked = len(set(trained.train.ids).intersection(task.heldout.ids))
    if leaked:
        own = " ".join(f"--{size.replace('_', '-')} {record[size]}" for size in _SIZES)
        raise UserError(
            f"--heldout-size, --split-seed: wanted held-out rows that {folder} was not trained on "
            f"(its split is {own}), found {leaked} of {len(task.heldout)} among its training rows"
        )
