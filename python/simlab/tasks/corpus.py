"""Read texts without labels: a corpus, all texts of a file or data set, or a test split.

Repeated texts are kept, because a corpus is what its words are counted in; a task drops them, so
that no text is both trained on and held out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from simlab.errors import UserError, argument
from simlab.tasks import frames, images
from simlab.tasks.columns import guess_columns
from simlab.tasks.files import CORPUS_SUFFIXES, FILE_SUFFIXES, read_file
from simlab.tasks.load import read_image_tables, refuse_columns, task_name
from simlab.tasks.specs import TASKS
from simlab.tasks.tables import open_tables
from simlab.tasks.task import ALL, TEST, Examples, Task, TaskOptions

if TYPE_CHECKING:
    import pandas as pd


# Options of labels and splits, which a corpus has not.
_OF_ROWS = ("label_column", "labels", "train_size", "heldout_size", "split_seed")


def corpus_options(options: TaskOptions) -> TaskOptions:
    """Return the options of a task without those that its texts alone, a corpus, do not take."""
    return replace(options, **dict.fromkeys(_OF_ROWS))


@dataclass(frozen=True)
class Corpus:
    """Texts of a file or data set, and its name in results; the labels are all 0."""

    name: str
    examples: Examples


def load_corpus(name: str | Path | Task, options: TaskOptions | None = None) -> Corpus:
    """Read all texts of a file, of a named task, of a folder or of a data set of the hub.

    Parameters
    ----------
    name
        As for `load_task`, or a ``.txt`` file with a sentence on each line, or a ``.conllu`` file.
        The splits of a data set follow each other, unless `options` name one.
    options
        Columns of the texts, and the split.

    Raises
    ------
    UserError
        The name, file, split or column is unknown, there are no texts, a task was loaded before, or
        there are options for labels or a split.
    """
    import pandas as pd

    if isinstance(name, Task):
        raise UserError(
            f"{argument('split', ALL)}: wanted the name of a task or file, found task {name.name}, "
            "which is split already"
        )
    name, options = str(name), options or TaskOptions()
    for option in _OF_ROWS:
        if getattr(options, option) is not None:
            raise UserError(
                f"{argument(option)}: wanted none with {argument('split', ALL)}, which reads no "
                f"labels and takes all rows, found {getattr(options, option)}"
            )
    one_file = name.lower().endswith((*CORPUS_SUFFIXES, *FILE_SUFFIXES))
    if options.corpus_split is not None and (one_file or images.is_images(name)):
        raise UserError(
            f"{argument('corpus_split', options.corpus_split)}: wanted a data set with splits, "
            f"found {name}, which has none"
        )
    if images.is_images(name):
        frame = pd.concat(read_image_tables(name, options).values(), ignore_index=True)
        frame = frame.assign(label=0)
    elif one_file and name.partition(":")[0] not in TASKS:
        path = Path(name).expanduser()
        rows = read_file(path, options.texts)
        frame = frames.standard_frame(rows, str(path), options, labelled=False)
    else:
        frame = _all_splits(name, options)
    return Corpus(task_name(name, options), frames.examples_of(frame))


def _all_splits(name: str, options: TaskOptions) -> pd.DataFrame:
    """Return the texts of all splits of a named task or data set, or of the one in `options`."""
    import pandas as pd

    spec = TASKS.get(name.partition(":")[0])
    if spec is not None:
        refuse_columns(spec, options)
    tables, where = open_tables(name), f"task {name if spec is None else spec.name}"
    splits = list(tables.names)
    if spec is not None and ALL not in splits:
        splits = [spec.train, spec.heldout]
    wanted = options.corpus_split
    if wanted is not None and wanted not in splits:
        found = ", ".join(splits) or "none"
        raise UserError(f"{argument('corpus_split', wanted)}: wanted a split of {where}, {found}")
    parts = []
    for split in splits if wanted is None else [wanted]:
        rows, place = tables[split], f"{where}, {split}"
        if spec is not None:
            parts.append(frames.spec_frame(rows, spec, place, split))
        else:
            guessed = guess_columns(rows, options, place)
            parts.append(frames.standard_frame(rows, place, guessed, split, labelled=False))
    if not parts:
        raise UserError(f"{where}: wanted a split, found none")
    return pd.concat(parts, ignore_index=True)


def load_test(name: str | Path | Task, options: TaskOptions | None = None) -> Corpus:
    """Read the test split of a named task without its labels, which are mostly hidden.

    Rows whose text is in the training or the held-out split are left out.

    Parameters
    ----------
    name
        A named task, or ``NAME:FOLDER``.
    options
        As for `load_task`; the sizes of the other splits are not read here.

    Raises
    ------
    UserError
        The task has no test split beside the held-out rows, or has no name of its own.
    """
    known, _, folder = str(name).partition(":")
    spec = None if isinstance(name, Task) else TASKS.get(known)
    offline = spec is not None and spec.offline is not None and not folder
    if spec is None or spec.test is None or offline:
        named = ", ".join(task for task, one in TASKS.items() if one.test and not one.offline)
        found = name.name if isinstance(name, Task) else name
        raise UserError(
            f"{argument('split', TEST)}: wanted a task with a test split of its own ({named}), "
            f"found {found}"
        )
    refuse_columns(spec, options or TaskOptions())
    tables, where = open_tables(str(name)), f"task {spec.name}"
    test, *others = (
        frames.spec_frame(tables[split], spec, f"{where}, {split}", split, labelled=False)
        for split in (spec.test, spec.train, spec.heldout)
    )
    unseen = frames.without_texts(test, *others)
    if unseen.empty:
        raise UserError(f"{where}: wanted texts in split {spec.test!r} alone, found none")
    return Corpus(spec.name, frames.examples_of(unseen))
