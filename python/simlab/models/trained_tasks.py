"""The rows and the length of a fine-tuning, which every later step of the checkpoint keeps.

`simcore finetune` writes into ``evaluation.json`` how it split its task, after the splits of every
earlier fine-tuning of the model. A later step on the same data uses the last of these splits where
no option says otherwise, and refuses options that would hold out rows that the checkpoint was ever
trained on.

A model that reads more or fewer tokens than in its fine-tuning has other layers and another metric,
so a later step cuts texts at the length of the fine-tuning unless an option names another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from simlab.errors import UserError, argument
from simlab.models.checkpoint import Checkpoint
from simlab.store.console import note
from simlab.tasks import ALL, TEST, Examples, Task, TaskOptions, load_corpus, load_task, load_test

DEFAULT_MAX_LENGTH = 64  # of models that simlab did not fine-tune
_SIZES = ("train_size", "heldout_size", "split_seed")
_KEPT = (*_SIZES, "labels")


def split_record(task: Task) -> dict[str, Any]:
    """Return the record of how `task` was split, as ``evaluation.json`` stores it."""
    return {
        "train_size": len(task.train),
        "heldout_size": len(task.heldout),
        "split_seed": task.split_seed,
        "labels": task.labels,
        "train_texts_sha256": task.train.text_fingerprint,
    }


def split_records(source: Checkpoint | None, task: Task) -> list[dict[str, Any]]:
    """Return the `split_record` of every earlier fine-tuning of `source`, and then of `task`.

    `source` is the model that was fine-tuned on `task`; None if its weights were random.
    """
    own = split_record(task)
    earlier = [] if source is None else source.splits
    return [*(record for record in earlier if record != own), own]


def load_task_of(
    checkpoints: Sequence[Checkpoint], task: str | Path | Task, options: TaskOptions | None = None
) -> Task:
    """Load a task for models that may have been trained on some of its rows.

    Sizes, seed and kind of labels that `options` leave open are as for the first model that was
    fine-tuned on the same data; a model that was trained on a held-out row is refused. A task that
    has been loaded already is returned unchanged.
    """
    if isinstance(task, Task):
        if options is not None:
            raise ValueError(f"task_options: wanted None with a loaded task, found {options}")
        return task
    name, options = str(task), options or TaskOptions()
    trained = [
        (checkpoint, record, own)
        for checkpoint in checkpoints
        for record in reversed(checkpoint.splits)
        if (own := _trained_on(record, name, options)) is not None
    ]
    if trained:
        _, first, same = trained[0]
        left_open = {one: first.get(one) for one in _KEPT if getattr(options, one) is None}
        chosen = replace(options, **left_open)
        if any(getattr(chosen, one) != first.get(one) for one in _KEPT):
            same = load_task(name, chosen)
    else:
        same = load_task(name, options)
    for checkpoint, record, own in trained:
        _require_unseen(checkpoint.path, record, own, same)
    return same


def load_examples(
    checkpoints: Sequence[Checkpoint],
    task: str | Path | Task,
    split: str,
    options: TaskOptions | None = None,
    limit: int | None = None,
) -> tuple[str, Examples]:
    """Return the name of a task or corpus, and the examples of a split.

    The split is ``heldout``, ``train``, ``test`` (the rows of a test split, without labels), or
    ``all``: every text in its order. `limit` counts examples from the first.
    """
    if split in (TEST, ALL):
        texts = load_test(task, options) if split == TEST else load_corpus(task, options)
        name, examples = texts.name, texts.examples
    else:
        loaded = load_task_of(checkpoints, task, options)
        name, examples = loaded.name, loaded.split(split)
    return name, examples if limit is None else examples.head(limit)


def chosen_length(checkpoints: Sequence[Checkpoint], given: int | None) -> int:
    """Return the number of tokens to keep per example, for models that may have been fine-tuned.

    The length `given` comes first, then the length of the first model that simlab fine-tuned, and
    then `DEFAULT_MAX_LENGTH`.
    """
    if given is not None:
        return given
    lengths = (checkpoint.length for checkpoint in checkpoints)
    return next((length for length in lengths if length is not None), DEFAULT_MAX_LENGTH)


def length_of(checkpoints: Sequence[Checkpoint], given: int | None) -> int:
    """Return `chosen_length`, and print a note for each model fine-tuned with another length."""
    length = chosen_length(checkpoints, given)
    for checkpoint in dict.fromkeys(checkpoints):
        if checkpoint.length not in (None, length):
            note(
                f"{checkpoint.path} was fine-tuned on texts of at most {checkpoint.length} tokens, "
                f"and reads at most {length} now ({argument('max_length', length)})"
            )
    return length


def _trained_on(record: dict[str, Any], name: str, options: TaskOptions) -> Task | None:
    """Return task `name` split as in `record`; None if this gives other training rows."""
    try:
        task = load_task(name, replace(options, **{one: record.get(one) for one in _KEPT}))
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
