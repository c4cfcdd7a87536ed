"""Tasks: which texts, which labels, which split, which metric; `simlab.load_task` gives one.

A task is one of

* a named one of the table in `specs`, from its package (``rt``, ``imdb``, ``stsb``, ``quartz``) or
  the hub;
* ``NAME:FOLDER``, a named one whose files lie in a local folder in the hub's format;
* a local csv, tsv, json, jsonl or parquet file with named columns;
* a data set of the hub, ``NAME`` or ``hub:NAME[:CONFIG]``, or a folder in the hub's format.

Held-out rows are drawn before training rows, so a different training size never changes them;
a training row whose text is also held out (up to case and spaces) is dropped.

* `task`: what a loaded task is: examples, label names, metrics, options.
* `load`: from a name to a task.
* `specs`: the table of named tasks: columns, labels, metrics, splits.
* `metrics`: the metrics, by name.
* `frames`: from a table of columns to examples, and how rows are split.
* `files`, `hub`, `offline`: tables from local files, from the hub, from the packages of assets.
* `splits`: the split that a checkpoint was trained on, taken up by later steps.
"""

from simlab.tasks.frames import encode_labels
from simlab.tasks.load import load_task
from simlab.tasks.specs import TASKS, TaskSpec
from simlab.tasks.task import SPLITS, Examples, Task, TaskOptions

__all__ = [
    "SPLITS",
    "TASKS",
    "Examples",
    "Task",
    "TaskOptions",
    "TaskSpec",
    "encode_labels",
    "load_task",
]
