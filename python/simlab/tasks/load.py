"""Load a task by its name, from a package, a file, a folder or the hub."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from simlab.errors import UserError, argument
from simlab.store.console import note_once
from simlab.tasks import frames, hub
from simlab.tasks.files import (
    CORPUS_SUFFIXES,
    DIGITS,
    FILE_SUFFIXES,
    IMAGES,
    PAIR_NAMES,
    TEXT_NAMES,
    TRAIN,
    is_images,
    open_folder,
    read_file,
    read_images,
    read_split,
)
from simlab.tasks.hub import HUB_PREFIX, HubData
from simlab.tasks.labels import CLASSES
from simlab.tasks.specs import READERS, TASKS, TaskSpec
from simlab.tasks.task import ALL, Task, TaskOptions

if TYPE_CHECKING:
    import pandas as pd

Written: TypeAlias = Sequence[str | None]  # names of columns, None for one that is not there
IMAGE_NAMES = ("image", "img")  # where a data set has no text
LABEL_NAMES = ("label", "labels", "score", "stars")
HELDOUT_SPLITS = ("validation", "validation_matched", "dev", "test")


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
    if is_images(name):
        return _load_images(name, options)
    if name.partition(":")[0] not in TASKS:
        if name.lower().endswith(CORPUS_SUFFIXES):
            if not Path(name).expanduser().is_file():
                raise UserError(f"task {name}: wanted a file of texts, found no such file")
            raise UserError(
                f"task {name}: wanted labels, found a file of sentences, which has none; "
                f"{argument('split', 'all', of='extract')} reads it, and so does "
                f"{argument('split', 'all', of='influence')}"
            )
        if name.lower().endswith(FILE_SUFFIXES):
            path = Path(name).expanduser()
            # "01" is another class than 1
            as_written = (*options.texts, options.label_column or "label")
            frame = frames.standard_frame(read_file(path, as_written), str(path), options)
            return frames.build_task(path.stem, frame, None, options, where=str(path))
    spec = spec_of(name, options)
    if spec is not None:
        return _load_named(spec, name, options)
    return _load_tables(name, open_tables(name), options)


def task_name(name: str, options: TaskOptions | None = None) -> str:
    """Return the name that a task or corpus has in results, from the name that loads it."""
    if (spec := spec_of(name, options or TaskOptions())) is not None:
        return spec.name
    if name.lower().endswith((*CORPUS_SUFFIXES, *FILE_SUFFIXES)):
        return Path(name).stem
    folder = Path(name.removeprefix(IMAGES)).expanduser()
    if is_images(name) or folder.is_dir():
        return folder.name
    return name.removeprefix(HUB_PREFIX)


def _load_named(spec: TaskSpec, name: str, options: TaskOptions) -> Task:
    refuse_columns_of(spec, options)
    tables = open_tables(name)
    where = tables.where
    offline = name == spec.name and spec.offline is not None
    if offline:  # packages have more rows than most runs need
        sizes = {n: getattr(options, n) or getattr(spec, n) for n in ("train_size", "heldout_size")}
        options = replace(options, **sizes)
    heldout = None
    if offline and ALL in tables.names:  # data without a split
        train = frames.spec_frame(tables[ALL], spec, where, spec.name)
    else:
        train, heldout = (
            frames.spec_frame(tables[split], spec, f"{where}, {split}", split)
            for split in (spec.train, spec.heldout)
        )
        if len(train):
            frames.require_varied(train["label"], f"{where}, {spec.train}: column {spec.label!r}")
        train = frames.shuffled(train, options.seed)
        if spec.heldout_shuffled:
            heldout = frames.shuffled(heldout, options.seed)
    known: dict[str, Any] = {"label_names": spec.labels, "metrics": spec.metrics}
    return frames.build_task(spec.name, train, heldout, options, named=True, **known)


def _load_tables(name: str, tables: Tables, options: TaskOptions) -> Task:
    """Make a task of a data set without a name of its own.

    The first of `HELDOUT_SPLITS` that it has is held out; if it has none, the training split is
    split by a seeded shuffle.
    """
    where = f"task {name}"
    options = guess_columns(tables["train"], options, where)
    class_names = tables.class_names(options.label_column or "label")

    def frame(split: str) -> pd.DataFrame:
        rows = tables.table(split, (*options.texts, options.label_column))
        picked = frames.standard_frame(rows, where, options, split)
        if class_names and (picked["label"] < 0).any():
            raise UserError(f"{where}: wanted labels in split {split!r}, found hidden ones")
        return picked

    train, heldout = frame("train"), None
    split = next((split for split in HELDOUT_SPLITS if split in tables.names), None)
    if split is not None:
        train, heldout = (
            part.sample(frac=1.0, random_state=options.seed) for part in (train, frame(split))
        )
    title = task_name(name, options)
    return frames.build_task(
        title, train, heldout, options, where=where, label_names=class_names or None
    )


def guess_columns(rows: pd.DataFrame, options: TaskOptions, where: str) -> TaskOptions:
    """Set each column that `options` leave open to the first usual name that `rows` have.

    Half of a usual pair is no usual name: what the task is about may stand in another column. If
    `options` do not name the text, a note names the columns that are not read.
    """
    text, pair = options.text_column, options.pair_column
    label = options.label_column or next((name for name in LABEL_NAMES if name in rows), None)
    if text is None:
        usual = [name for name in (*TEXT_NAMES, *IMAGE_NAMES) if name in rows]
        text = next((name for name in usual if PAIR_NAMES.get(name, name) in rows), None)
        pair = pair or PAIR_NAMES.get(text or "")
        left = [repr(name) for name in rows.columns if name not in (text, pair, label)]
        if text is not None and left:
            note_once(f"{where}: columns that are not read: {', '.join(left)}")
    return replace(options, text_column=text, pair_column=pair, label_column=label)


def refuse_columns(options: TaskOptions, wanted: str, has: str) -> None:
    """Raise UserError if `options` name columns or labels of a task that has its own."""
    for option in ("text_column", "pair_column", "label_column", "labels"):
        if (value := getattr(options, option)) is not None:
            raise UserError(f"{argument(option, value)}: wanted {wanted}, found {has}")


def refuse_columns_of(spec: TaskSpec, options: TaskOptions) -> None:
    """Raise UserError if `options` name columns or labels of a named task."""
    has = f"task {spec.name}, whose columns are {', '.join(spec.columns)}"
    refuse_columns(options, "a file or data set without a name of its own", has)


def read_image_tables(name: str, options: TaskOptions) -> dict[str, pd.DataFrame]:
    """Read a task of images, or raise UserError if `options` name columns."""
    refuse_columns(options, "a table", f"images ({name})")
    return read_images(name)


def _load_images(name: str, options: TaskOptions) -> Task:
    """Make a task of images with or without splits, whose classes are names."""
    tables = read_image_tables(name, options)
    options = replace(options, labels=CLASSES)
    split = next((split for split in HELDOUT_SPLITS if split in tables), None)
    if split is None:
        train, heldout = tables.get("all", tables.get(TRAIN)), None
    else:
        train, heldout = (frames.shuffled(tables[part], options.seed) for part in (TRAIN, split))
    return frames.build_task(
        task_name(name), train, heldout, options, where=f"task {name}", named=name == DIGITS
    )


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
    task_of = {replace(HubData.of_task(task), revision=None): task for task in TASKS}
    task = task_of.get(replace(HubData.parse(name), revision=None))
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
        config = "" if spec is None else HubData.parse(spec.hub).config or ""
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
