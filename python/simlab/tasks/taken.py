"""The line that says what was taken for the labels of a task, and which rows were left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from simlab.errors import argument
from simlab.tasks.labels import NUMBER, SCORES

if TYPE_CHECKING:
    from simlab.tasks.task import Task

_SHOWN = 12  # names of classes in a line


def taken(task: Task, left_out: Mapping[str, int], *, named: bool) -> str:
    """Return a line of what was taken for the labels of `task`, and which rows were left out.

    `left_out` has numbers of rows by the reason. If the labels are known (`named`), the line names
    only classes without rows, and is "" if there are none.
    """
    parts = [] if named else [_described(task)]
    if not (task.is_regression or task.is_multiple_choice):
        for split, examples in (("training", task.train), ("held-out", task.heldout)):
            counts = np.bincount(examples.labels, minlength=len(task.label_names))
            absent = [task.label_names[code] for code in np.flatnonzero(counts == 0)]
            parts += [f"no {split} row of {_enumerated(absent)}"] if absent else []
    dropped = [] if named else [f"{count} {why}" for why, count in left_out.items() if count]
    parts += [f"left out: {', '.join(dropped)}"] if dropped else []
    return f"task {task.name}: {'; '.join(parts)}" if parts else ""


def _described(task: Task) -> str:
    rows = f"{len(task.train)} training and {len(task.heldout)} held-out rows"
    if task.is_regression:
        every = np.concatenate([task.train.labels, task.heldout.labels])
        return f"scores from {every.min():g} to {every.max():g} in {rows}"
    names = task.label_names
    numbers = len(names) > 2 and all(map(NUMBER.fullmatch, names)) and task.labels is None
    other = f" ({argument('labels', SCORES)} takes the numbers as scores)" if numbers else ""
    return f"{len(names)} classes ({_enumerated(names)}) in {rows}{other}"


def _enumerated(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
