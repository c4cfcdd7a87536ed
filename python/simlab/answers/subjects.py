"""Models, stored layers and texts by name become representation folders with equal rows."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.errors import UserError, argument
from simlab.models.checkpoint import Checkpoint, load_examples
from simlab.models.load import load_tokenizer
from simlab.representations.extract import extract
from simlab.representations.folder import MANIFEST, load_representations
from simlab.representations.kinds import WORD_SOURCES, find_rows
from simlab.representations.passes import ExtractOptions
from simlab.store.console import note
from simlab.tasks import ALL, SPLITS, Examples, Task
from simlab.tasks.files import CORPUS_SUFFIXES, FILE_SUFFIXES
from simlab.tasks.specs import TASKS

if TYPE_CHECKING:
    from simlab.tasks import TaskOptions

Texts = str | Path | Task | Sequence[str]
SAMPLE = "sample.txt"  # sentences of ours
_FILES = (*CORPUS_SUFFIXES, *FILE_SUFFIXES)
_OF_STORED = ("kind", "words", "max_length", "special_tokens")  # stored layers set them for others
_TOKEN, _WORD, _TEXT = "token", "word-mean", "mean"
_REASONS = {
    _TOKEN: "rows are tokens: all models read the same",
    _WORD: "rows are words between spaces: the tokenizers give other tokens",
    _TEXT: "rows are texts: the tokenizers give other tokens, and cut or join other words",
}


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
    texts: Texts | None, checkpoints: Sequence[Checkpoint], options: TaskOptions | None, limit: int
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


@dataclass(frozen=True)
class Subject:
    """A model, or stored layers, with a name in results that no other of the call has."""

    label: str
    model: Checkpoint | None = None
    stored: Path | None = None  # the folder of stored layers


def open_subjects(names: Sequence[str | Path]) -> list[Subject]:
    """Open the models and the stored layers of these names."""
    folders = [Path(name).expanduser() for name in names]
    stored = {
        folder: load_representations(folder).side.label
        for folder in folders
        if (folder / MANIFEST).is_file()
    }
    taken = [stored[folder] for folder in folders if folder in stored]
    if len({*taken}) < len(taken):
        raise UserError(
            f"models: wanted stored layers with different labels, found {', '.join(taken)}; "
            f"{argument('label', of='extract')} names them"
        )
    subjects = []
    for name, folder in zip(names, folders, strict=True):
        if folder in stored:
            subjects.append(Subject(stored[folder], stored=folder))
            continue
        short = [other.name for other in folders]
        plain = folder.name if short.count(folder.name) == 1 else str(name)
        label = next(
            one
            for one in chain([plain], (f"{plain} ({number})" for number in count(2)))
            if one not in taken
        )
        taken.append(label)
        subjects.append(Subject(label, Checkpoint.open(name)))
    return subjects


def rows_of(
    subjects: Sequence[Subject], task: Task, options: ExtractOptions
) -> tuple[ExtractOptions, str]:
    """Return the options with a kind of rows, and the reason in words.

    An `options.kind` that is not empty stays. Stored layers decide otherwise, then the tokenizers.
    """
    stored = [load_representations(one.stored).manifest for one in subjects if one.stored]
    if stored and options.kind in ("", stored[0]["kind"]):
        known = {name: stored[0][name] for name in _OF_STORED if stored[0].get(name) is not None}
        reason = f"rows are as in the layers of {stored[0]['label']}: kind {known['kind']}"
        return dataclasses.replace(options, **known), reason
    if options.kind:
        return options, f"rows are of kind {options.kind}"
    models = [subject.model for subject in subjects if subject.model]
    chosen: dict[str, Any] = {"kind": _TEXT}
    if _give_same_rows(_TOKEN, models, task, options):
        chosen = {"kind": _TOKEN}
    elif _give_same_rows(_WORD, models, task, options):
        chosen = {"kind": _WORD, "words": WORD_SOURCES[1]}
    return dataclasses.replace(options, **chosen), _REASONS[chosen["kind"]]


def _give_same_rows(
    kind: str, models: Sequence[Checkpoint], task: Task, options: ExtractOptions
) -> bool:
    """Return whether the tokenizers of all models give the same rows of a kind."""
    assert options.max_length is not None
    ids = []
    for model in models:
        how = (options.max_length, WORD_SOURCES[1], model.name)
        try:
            ids.append(find_rows(kind, load_tokenizer(model), task.heldout, *how).ids)
        except UserError as error:
            if "characters of two words" not in str(error):
                raise
            return False
    return all(one == ids[0] for one in ids)


def extract_all(
    subjects: Sequence[Subject], task: Task, folder: Path, options: ExtractOptions, overwrite: bool
) -> list[Path]:
    """Return the folder of each subject's layers; those of models are made below `folder`."""
    return [
        one.stored
        or extract(
            one.model or "",
            task,
            folder / file_name(one.label),
            options,
            label=one.label,
            overwrite=overwrite,
        ).path
        for one in subjects
    ]


def file_name(label: str) -> str:
    """Return a label as the name of a file."""
    return re.sub(r"[^A-Za-z0-9.@_]+", "-", label).strip("-.") or "model"
