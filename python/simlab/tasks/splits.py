"""Which rows a checkpoint was trained on, so that no later step holds them out.

`simcore finetune` notes in ``evaluation.json`` how it split its task, after the splits of every
earlier fine-tuning that the model went through. A step that gets the checkpoint and the same data
takes the last of those splits where an option does not say otherwise, and refuses options that
would hold out what the checkpoint was ever trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from simlab.errors import UserError
from simlab.store.console import note
from simlab.store.files import read_json
from simlab.store.jobs import RECORD
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


def split_records(source: Path | None, task: Task) -> list[dict[str, Any]]:
    """`split_record` of every fine-tuning of `source`, and of the one on `task` that followed.

    Parameters
    ----------
    source
        The folder of the model that was fine-tuned; None if it began with random weights.
    """
    own = split_record(task)
    earlier = [] if source is None else read_split_records(source)
    return [*(record for record in earlier if record != own), own]


def read_split_records(folder: Path) -> list[dict[str, Any]]:
    """`split_record` of every task that a model folder was trained on, the last one last.

    Empty for a model that was not fine-tuned here. Earlier versions noted the last fine-tuning
    alone, as ``split``, or none. Of a checkpoint without a note the record has no sizes, only the
    name of the task and the hash of its training rows, None if that is unknown too.
    """
    evaluation = folder / EVALUATION
    found = read_json(evaluation) if evaluation.is_file() else None
    if not isinstance(found, dict) or not {"task", "metric"} <= found.keys():
        return []  # not written here
    if "splits" in found:
        return found["splits"]
    if found.get("split"):
        return [found["split"]]
    job = folder / RECORD
    inputs = read_json(job)["inputs"] if job.is_file() else {}
    return [{"task": found["task"], "train_sha256": inputs.get("train")}]


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
    trained = [
        (folder, record, own)
        for folder in checkpoints
        for record in reversed(read_split_records(folder))
        if _is_known(record) and (own := _trained_on(record, name, options)) is not None
    ]
    if trained:
        _, first, same = trained[0]
        open_sizes = {size: first[size] for size in _SIZES if getattr(options, size) is None}
        chosen = replace(options, **open_sizes)
        if any(getattr(chosen, size) != first[size] for size in _SIZES):
            same = load_task(name, chosen)
    else:
        same = load_task(name, options)
    for folder, record, own in trained:
        _require_unseen(folder, record, own, same)
    if any(getattr(options, size) is None for size in _SIZES):
        for folder in dict.fromkeys(checkpoints):
            for record in read_split_records(folder):
                if not _is_known(record):
                    _tell_if_unknown(folder, record, same)
    return same


def _is_known(record: dict[str, Any]) -> bool:
    return all(size in record for size in _SIZES)


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


def _tell_if_unknown(folder: Path, record: dict[str, Any], task: Task) -> None:
    """Say that rows may leak where it is unknown on which rows of `task` a checkpoint was trained.

    Nothing is said where the hash shows that it was trained on just these rows.
    """
    if record["task"] == task.name and record["train_sha256"] != task.train.fingerprint:
        note(
            f"{folder} does not say which rows of {task.name} it was trained on (an earlier "
            "version wrote it): some may be held out now, unless --train-size, --heldout-size and "
            "--split-seed are those of its fine-tuning"
        )
