"""Tasks: texts, labels, a split into training and held-out rows, metrics.

`simlab.load_task` loads a task by one of these names:

* a named task of the table in `specs`, from its package (``rt``, ``imdb``, ``stsb``, ``quartz``) or
  from the hub;
* ``NAME:FOLDER``, a named task whose files lie in a local folder in the format of the hub;
* a local csv, tsv, json, jsonl or parquet file with named columns;
* ``digits`` (scikit-learn's), or ``images:FOLDER``, a folder of images for each class;
* a data set of the hub, ``NAME`` or ``hub:NAME[:CONFIG][@REVISION]``, or a folder in its format.

Held-out rows are drawn before training rows, so the number of training rows never changes the
held-out rows. A training row whose text is also held out (up to case and spaces) is dropped.

* `task`: the classes of a loaded task, its examples and its options; the metrics, by name.
* `load`: loading a task by its name, and the splits of its data, from one of these places:
* `files`, `hub`: local files of tables, sentences and pictures, and their usual columns; one
  revision of a data set of the hub.
* `corpus`: texts without labels: all of a file or data set, test splits, and for pretraining.
* `specs`: the table of named tasks: columns, labels, metrics, splits; texts that published rows
  keep in several columns; the packages that have data.
* `labels`: whether labels are classes or scores, and the order of classes.
* `frames`: checking tables, splitting rows, and the line of what was taken for the labels.
"""

from simlab.tasks.corpus import Corpus, load_corpus, load_test
from simlab.tasks.labels import encode_labels
from simlab.tasks.load import load_task, task_name
from simlab.tasks.specs import TASKS, TaskSpec
from simlab.tasks.task import ALL, SPLITS, TEST, Examples, Task, TaskOptions

__all__ = [
    "ALL",
    "SPLITS",
    "TASKS",
    "TEST",
    "Corpus",
    "Examples",
    "Task",
    "TaskOptions",
    "TaskSpec",
    "encode_labels",
    "load_corpus",
    "load_task",
    "load_test",
    "task_name",
]
