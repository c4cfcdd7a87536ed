"""The table of named tasks: columns, labels, metrics and splits of each task, in ``tasks.toml``.

The file of this name in the folder ``$SIMCORE_TABLES`` adds tasks. Columns, label values and split
names are as in the published data sets on the hub. If a package has the same data (`offline`), the
package is read and nothing is downloaded from the hub.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simlab.errors import UserError
from simlab.papers.presets import user_tables

# The branch in which the hub keeps a copy of every data set in parquet.
COPIES = "refs/convert/parquet"
_VALIDATION = "validation"
SINGLE, PAIR, CHOICE = "single", "pair", "multiple choice"


@dataclass(frozen=True)
class TaskSpec:
    """A named task.

    Attributes
    ----------
    name, title
        The name for commands, and the name in the literature.
    text
        Column of the text.
    labels
        Names of the classes in the order of their codes, or of the choices; empty for regression.
    hub
        ``NAME``, ``NAME:CONFIG`` or ``NAME:CONFIG@REVISION`` on the hub.
    metrics
        Names in `METRICS`, the main metric first.
    pair
        Column of the second text.
    choices
        Columns of the answers, or the one column that has a list of all answers.
    before_choice
        Column whose text precedes every answer.
    label
        Column of the label, which holds the code or the name of a class, or a number.
    train, heldout
        Names of the splits.
    heldout_shuffled
        Whether the held-out rows are shuffled; if False, they keep their order.
    offline
        Reader of the package that has the data (a key of `simlab.tasks.offline.READERS`).
    encoding
        Function that makes columns of texts from columns of the rows (a key of
        `simlab.tasks.encodings.ENCODINGS`); None reads the columns as they are.
    train_size, heldout_size
        Default numbers of rows; None is all rows (or a fifth, of data without a split).
    """

    name: str
    title: str
    text: str
    labels: tuple[str, ...]
    hub: str
    metrics: tuple[str, ...] = ("accuracy",)
    pair: str | None = None
    choices: tuple[str, ...] = ()
    before_choice: str | None = None
    label: str = "label"
    train: str = "train"
    heldout: str = "validation"
    heldout_shuffled: bool = True
    offline: str | None = None
    encoding: str | None = None
    train_size: int | None = None
    heldout_size: int | None = None

    @property
    def kind(self) -> str:
        """Return ``single``, ``pair`` or ``multiple choice``."""
        if self.choices:
            return CHOICE
        return PAIR if self.pair else SINGLE

    @property
    def test(self) -> str | None:
        """Return the name of the test split, whose labels are mostly hidden; None if it has none.

        A task whose test split is held out has no other one.
        """
        if not self.heldout.startswith(_VALIDATION):
            return None
        return self.heldout.replace(_VALIDATION, "test", 1)

    @property
    def is_regression(self) -> bool:
        """Return whether the label is a number and not a class."""
        return not self.labels

    @property
    def columns(self) -> tuple[str, ...]:
        """Return all columns that are read, the label last."""
        texts = (self.text, self.pair, self.before_choice, *self.choices, self.label)
        return tuple(column for column in texts if column)


def _read(file: Path) -> dict[str, TaskSpec]:
    """Read a table of tasks by name; its keys are the fields of `TaskSpec`."""
    specs = {}
    try:
        for name, row in tomllib.loads(file.read_text(encoding="utf-8")).items():
            fields: dict[str, Any] = {
                key: tuple(value) if isinstance(value, list) else value
                for key, value in row.items()
            }
            specs[name] = TaskSpec(name, **fields)
    except (AttributeError, TypeError, ValueError) as error:
        raise UserError(f"{file}: wanted a table of tasks, found: {error}") from error
    return specs


# SuperGLUE's ReCoRD, which is no task here.
RECORD, RECORD_DATA = "record", "aps/super_glue:record"
TASKS = _read(Path(__file__).with_name("tasks.toml"))
for _file in user_tables():
    if _file.name == "tasks.toml":
        TASKS |= _read(_file)
