"""Read the texts of a task or file without their labels, as a model is pretrained on them.

The held-out rows of a task stay held out: a model that is pretrained here on a task and fine-tuned
on it afterwards has not read the texts that it is judged on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from simlab.errors import UserError
from simlab.store.files import hash_json
from simlab.tasks import frames
from simlab.tasks.corpus import load_corpus
from simlab.tasks.files import CORPUS_SUFFIXES, FILE_SUFFIXES, read_file
from simlab.tasks.labels import is_unlabelled
from simlab.tasks.load import load_task, refuse_corpus_split
from simlab.tasks.task import Examples, Task, TaskOptions

# Of a file of sentences, which has no split, every so many sentences one is held out.
HELD_OUT_EVERY = 20


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
    if isinstance(name, Task):
        return Texts(name.name, all_texts(name.train), all_texts(name.heldout))
    if str(name).lower().endswith(FILE_SUFFIXES):
        refuse_corpus_split(options or TaskOptions())
        return _table_texts(Path(name).expanduser(), options or TaskOptions())
    if not str(name).lower().endswith(CORPUS_SUFFIXES):
        return load_texts(load_task(name, options))
    if options not in (None, TaskOptions()):
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
