"""The rows that a checkpoint was trained on, so that no later step holds them out.

`simcore finetune` writes into ``evaluation.json`` how it split its task, after the splits of every
earlier fine-tuning of the model. A later step on the same data uses the last of these splits where
no option says otherwise, and refuses options that would hold out rows that the checkpoint was ever
trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from simlab.errors import UserError, argument
from simlab.store.console import note
from simlab.store.files import read_json
from simlab.store.jobs import RECORD
from simlab.tasks import ALL, Examples, Task, TaskOptions, load_corpus, load_task

EVALUATION = "evaluation.json"
_SIZES = ("train_size", "heldout_size", "split_seed")


def split_record(task: Task) -> dict[str, Any]:
    """Return the record of how `task` was split, as ``evaluation.json`` stores it."""
    return {
        "train_size": len(task.train),
        "heldout_size": len(task.heldout),
        "split_seed": task.split_seed,
        "train_texts_sha256": task.train.text_fingerprint,
    }


def split_records(source: Path | None, task: Task) -> list[dict[str, Any]]:
    """Return the `split_record` of every earlier fine-tuning of `source`, and then of `task`.

    Parameters
    ----------
    source
        The folder of the model that was fine-tuned on `task`; None if its weights were random.
    """
    own = split_record(task)
    earlier = [] if source is None else read_split_records(source)
    return [*(record for record in earlier if record != own), own]


def read_split_records(folder: Path) -> list[dict[str, Any]]:
    """Return the `split_record` of every task that a model folder was trained on, in order.

    The list is empty for a model that simlab did not fine-tune. Earlier versions stored only the
    last fine-tuning, as ``split``, or no split at all. The record of a checkpoint without a stored
    split has no sizes, only the name of the task and the hash of its training rows (None if the
    hash is unknown).
    """
    found = read_own_evaluation(folder)
    if found is None:
        return []
    if "splits" in found:
        return found["splits"]
    if found.get("split"):
        return [found["split"]]
    job = folder / RECORD
    inputs = read_json(job)["inputs"] if job.is_file() else {}
    return [{"task": found["task"], "train_sha256": inputs.get("train")}]


def read_own_evaluation(folder: Path) -> dict[str, Any] | None:
    """Return ``evaluation.json`` of a model folder; None if there is none, or not one of simlab."""
    evaluation = folder / EVALUATION
    found = read_json(evaluation) if evaluation.is_file() else None
    return found if isinstance(found, dict) and {"task", "metric"} <= found.keys() else None


def load_task_of(
    checkpoints: Sequence[Path], task: str | Path | Task, options: TaskOptions | None = None
) -> Task:
    """Load a task for models that may have been trained on some of its rows.

    Parameters
    ----------
    checkpoints
        Model folders. Sizes and seed that `options` leave open are those of the first folder that
        was fine-tuned on the same data.
    task
        As for `load_task`. A task that has been loaded already is returned unchanged.

    Raises
    ------
    UserError
        As `load_task`, or a checkpoint was trained on a held-out row.
    ValueError
        There are `options` for a task that has been loaded already.
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
                    _note_unknown_split(folder, record, same)
    return same


def load_examples(
    checkpoints: Sequence[Path],
    task: str | Path | Task,
    split: str,
    options: TaskOptions | None = None,
) -> tuple[str, Examples]:
    """Return the name of a task or corpus, and the examples of a split.

    Parameters
    ----------
    checkpoints, task, options
        As for `load_task_of`; of a corpus as for `load_corpus`.
    split
        ``heldout``, ``train``, or ``all``: every text in its order.
    """
    if split == ALL:
        corpus = load_corpus(task, options)
        return corpus.name, corpus.examples
    loaded = load_task_of(checkpoints, task, options)
    return loaded.name, loaded.split(split)


def _is_known(record: dict[str, Any]) -> bool:
    return all(size in record for size in _SIZES)


def _trained_on(record: dict[str, Any], name: str, options: TaskOptions) -> Task | None:
    """Return task `name` split as in `record`; None if this gives other training rows."""
    try:
        task = load_task(name, replace(options, **{size: record[size] for size in _SIZES}))
    except UserError:  # fewer rows than in the record, or an error that `load_task` raises again
        return None
    return task if task.train.text_fingerprint == record["train_texts_sha256"] else None


def _require_unseen(folder: Path, record: dict[str, Any], trained: Task, task: Task) -> None:
    leaked = len(set(trained.train.ids).intersection(task.heldout.ids))
    if leaked:
        own = " ".join(argument(size, record[size]) for size in _SIZES)
        raise UserError(
            f"{argument('heldout_size')}, {argument('split_seed')}: wanted held-out rows that "
            f"{folder} was not trained on (the split of {folder} is {own}), found {leaked} of "
            f"{len(task.heldout)} among its training rows"
        )


def _note_unknown_split(folder: Path, record: dict[str, Any], task: Task) -> None:
    """Print a note if `record` does not say which rows of `task` a checkpoint was trained on.

    No note is printed if the hash shows that the training rows of `task` are the same.
    """
    if record["task"] == task.name and record["train_sha256"] != task.train.fingerprint:
        note(
            f"{folder} does not say which rows of {task.name} it was trained on (an earlier "
            "version wrote it): some of its training rows may be held out now, unless "
            f"{argument('train_size')}, {argument('heldout_size')} and {argument('split_seed')} "
            "are those of its fine-tuning"
        )
