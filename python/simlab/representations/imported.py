"""Representations that other programs made: arrays in files become a representation folder.

Files have one of these layouts (`layouts`), in the formats of `array_files`:

* layers ``[n, p]``, or all layers in one array ``[L, n, p]``, in one file or several;
* one array ``[layers, words, p]`` a sentence, named ``0``, ``1``, ... in one file, as AllenNLP
  writes ELMo and as Wu et al. 2020 keep all their models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from simlab.bounds import Count, bounded
from simlab.errors import UserError, argument, require_known
from simlab.models.checkpoint import load_examples
from simlab.representations.folder import DTYPES, LayerWriter
from simlab.representations.kinds import ATTENTION, KINDS
from simlab.representations.layouts import Layers, Sentences, opened
from simlab.store.console import progress
from simlab.store.files import as_paths, hash_file, hash_json
from simlab.store.jobs import Outcome, run_job
from simlab.store.results import Side

if TYPE_CHECKING:
    from simlab.tasks import Examples, Task, TaskOptions

IMPORTED = "imported"  # the kind of rows of which nothing else is known


@bounded
def import_representations(
    files: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    label: str,
    seed: int | None = None,
    kind: str = IMPORTED,
    layers: Sequence[str] = (),
    ids: str | Path | None = None,
    groups: str | Path | None = None,
    task: str | Path | Task | None = None,
    split: str = "heldout",
    limit: Count | None = None,
    dtype: str = DTYPES[0],
    task_options: TaskOptions | None = None,
    overwrite: bool = False,
) -> Outcome:
    """Make a representation folder of arrays that another program wrote.

    Parameters
    ----------
    files
        Files of npy, npz, safetensors, HDF5 (``.h5``, ``.hdf5``) or torch (``.pt``, ``.pth``):
        layers ``[n, p]`` or ``[L, n, p]``, several files one after the other; or one file with an
        array ``[layers, words, p]`` for each sentence, named ``0``, ``1``, and so on.
    out
        The representation folder to make.
    label
        Name of the model in results and figures.
    seed
        Seed of the training, to store.
    kind
        Kind of rows, as in `simcore extract`, such as ``mean`` or ``word-last``.
    layers
        Arrays to take as layers, by name, in this order; default: all, in the order of the file, or
        of the numbers in their names.
    ids
        A text file with the id of a row on each line. Default: the array ``ids`` of the files, else
        the words of ``sentence_to_index``, else ``row-0``, ``row-1``, and so on.
    groups
        A text file with, on each line, a name of what the row belongs to, such as its text. Rows of
        one group are drawn together for intervals and p-values. Default: the words of a sentence
        belong together, and every other row is a group of its own, whatever its id.
    task
        Task, file or data set whose examples, or whose words between spaces, the rows are, as
        `simcore extract` takes it. The ids are then the ids of `extract`.
    split
        Split of `task`: ``heldout``, ``train`` or ``all``.
    limit
        Number of examples of `task`, from the first.
    dtype
        Type of the stored values: ``float32``, or for half the room ``float16`` (up to 65,504) or
        ``bfloat16`` (any value, with fewer digits).
    task_options
        Columns and split of `task`.
    overwrite
        As for `truncate`.

    Returns
    -------
    Outcome
        The representation folder: the layers of `files`, with the ids of their rows.

    Raises
    ------
    UserError
        A file is missing, damaged, pickled or of another layout, a value is not finite, the rows do
        not fit `task` or `ids`, or `out` has other content and `overwrite` is False.

    Examples
    --------
    >>> import numpy as np
    >>> from simlab import import_representations, load_representations
    >>> np.save("layers.npy", np.random.default_rng(0).standard_normal((3, 50, 8)))
    >>> step = import_representations("layers.npy", "runs/reps/mine", label="mine")
    >>> [layer.shape for layer in load_representations(step.path).layers]
    [(50, 8), (50, 8), (50, 8)]
    """
    _check(kind, dtype)
    name, examples = IMPORTED, None
    if task is not None:
        name, examples = load_examples([], task, split, task_options)
        examples = examples if limit is None else examples.head(limit)
    paths = as_paths(files)
    with opened(paths, layers) as content:
        rows = _find_rows(content, examples, None if ids is None else Path(ids))
        if groups is not None:
            rows = _in_groups(rows, Path(groups))
        identity = {
            "kind": kind,
            "split": split if task is not None else None,
            "task": name,
            "model": label,
            "files_sha256": [hash_file(path) for path in paths],
            "names": content.names,
            "ids_sha256": hash_json(rows.ids),
            "groups_sha256": hash_json(rows.groups),
            "max_length": None,
            "examples_sha256": rows.fingerprint,
            "dtype": dtype,
            **vars(Side(label, seed)),
        }

        def make(partial: Path) -> None:
            writer = LayerWriter(partial, kind, content.counts, dtype)
            writer.create(content.widths)
            with progress(f"importing {label}", content.pieces) as advance:
                for _ in content.write(writer):
                    advance(1)
            writer.finish(rows.ids, identity, np.unique(rows.groups, return_inverse=True)[1])

        return run_job(Path(out), {"step": "import", **identity}, make, replace=overwrite)


def _check(kind: str, dtype: str) -> None:
    kinds = [IMPORTED, *(name for name in KINDS if name != ATTENTION)]
    require_known("kind", kind, kinds)
    if dtype not in DTYPES:
        raise UserError(f"{argument('dtype', dtype)}: wanted {', '.join(DTYPES)}")


@dataclass(frozen=True)
class _Rows:
    """Ids of the rows, what each belongs to, and the fingerprint of the texts, if it is known."""

    ids: list[str]
    groups: Sequence[str]
    fingerprint: str | None = field(default=None)


def _lines(option: str, file: Path) -> list[str]:
    """Return the lines of a text file."""
    try:
        return file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{argument(option, file)}: wanted a text file of {option}, found: {error}"
        ) from error


def _in_groups(rows: _Rows, file: Path) -> _Rows:
    """Return the rows with the groups that a text file names."""
    names = _lines("groups", file)
    if len(names) != len(rows.ids):
        raise UserError(
            f"{argument('groups', file)}: wanted a line for each of {len(rows.ids)} rows, found "
            f"{len(names)}"
        )
    return replace(rows, groups=names)


def _find_rows(content: Layers | Sentences, examples: Examples | None, file: Path | None) -> _Rows:
    """Find the ids of the rows, and check that they are as many as the rows."""
    count = int(content.counts.sum())
    ids = content.ids if file is None else _lines("ids", file)
    where = f"{argument('ids', file)}" if file is not None else f"{content.where}, ids"
    if ids is not None and (len(ids) != count or len(set(ids)) < count):
        found = f"{len(ids)} ids, {len(set(ids))} of them different"
        raise UserError(f"{where}: wanted a different id for each of {count} rows, found {found}")
    if examples is not None:
        rows = _task_rows(content, examples)
        if ids is not None and ids != rows.ids:
            raise UserError(f"{where}: wanted the ids of the task's rows, found other ids")
        return rows
    if isinstance(content, Layers):
        ids = ids or [f"row-{row}" for row in range(count)]
        return _Rows(ids, ids)
    rows = _sentence_rows(content)
    return rows if ids is None else _Rows(ids, rows.groups)


def _task_rows(content: Layers | Sentences, examples: Examples) -> _Rows:
    """Return the rows of the examples of a task, or of their words."""
    ids = _ids_of(content, examples)
    words = [len(text.split()) for text in examples.texts]
    each = len(ids) == len(examples) and isinstance(content, Layers)
    groups = np.repeat(examples.ids, 1 if each else words).tolist()
    return _Rows(ids, groups, examples.text_fingerprint)


def _ids_of(content: Layers | Sentences, examples: Examples) -> list[str]:
    """Return an id for each example or each word of a task, as there are rows."""
    if examples.pairs is not None or examples.choices is not None:
        raise UserError(
            f"{argument('task')}: wanted a task of single texts, found pairs or choices"
        )
    count = int(content.counts.sum())
    if isinstance(content, Layers):
        if count == len(examples):
            return list(examples.ids)
        words = [len(text.split()) for text in examples.texts]
        if count != sum(words):
            raise UserError(
                f"{content.where}: wanted {len(examples)} rows, one for each example of "
                f"{argument('task')}, or {sum(words)}, one for each word, found {count}"
            )
        return _word_ids(examples.ids, examples.texts)
    if len(content.arrays) != len(examples):
        raise UserError(
            f"{content.where}: wanted {len(examples)} sentences, one for each example of "
            f"{argument('task')}, found {len(content.arrays)}"
        )
    _require_words(content, dict(enumerate(examples.texts)))
    for number, text in (content.texts or {}).items():
        if number < len(examples) and text.split() != examples.texts[number].split():
            raise UserError(
                f"{content.where}: wanted {examples.texts[number]!r} as sentence {number}, which "
                f"is in {argument('task')}, found {text!r}"
            )
    return _word_ids(examples.ids, examples.texts)


def _sentence_rows(content: Sentences) -> _Rows:
    """Return ids of words as `extract` gives them to a file with a sentence on each line."""
    texts = content.texts or {}
    _require_words(content, texts)
    names = [f"row-{number}" for number in range(len(content.arrays))]
    ids: list[str] = []
    groups = np.repeat(names, content.counts).tolist()
    for number, (name, words) in enumerate(zip(names, content.counts.tolist(), strict=True)):
        if number in texts:
            ids += _word_ids([name], [texts[number]])
        else:  # a sentence that comes twice has the number of one place
            ids += [f"{name}:{word}" for word in range(words)]
    if set(texts) != set(range(len(names))):
        return _Rows(ids, groups)
    known = [texts[number] for number in range(len(names))]
    return _Rows(ids, groups, hash_json([names, known, None]))


def _require_words(content: Sentences, texts: dict[int, str]) -> None:
    """Check that a sentence has as many rows as its text has words."""
    for number, count in enumerate(content.counts.tolist()):
        words = len(texts[number].split()) if number in texts else count
        if words != count:
            raise UserError(
                f"{content.arrays[number].where}: wanted {words} words as in {texts[number]!r}, "
                f"found {count}"
            )


def _word_ids(names: Sequence[str], texts: Sequence[str]) -> list[str]:
    return [
        f"{name}:{number}:{word}"
        for name, text in zip(names, texts, strict=True)
        for number, word in enumerate(text.split())
    ]
