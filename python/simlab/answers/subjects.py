"""Names of models and of stored layers become representation folders with equal rows."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any

from simlab.errors import UserError, argument
from simlab.models.checkpoint import Checkpoint
from simlab.models.load import load_tokenizer
from simlab.representations.extract import extract
from simlab.representations.folder import MANIFEST, load_representations
from simlab.representations.kinds import find_rows
from simlab.representations.options import ExtractOptions
from simlab.representations.words import WORD_SOURCES
from simlab.tasks import Task

_OF_STORED = ("kind", "words", "max_length", "special_tokens")  # stored layers set them for others
_TOKEN, _WORD, _TEXT = "token", "word-mean", "mean"
_REASONS = {
    _TOKEN: "rows are tokens: all models read the same",
    _WORD: "rows are words between spaces: the tokenizers give other tokens",
    _TEXT: "rows are texts: the tokenizers give other tokens, and cut or join other words",
}


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
