"""Tasks from data sets of the hub, or from local folders in the format of the hub."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.errors import UserError
from simlab.store.runtime import hub_reachable
from simlab.tasks import frames
from simlab.tasks.files import FILE_SUFFIXES, read_split, split_names
from simlab.tasks.specs import TASKS
from simlab.tasks.task import Task, TaskOptions

if TYPE_CHECKING:
    import pandas as pd

# Usual names of columns in data sets; an option of the user takes precedence.
TEXT_NAMES = ("text", "sentence", "sentence1", "premise", "question", "question1", "content")
PAIR_NAMES = {"sentence1": "sentence2", "premise": "hypothesis", "question1": "question2"}
IMAGE_NAMES = ("image", "img")  # where a data set has no text
LABEL_NAMES = ("label", "labels", "score", "stars")
HELDOUT_SPLITS = ("validation", "validation_matched", "dev", "test")
HUB_PREFIX = "hub:"


def load_hub_task(name: str, options: TaskOptions) -> Task:
    """Load data set ``NAME`` or ``hub:NAME[:CONFIG]``, or a local folder, as a task.

    The first of `HELDOUT_SPLITS` that the data set has is held out. A data set that has only a
    training split is split by a seeded shuffle.

    Raises
    ------
    UserError
        There is no such data set, no connection, or no usable split or column.
    """
    folder = Path(name).expanduser()
    splits = _Folder(folder) if folder.is_dir() else _Downloaded(name)
    if "train" not in splits.names:
        raise UserError(f"task {name}: wanted a split 'train', found {', '.join(splits.names)}")
    train = splits.table("train")
    options = guess_columns(list(train.columns), options)
    class_names = splits.class_names(options.label_column or "label")
    train = _frame(train, name, "train", options, class_names)
    heldout_split = next((split for split in HELDOUT_SPLITS if split in splits.names), None)
    if heldout_split is None:
        train, heldout = frames.split_frame(train, options, f"task {name}")
    else:
        heldout = _frame(splits.table(heldout_split), name, heldout_split, options, class_names)
        train = train.sample(frac=1.0, random_state=options.seed)
        heldout = heldout.sample(frac=1.0, random_state=options.seed)
    if not class_names:
        train, heldout, class_names = _code_labels(train, heldout, name)
    title = folder.name if folder.is_dir() else name.removeprefix(HUB_PREFIX)
    return frames.build_task(title, train, heldout, class_names, options)


def corpus_frame(name: str, options: TaskOptions) -> pd.DataFrame:
    """Return the texts of all splits of a data set, or of a local folder, without labels.

    Raises
    ------
    UserError
        There is no such data set, no connection, or no usable column.
    """
    import pandas as pd

    folder = Path(name).expanduser()
    splits = _Folder(folder) if folder.is_dir() else _Downloaded(name)
    parts = []
    for split in splits.names:
        rows = splits.table(split)
        chosen = guess_columns(list(rows.columns), options)
        where = f"task {name}, {split}"
        parts.append(frames.standard_frame(rows, where, chosen, split, labelled=False))
    if not parts:
        raise UserError(f"task {name}: wanted a split, found none")
    return pd.concat(parts, ignore_index=True)


def guess_columns(found: list[str], options: TaskOptions) -> TaskOptions:
    """Set each column that `options` leave open to the first usual name among `found`."""
    usual = (*TEXT_NAMES, *IMAGE_NAMES)
    text = options.text_column or next((name for name in usual if name in found), None)
    pair = options.pair_column
    usual_pair = PAIR_NAMES.get(text) if text is not None and options.text_column is None else None
    if pair is None and usual_pair is not None and usual_pair in found:
        pair = usual_pair
    label = options.label_column or next((name for name in LABEL_NAMES if name in found), None)
    return replace(options, text_column=text, pair_column=pair, label_column=label)


def table(splits: dict[str, Any], split: str, where: str) -> pd.DataFrame:
    """Return one of the downloaded splits as a table.

    Raises
    ------
    UserError
        The data set has no such split.
    """
    if split not in splits:
        raise UserError(f"{where}: wanted a split {split!r}, found {', '.join(splits)}")
    return splits[split].to_pandas()


def download(name: str, task: str | None = None) -> dict[str, Any]:
    """Load all splits of data set ``NAME`` or ``hub:NAME[:CONFIG]`` from the hub or its cache.

    Parameters
    ----------
    name
        The data set.
    task
        The named task that the data set belongs to, for error messages; None if there is none.

    Raises
    ------
    UserError
        There is no such data set, or no connection.
    """
    import datasets
    from datasets.exceptions import DatasetNotFoundError
    from huggingface_hub import constants

    path, _, config = name.removeprefix(HUB_PREFIX).partition(":")
    if not hub_reachable():  # data sets loaded before are still in the cache
        datasets.config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE = True
    try:
        return dict(datasets.load_dataset(path, config or None))
    except (DatasetNotFoundError, OSError, ValueError, RuntimeError) as error:
        # RuntimeError: the data set is a script, and the library no longer runs scripts.
        wanted = (
            f"the data set {name} of the hub, or its files as {task}:FOLDER"
            if task
            else f"{', '.join(TASKS)}, such a name with a folder of its files (NAME:FOLDER), a "
            f"file ({', '.join(FILE_SUFFIXES)}), a folder or a data set of the hub"
        )
        reason = str(error).strip().partition("\n")[0]
        raise UserError(f"task {task or name}: wanted {wanted}, found: {reason}") from error


class _Downloaded:
    """Splits of a data set of the hub, which may name the classes."""

    def __init__(self, name: str) -> None:
        self._name, self._splits = name, download(name)
        self.names = list(self._splits)

    def table(self, split: str) -> pd.DataFrame:
        return table(self._splits, split, f"task {self._name}")

    def class_names(self, column: str) -> tuple[str, ...]:
        feature = self._splits["train"].features.get(column)
        return tuple(getattr(feature, "names", None) or ())


class _Folder:
    """Splits of a local folder in the format of the hub."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.names = folder, split_names(folder)

    def table(self, split: str) -> pd.DataFrame:
        return read_split(self._folder, split)

    def class_names(self, column: str) -> tuple[str, ...]:
        return ()  # plain files do not name the classes


def _frame(
    rows: pd.DataFrame, name: str, split: str, options: TaskOptions, class_names: Sequence[str]
) -> pd.DataFrame:
    frame = frames.standard_frame(rows, f"task {name}", options, split)
    if class_names and (frame["label"] < 0).any():
        raise UserError(f"task {name}: wanted labels in split {split!r}, found hidden ones")
    return frame


def _code_labels(
    train: pd.DataFrame, heldout: pd.DataFrame, name: str
) -> tuple[pd.DataFrame, pd.DataFrame, tuple[str, ...]]:
    import pandas as pd

    labels, names = frames.encode_labels(
        pd.concat([train["label"], heldout["label"]]), f"task {name}"
    )
    cut = len(train)
    if names and (unknown := sorted({*labels[cut:].tolist()} - {*labels[:cut].tolist()})):
        raise UserError(
            f"task {name}: wanted held-out labels that the training rows have, found "
            f"{', '.join(repr(names[code]) for code in unknown)}"
        )
    return train.assign(label=labels[:cut]), heldout.assign(label=labels[cut:]), names
