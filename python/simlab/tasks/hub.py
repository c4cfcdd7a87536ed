"""Tasks from data sets of the hub, or from local folders in the format of the hub."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.errors import UserError, argument, did_you_mean, first_line, one_of
from simlab.tasks import frames
from simlab.tasks.columns import guess_columns
from simlab.tasks.files import FILE_SUFFIXES, read_split, split_names
from simlab.tasks.hub_data import HUB_PREFIX, HubData, load_data
from simlab.tasks.specs import COPIES, TASKS, TaskSpec
from simlab.tasks.task import Task, TaskOptions

if TYPE_CHECKING:
    import pandas as pd

HELDOUT_SPLITS = ("validation", "validation_matched", "dev", "test")
_OF_A_SCRIPT = "scripts are no longer supported"  # in the library's message


def load_hub_task(name: str, title: str, options: TaskOptions) -> Task:
    """Load data set ``NAME`` or ``hub:NAME[:CONFIG][@REVISION]``, or a local folder, as a task.

    The task is called `title`. The first of `HELDOUT_SPLITS` that the data set has is held out, and
    a data set that has only a training split is split by a seeded shuffle.
    """
    folder = Path(name).expanduser()
    splits = _Folder(folder) if folder.is_dir() else _Downloaded(name)
    if "train" not in splits.names:
        raise UserError(f"task {name}: wanted a split 'train', found {', '.join(splits.names)}")
    options = guess_columns(splits.table("train"), options, f"task {name}")
    class_names = splits.class_names(options.label_column or "label")
    train = _frame(splits.table("train", options), name, "train", options, class_names)
    heldout_split = next((split for split in HELDOUT_SPLITS if split in splits.names), None)
    heldout = None
    if heldout_split is not None:
        rows = splits.table(heldout_split, options)
        heldout = _frame(rows, name, heldout_split, options, class_names)
        heldout = heldout.sample(frac=1.0, random_state=options.seed)
        train = train.sample(frac=1.0, random_state=options.seed)
    names = class_names or None
    where = f"task {name}"
    return frames.build_task(title, train, heldout, options, where=where, label_names=names)


def known_task(name: str, options: TaskOptions) -> TaskSpec | None:
    """Return the named task that data set ``hub:NAME[:CONFIG][@REVISION]`` belongs to.

    None if it belongs to none, or if `options` name columns or labels.
    """
    if options.text_column or options.pair_column or options.label_column or options.labels:
        return None
    data = replace(HubData.parse(name), revision=None)
    of_task = {replace(HubData.of_task(task), revision=None): spec for task, spec in TASKS.items()}
    return of_task.get(data)


def corpus_frame(name: str, options: TaskOptions) -> pd.DataFrame:
    """Return the texts of a data set, or of a local folder, without labels."""
    import pandas as pd

    folder = Path(name).expanduser()
    splits = _Folder(folder) if folder.is_dir() else _Downloaded(name)
    parts = []
    for split in one_split(splits.names, options, f"task {name}"):
        rows = splits.table(split, options)
        where = f"task {name}, {split}"
        guessed = guess_columns(rows, options, where)
        parts.append(frames.standard_frame(rows, where, guessed, split, labelled=False))
    if not parts:
        raise UserError(f"task {name}: wanted a split, found none")
    return pd.concat(parts, ignore_index=True)


def one_split(names: Sequence[str], options: TaskOptions, where: str) -> list[str]:
    """Return the split that `options` name, or all."""
    wanted = options.corpus_split
    if wanted is not None and wanted not in names:
        found = ", ".join(names) or "none"
        raise UserError(f"{argument('corpus_split', wanted)}: wanted a split of {where}, {found}")
    return [*names] if wanted is None else [wanted]


def table(splits: dict[str, Any], split: str, where: str) -> pd.DataFrame:
    """Return one of the downloaded splits as a table."""
    if split not in splits:
        raise UserError(f"{where}: wanted a split {split!r}, found {', '.join(splits)}")
    return splits[split].to_pandas()


def download(name: str, task: str | None = None) -> dict[str, Any]:
    """Load all splits of data set ``NAME`` or ``hub:NAME[:CONFIG][@REVISION]``.

    `task` is the named task that the data set belongs to, for error messages.
    """
    subject, wanted = f"task {task or name}", f"the data set {name} of the hub"
    if task:
        wanted += f", or its files as {task}:FOLDER"
    elif not name.startswith(HUB_PREFIX):
        meant = did_you_mean(name, TASKS)
        subject += meant
        wanted = (
            f"{one_of(TASKS, meant)}, such a name with a folder of its files (NAME:FOLDER), a "
            f"file ({', '.join(FILE_SUFFIXES)}), a folder or a data set of the hub"
        )
    try:
        return load_data(HubData.parse(name), subject, wanted)
    except (OSError, ValueError, RuntimeError) as error:
        # RuntimeError: the data set is a script, and the library no longer runs scripts.
        reason = first_line(error)
        if _OF_A_SCRIPT in reason:
            copy = replace(HubData.parse(name), revision=COPIES)
            reason += f"; the hub keeps a copy in parquet, such as {copy}"
        raise UserError(f"{subject}: wanted {wanted}, found: {reason}") from error


class _Downloaded:
    """Splits of a data set of the hub, which may name the classes."""

    def __init__(self, name: str) -> None:
        self._name, self._splits = name, download(name)
        self.names = list(self._splits)

    def table(self, split: str, _options: TaskOptions | None = None) -> pd.DataFrame:
        return table(self._splits, split, f"task {self._name}")

    def class_names(self, column: str) -> tuple[str, ...]:
        feature = self._splits["train"].features.get(column)
        return tuple(getattr(feature, "names", None) or ())


class _Folder:
    """Splits of a local folder in the format of the hub."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.names = folder, split_names(folder)

    def table(self, split: str, options: TaskOptions | None = None) -> pd.DataFrame:
        """Return a split; "01" is another class than 1 in the column that `options` name."""
        written = () if options is None else (*options.texts, options.label_column)
        return read_split(self._folder, split, texts=written)

    def class_names(self, column: str) -> tuple[str, ...]:
        return ()  # plain files do not name the classes


def _frame(
    rows: pd.DataFrame, name: str, split: str, options: TaskOptions, class_names: Sequence[str]
) -> pd.DataFrame:
    frame = frames.standard_frame(rows, f"task {name}", options, split)
    if class_names and (frame["label"] < 0).any():
        raise UserError(f"task {name}: wanted labels in split {split!r}, found hidden ones")
    return frame
