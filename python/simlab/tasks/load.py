"""Load a task by its name: from a package, a file, a folder or the hub."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.errors import UserError, argument
from simlab.tasks import frames, hub, images
from simlab.tasks.files import CORPUS_SUFFIXES, FILE_SUFFIXES, read_file, read_split
from simlab.tasks.hub_data import HUB_PREFIX, HubData
from simlab.tasks.labels import CLASSES
from simlab.tasks.offline import READERS
from simlab.tasks.specs import RECORD, RECORD_DATA, TASKS, TaskSpec
from simlab.tasks.task import ALL, Task, TaskOptions

if TYPE_CHECKING:
    import pandas as pd


def refuse_corpus_split(options: TaskOptions) -> None:
    """Raise UserError if a task is to be read by an option of a corpus."""
    if options.corpus_split is not None:
        raise UserError(
            f"{argument('corpus_split', options.corpus_split)}: wanted none without "
            f"{argument('split', ALL)}, because a task has its own training and held-out rows"
        )


def load_task(name: str | Path, options: TaskOptions | None = None) -> Task:
    """Load task `name`, and split its rows into training and held-out examples.

    Parameters
    ----------
    name
        A name that `simcore tasks` prints (``rt``, ``imdb``, ``stsb`` and ``quartz`` are offline),
        ``digits`` (scikit-learn's images), ``images:FOLDER`` for a folder of images for each class,
        ``NAME:FOLDER`` for a folder with the files of that task, a csv, tsv, json, jsonl or parquet
        file, or ``hub:NAME[:CONFIG]``.
    options
        Columns and split.

    Returns
    -------
    Task
        The ``train`` and ``heldout`` examples, the names of the labels and the metrics.

    Raises
    ------
    UserError
        The name, file or column is unknown, texts or labels are empty, the data have fewer rows
        than a size wants or a single class, or the hub does not answer.

    Examples
    --------
    >>> from simlab import TaskOptions, load_task
    >>> task = load_task("rt", TaskOptions(train_size=64, heldout_size=32))
    >>> len(task.train), len(task.heldout), task.label_names
    (64, 32, ('negative', 'positive'))
    """
    name, options = str(name), options or TaskOptions()
    refuse_corpus_split(options)
    known, _, folder = name.partition(":")
    if known in TASKS:
        return _load_named(TASKS[known], folder, options)
    if images.is_images(name):
        return _load_images(name, options)
    if name.lower().endswith(CORPUS_SUFFIXES):
        raise UserError(
            f"task {name}: wanted labels, found a file of sentences, which has none; "
            f"{argument('split', 'all', of='extract')} reads it"
        )
    if name.lower().endswith(FILE_SUFFIXES):
        return _load_file(name, options)
    _refuse_record(name)
    spec = hub.known_task(name, options)
    if spec is not None and not Path(name).expanduser().is_dir():
        splits = hub.download(name)
        where = f"task {name}"
        return _combine(spec, lambda split: hub.table(splits, split, where), where, options)
    return hub.load_hub_task(name, task_name(name, options), options)


def task_name(name: str, options: TaskOptions | None = None) -> str:
    """Return the name that a task or corpus has in results, from the name that loads it.

    Parameters
    ----------
    name, options
        As for `load_task` and `load_corpus`; a data set whose columns `options` name is no named
        task.
    """
    known = name.partition(":")[0]
    if known in TASKS:
        return known
    if images.is_images(name):
        return Path(name.removeprefix(images.FOLDER)).name
    if name.lower().endswith((*CORPUS_SUFFIXES, *FILE_SUFFIXES)):
        return Path(name).stem
    if (folder := Path(name).expanduser()).is_dir():
        return folder.name
    spec = hub.known_task(name, options or TaskOptions())
    return name.removeprefix(HUB_PREFIX) if spec is None else spec.name


def _refuse_record(name: str) -> None:
    """Raise UserError for ReCoRD, whose answers are names out of each text: no head gives them."""
    data = replace(HubData.parse(name), revision=None)
    if data.path == RECORD or data == HubData.parse(RECORD_DATA):
        raise UserError(
            f"task {name}: wanted answers that are classes, numbers or choices, found ReCoRD, "
            "whose answers are names out of each text"
        )


def _load_named(spec: TaskSpec, folder: str, options: TaskOptions) -> Task:
    refuse_columns(spec, options)
    sized = replace(
        options,
        train_size=spec.train_size if options.train_size is None else options.train_size,
        heldout_size=spec.heldout_size if options.heldout_size is None else options.heldout_size,
    )
    if spec.offline and not folder:
        tables = READERS[spec.offline]()
        if "all" in tables:
            return _cut(spec, tables["all"], sized)
        return _combine(spec, tables.__getitem__, f"task {spec.name}", sized)
    where = str(Path(folder).expanduser()) if folder else f"task {spec.name}"
    return _combine(spec, split_reader(spec, folder), where, options)


def refuse_columns(spec: TaskSpec, options: TaskOptions) -> None:
    """Raise UserError if `options` name columns or labels of a task that has its own."""
    for option, given in _columns(options):
        raise UserError(
            f"{argument(option, given)}: wanted a file or data set without a name of its own, "
            f"found task {spec.name}, whose columns are {', '.join(spec.columns)}"
        )


def read_image_tables(name: str, options: TaskOptions) -> dict[str, pd.DataFrame]:
    """Read a task of images, or raise UserError if `options` name columns."""
    for option, given in _columns(options):
        raise UserError(f"{argument(option, given)}: wanted a table, found images ({name})")
    return images.read_images(name)


def _columns(options: TaskOptions) -> list[tuple[str, str]]:
    """Return the columns that `options` name, after their options."""
    given = {
        name: getattr(options, name)
        for name in ("text_column", "pair_column", "label_column", "labels")
    }
    return [(name, column) for name, column in given.items() if column is not None]


def split_reader(spec: TaskSpec, folder: str) -> Callable[[str], pd.DataFrame]:
    """Return the function that reads a split of a named task, from `folder` or from the hub."""
    if not folder:
        splits = hub.download(spec.hub, spec.name)
        return lambda split: hub.table(splits, split, f"task {spec.name}")
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise UserError(f"task {spec.name}: wanted a folder of its files, found no folder {path}")
    config = HubData.parse(spec.hub).config or ""
    texts = (spec.text, spec.pair, spec.before_choice, *spec.choices)
    return lambda split: read_split(path, split, config, texts)


def _combine(
    spec: TaskSpec, read: Callable[[str], pd.DataFrame], where: str, options: TaskOptions
) -> Task:
    """Make a task of data that come with splits."""
    train = frames.spec_frame(read(spec.train), spec, f"{where}, {spec.train}", spec.train)
    heldout = frames.spec_frame(read(spec.heldout), spec, f"{where}, {spec.heldout}", spec.heldout)
    if len(train):
        frames.require_varied(train["label"], f"{where}, {spec.train}: column {spec.label!r}")
    train = frames.shuffled(train, options.seed)
    if spec.heldout_shuffled:
        heldout = frames.shuffled(heldout, options.seed)
    return _named_task(spec, train, heldout, options)


def _cut(spec: TaskSpec, table: pd.DataFrame, options: TaskOptions) -> Task:
    """Make a task of data without splits, by a seeded shuffle."""
    frame = frames.spec_frame(table, spec, f"task {spec.name}", spec.name)
    return _named_task(spec, frame, None, options)


def _named_task(
    spec: TaskSpec, train: pd.DataFrame, heldout: pd.DataFrame | None, options: TaskOptions
) -> Task:
    known: dict[str, Any] = {"label_names": spec.labels, "metrics": spec.metrics}
    return frames.build_task(spec.name, train, heldout, options, named=True, **known)


def _load_images(name: str, options: TaskOptions) -> Task:
    """Make a task of images with or without splits, whose classes are names."""
    tables = read_image_tables(name, options)
    options = replace(options, labels=CLASSES)
    split = next((split for split in hub.HELDOUT_SPLITS if split in tables), None)
    if split is None:
        train, heldout = tables.get("all", tables.get(images.TRAIN)), None
    else:
        train, heldout = (
            frames.shuffled(tables[part], options.seed) for part in (images.TRAIN, split)
        )
    return frames.build_task(
        task_name(name), train, heldout, options, where=f"task {name}", named=name == images.DIGITS
    )


def _load_file(name: str, options: TaskOptions) -> Task:
    path = Path(name).expanduser()
    as_written = (*options.texts, options.label_column or "label")  # "01" is another class than 1
    frame = frames.standard_frame(read_file(path, as_written), str(path), options)
    return frames.build_task(task_name(name), frame, None, options, where=str(path))
