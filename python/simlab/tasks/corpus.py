"""Read texts without labels: a corpus, all texts of a file or data set; a test split; or `Texts`.

Repeated texts are kept, because a corpus is what its words are counted in; a task drops them, so
that no text is both trained on and held out. The held-out rows of a task stay held out in `Texts`,
on which a model is pretrained: one that is fine-tuned on the task afterwards has not read the texts
that it is judged on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from simlab.errors import UserError, argument
from simlab.store.files import hash_json
from simlab.tasks import frames
from simlab.tasks.files import CORPUS_SUFFIXES, FILE_SUFFIXES, is_images, read_file
from simlab.tasks.labels import is_unlabelled
from simlab.tasks.load import (
    guess_columns,
    load_task,
    open_tables,
    read_image_tables,
    refuse_columns_of,
    refuse_corpus_split,
    task_name,
)
from simlab.tasks.specs import TASKS
from simlab.tasks.task import ALL, TEST, Examples, Task, TaskOptions

if TYPE_CHECKING:
    import pandas as pd


# Of a file of sentences, which has no split, every so many sentences one is held out.
HELD_OUT_EVERY = 20
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

    `name` is as for `load_task`, or a ``.txt`` file with a sentence on each line, or a ``.conllu``
    file. The splits of a data set follow each other, unless `options` name one.
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
    if options.corpus_split is not None and (one_file or is_images(name)):
        raise UserError(
            f"{argument('corpus_split', options.corpus_split)}: wanted a data set with splits, "
            f"found {name}, which has none"
        )
    if is_images(name):
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
        refuse_columns_of(spec, options)
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
        rows, place = tables.table(split, options.texts), f"{where}, {split}"
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

    Rows whose text is in the training or the held-out split are left out; the sizes of these splits
    are not read.
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
    refuse_columns_of(spec, options or TaskOptions())
    tables, where = open_tables(str(name)), f"task {spec.name}"
    test, *others = (
        frames.spec_frame(tables[split], spec, f"{where}, {split}", split, labelled=False)
        for split in (spec.test, spec.train, spec.heldout)
    )
    unseen = frames.without_texts(test, *others)
    if unseen.empty:
        raise UserError(f"{where}: wanted texts in split {spec.test!r} alone, found none")
    return Corpus(spec.name, frames.examples_of(unseen))


@dataclass(frozen=True)
class Texts:
    """The texts of a task or file: those to train on, and those that are held out."""

    name: str
    train: tuple[str, ...]
    heldout: tuple[str, ...]

    @cached_property
    def fingerprint(self) -> str:
        """Return the SHA-256 of all texts and of their split."""
        return hash_json([self.train, self.heldout])


def load_texts(name: str | Path | Task, options: TaskOptions | None = None) -> Texts:
    """Read the texts of a task, or of a file of sentences (``.txt``, ``.conllu``).

    `name` is as for `load_task`, or a file of sentences, or a loaded task. A table needs no labels,
    and none are read; a file of sentences takes no options.
    """
    options = options or TaskOptions()
    if not isinstance(name, Task) and str(name).lower().endswith(FILE_SUFFIXES):
        refuse_corpus_split(options)
        return _table_texts(Path(name).expanduser(), options)
    if isinstance(name, Task) or not str(name).lower().endswith(CORPUS_SUFFIXES):
        task = name if isinstance(name, Task) else load_task(name, options)
        return Texts(task.name, all_texts(task.train), all_texts(task.heldout))
    if options != TaskOptions():
        raise UserError(
            f"task {name}: wanted no columns and no sizes for a file of sentences, found {options}"
        )
    corpus = load_corpus(name)
    sentences = all_texts(corpus.examples)
    if len(sentences) < 2:
        raise UserError(f"task {name}: wanted at least 2 sentences, found {len(sentences)}")
    every = min(HELD_OUT_EVERY, len(sentences))
    train = tuple(text for i, text in enumerate(sentences, 1) if i % every)
    return Texts(corpus.name, train, sentences[every - 1 :: every])


def _table_texts(path: Path, options: TaskOptions) -> Texts:
    """Read the texts of a table, split as `load_task` splits it, whose rows have a label."""
    table, label = read_file(path, options.texts), options.label_column or "label"
    frame = frames.standard_frame(table, str(path), options, labelled=False)
    if label in table.columns:
        frame = frame[~is_unlabelled(table[label], options.labels)]
    train, heldout = frames.split_frame(frame, options, str(path))
    train = frames.without_heldout(path.stem, train, heldout)
    splits = frames.sized_examples(path.stem, train, heldout, options)
    return Texts(path.stem, *map(all_texts, splits))


def all_texts(examples: Examples) -> tuple[str, ...]:
    """Return every text of the examples: first texts, second texts, and answers."""
    answers = [answer for choices in examples.choices or () for answer in choices]
    return (*examples.texts, *(examples.pairs or ()), *answers)
