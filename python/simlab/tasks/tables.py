"""The splits of named tasks and data sets, from packages, folders or the hub."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from simlab.errors import UserError
from simlab.tasks import hub
from simlab.tasks.files import FILE_SUFFIXES, open_folder, read_split
from simlab.tasks.offline import READERS
from simlab.tasks.specs import TASKS, TaskSpec
from simlab.tasks.task import TaskOptions

if TYPE_CHECKING:
    import pandas as pd

Written: TypeAlias = Sequence[str | None]  # names of columns, None for one that is not there


@dataclass(frozen=True)
class Tables:
    """The splits of a data set, each of which is read when it is asked for."""

    where: str  # for messages
    names: Sequence[str]
    read: Callable[[str, Written], pd.DataFrame]
    class_names: Callable[[str], tuple[str, ...]] = lambda _: ()  # of a column, where it has them

    def __getitem__(self, split: str) -> pd.DataFrame:
        return self.table(split)

    def table(self, split: str, written: Written = ()) -> pd.DataFrame:
        """Return a split; in columns `written` of plain files, "01" is another class than 1."""
        if split not in self.names:
            found = ", ".join(self.names) or "none"
            raise UserError(f"{self.where}: wanted a split {split!r}, found {found}")
        return self.read(split, written)


def spec_of(name: str, options: TaskOptions) -> TaskSpec | None:
    """Return the named task that a name means: by its own name, or by its data set on the hub.

    A data set whose columns or labels `options` name is no named task, and neither is a folder.
    """
    known = name.partition(":")[0]
    if known in TASKS:
        return TASKS[known]
    named = options.text_column or options.pair_column or options.label_column or options.labels
    if named or Path(name).expanduser().is_dir():
        return None
    task_of = {replace(hub.HubData.of_task(task), revision=None): task for task in TASKS}
    task = task_of.get(replace(hub.HubData.parse(name), revision=None))
    return None if task is None else TASKS[task]


def open_tables(name: str) -> Tables:
    """Open a named task, ``NAME:FOLDER``, a data set of the hub or a folder in its format."""
    known, _, folder = name.partition(":")
    spec = TASKS.get(known)
    if spec is not None and spec.offline and not folder:
        tables = READERS[spec.offline]()
        return Tables(f"task {known}", [*tables], lambda split, _: tables[split])
    place = Path(folder if spec is not None else name).expanduser()
    if (folder or spec is None) and place.is_dir():
        texts = () if spec is None else (spec.text, spec.pair, spec.before_choice, *spec.choices)
        config = "" if spec is None else hub.HubData.parse(spec.hub).config or ""
        splits = open_folder(place, config)
        return Tables(
            str(place),
            sorted(splits),
            lambda split, written: read_split(splits[split], place / split, (*texts, *written)),
        )
    if spec is not None and folder:
        raise UserError(f"task {known}: wanted a folder of its files, found no folder {place}")
    if spec is None and place.is_file():
        raise UserError(
            f"task {name}: wanted a file that ends in {', '.join(FILE_SUFFIXES)}, found another"
        )
    loaded = hub.download(name) if spec is None else hub.download(spec.hub, known)
    return Tables(
        f"task {name}",
        [*loaded],
        lambda split, _: loaded[split].to_pandas(),
        lambda column: tuple(getattr(loaded["train"].features.get(column), "names", None) or ()),
    )
