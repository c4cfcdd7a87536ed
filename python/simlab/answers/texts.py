"""The texts that models read: a file, a task, texts of Python, or a sample that ships."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.errors import UserError
from simlab.models.checkpoint import Checkpoint, load_examples
from simlab.store.console import note
from simlab.tasks import ALL, SPLITS, Examples, Task
from simlab.tasks.files import CORPUS_SUFFIXES, FILE_SUFFIXES
from simlab.tasks.specs import TASKS

if TYPE_CHECKING:
    from simlab.tasks import TaskOptions

Texts = str | Path | Task | Sequence[str]
SAMPLE = "sample.txt"  # sentences of ours
_FILES = (*CORPUS_SUFFIXES, *FILE_SUFFIXES)


def split_words(words: Sequence[Any], texts: Texts | None) -> tuple[list[Any], Texts | None]:
    """Return models and texts, of which the texts may stand behind the models."""
    if texts is None and words and _names_texts(words[-1]):
        return list(words[:-1]), words[-1]
    return list(words), texts


def _names_texts(word: object) -> bool:
    """Return whether a word behind the names of models names texts: a task, a file or a list."""
    if not isinstance(word, str | Path):
        return isinstance(word, Task | Sequence)
    return str(word).partition(":")[0] in TASKS or str(word).lower().endswith(_FILES)


def read_texts(
    texts: Texts | None,
    checkpoints: Sequence[Checkpoint],
    options: TaskOptions | None,
    limit: int,
) -> Task:
    """Return the first `limit` texts as the held-out examples of a task.

    Of a named task these are held-out texts, which no checkpoint was trained on; of a file all.
    """
    if texts is None:
        sample = resources.files("simlab.answers") / SAMPLE
        with resources.as_file(sample) as path:
            name, examples = load_examples([], path, ALL)
        note(f"no texts are named: the models read {len(examples)} sentences that ship ({SAMPLE})")
    elif not isinstance(texts, str | Path | Task):
        name, examples = "texts", _of_python(texts)
    else:
        is_file = not isinstance(texts, Task) and str(texts).lower().endswith(_FILES)
        if is_file and not Path(str(texts)).expanduser().is_file():
            raise UserError(f"{texts}: wanted a file of texts, found no such file")
        split = ALL if is_file else SPLITS[0]
        name, examples = load_examples(checkpoints, texts, split, options)
    if len(examples) > limit:
        note(f"the models read the first {limit:,} of {len(examples):,} texts of {name}")
        examples = examples.head(limit)
    return Task(name, examples, examples)


def _of_python(texts: Sequence[str]) -> Examples:
    wrong = next((text for text in texts if not isinstance(text, str)), None)
    if wrong is not None or not len(texts):
        found = "none" if wrong is None else type(wrong).__name__
        raise UserError(f"texts: wanted texts, the name of a task or a file, found {found}")
    ids = tuple(f"text-{number}" for number in range(len(texts)))
    return Examples(ids, tuple(texts), None, np.zeros(len(texts), np.int64))
