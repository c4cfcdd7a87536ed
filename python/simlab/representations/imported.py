"""Representations that other programs made: the arrays of a file become a representation folder.

A file of npz, safetensors or HDF5 has layers ``[n, p]``; or an array ``[layers, words, p]`` for
each sentence, named ``0``, ``1``, ..., as AllenNLP writes ELMo and as Wu et al. 2020 keep all their
models. Nothing is unpickled: objects in numpy's files are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from simlab.bounds import Count, bounded
from simlab.errors import UserError, argument, require_known
from simlab.models.checkpoint import load_examples
from simlab.representations.array_files import FLOATING, StoredArray, in_order, open_arrays
from simlab.representations.folder import DTYPES, LayerWriter
from simlab.representations.kinds import ATTENTION, KINDS
from simlab.results.results import Side
from simlab.store.console import progress
from simlab.store.files import hash_file, hash_json
from simlab.store.jobs import Outcome, run_job

if TYPE_CHECKING:
    from simlab.tasks import Examples, Task, TaskOptions

IMPORTED = "imported"  # the kind of rows of which nothing else is known


@bounded
def import_representations(
    file: str | Path,
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
    file
        A file of npz, safetensors or HDF5 (``.h5``, ``.hdf5``): layers ``[n, p]``; or an array
        ``[layers, words, p]`` for each sentence, named ``0``, ``1``, and so on.
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
        A text file with the id of a row on each line. Default: the words of ``sentence_to_index``
        in `file`, else ``row-0``, ``row-1``, and so on.
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
        The representation folder: the layers of `file`, with the ids of their rows.

    Raises
    ------
    UserError
        The file is missing, damaged, pickled or of another layout, a value is not finite, the rows
        do not fit `task` or `ids`, or `out` has other content and `overwrite` is False.

    Examples
    --------
    >>> import numpy as np
    >>> from simlab import import_representations, load_representations
    >>> layers = np.random.default_rng(0).standard_normal((3, 50, 8))
    >>> np.savez("layers.npz", *layers)
    >>> step = import_representations("layers.npz", "runs/reps/mine", label="mine")
    >>> [layer.shape for layer in load_representations(step.path).layers]
    [(50, 8), (50, 8), (50, 8)]
    """
    require_known("kind", kind, [IMPORTED, *(name for name in KINDS if name != ATTENTION)])
    require_known("dtype", dtype, DTYPES)
    name, examples = IMPORTED, None
    if task is not None:
        name, examples = load_examples([], task, split, task_options)
        examples = examples if limit is None else examples.head(limit)
    path = Path(file)
    with open_arrays(path) as (arrays, texts):
        content = _content(path, arrays, texts, layers)
        rows = _find_rows(content, examples)
        if ids is not None:
            rows = replace(rows, ids=_named_ids(ids, rows.ids, is_task=examples is not None))
        if groups is not None:
            rows = replace(rows, groups=_lines("groups", Path(groups), len(rows.ids)))
        identity = {
            "kind": kind,
            "split": split if task is not None else None,
            "task": name,
            "model": label,
            "files_sha256": [hash_file(path)],
            "names": content.names,
            "ids_sha256": hash_json(rows.ids),
            "groups_sha256": hash_json(rows.groups),
            "max_length": None,
            "examples_sha256": rows.fingerprint,
            "dtype": dtype,
            **vars(Side(label, seed)),
        }

        def make(folder: Path) -> None:
            writer = LayerWriter(folder, kind, content.counts, dtype)
            writer.create(content.widths)
            with progress(f"importing {label}", len(content.arrays)) as advance:
                for number, array in enumerate(content.arrays):
                    if content.of_sentences:
                        writer.put(np.array([number]), list(array.values()[:, None]))
                    else:
                        writer.put_rows(number, 0, array.values())
                    advance(1)
            writer.finish(rows.ids, identity, np.unique(rows.groups, return_inverse=True)[1])

        return run_job(Path(out), {"step": "import", **identity}, make, replace=overwrite)


def _named_ids(file: str | Path, known: list[str], *, is_task: bool) -> list[str]:
    ids = _lines("ids", Path(file), len(known))
    if len(set(ids)) < len(ids) or (is_task and ids != known):
        wanted = "the ids of the task's rows" if is_task else "different ids"
        raise UserError(f"{argument('ids', file)}: wanted {wanted}, found others")
    return ids


@dataclass(frozen=True)
class _Content:
    """Layers [n, p], or an array [layers, words, p] for each sentence, with the known texts."""

    where: str
    arrays: list[StoredArray]
    names: list[str]  # of the layers
    widths: list[int]
    counts: np.ndarray  # int64, rows of every sentence; of layers, 1 for every row
    of_sentences: bool
    texts: dict[int, str]


def _content(
    path: Path, arrays: list[StoredArray], texts: dict[int, str], chosen: Sequence[str]
) -> _Content:
    """Find the layout of the arrays of a file, and check that their shapes fit each other."""
    by_name = {array.name: array for array in arrays}
    numbered = all(array.name.isdecimal() and len(array.shape) == 3 for array in arrays)
    of_sentences = not chosen and (numbered or bool(texts))
    if of_sentences:
        names = [str(number) for number in range(len(arrays))]
        wanted = f"sentences 0 to {len(arrays) - 1}"
    else:
        names, wanted = list(chosen) or in_order([*by_name]), "an array of this name"
    for name in names:
        if name not in by_name:
            where = argument("layers", name) if chosen else path
            found = ", ".join(by_name) if chosen else f"no array {name!r}"
            raise UserError(f"{where}: wanted {wanted}, found {found}")
    first, *others = layers = [by_name[name] for name in names]
    axes, layout = (3, "[layers, words, columns] a sentence") if of_sentences else (2, "[n, p]")
    for array in layers:
        if array.dtype not in FLOATING.values():
            raise UserError(f"{array.where}: wanted floating-point values, found {array.dtype}")
        if len(array.shape) != axes or 0 in array.shape:
            raise UserError(
                f"{array.where}: wanted {layout}, found shape {list(array.shape)}; "
                f"{argument('layers')} names the arrays to take"
            )
    for array in others:
        if of_sentences and (array.shape[0], array.shape[2]) != (first.shape[0], first.shape[2]):
            raise UserError(
                f"{array.where}: wanted [{first.shape[0]}, words, {first.shape[2]}] as in sentence "
                f"0, found shape {list(array.shape)}"
            )
        if not of_sentences and array.shape[0] != first.shape[0]:
            raise UserError(
                f"{array.where}: wanted {first.shape[0]} rows as in {first.where}, found "
                f"{array.shape[0]}"
            )
    if not of_sentences:
        ones, widths = np.ones(first.shape[0], np.int64), [array.shape[1] for array in layers]
        return _Content(first.where, layers, names, widths, ones, False, texts)
    counts, depth = np.array([array.shape[1] for array in layers]), first.shape[0]
    numbers, widths = [str(layer) for layer in range(depth)], [first.shape[2]] * depth
    return _Content(str(path), layers, numbers, widths, counts, True, texts)


@dataclass(frozen=True)
class _Rows:
    """Ids of the rows, what each belongs to, and the fingerprint of the texts, if it is known."""

    ids: list[str]
    groups: Sequence[str]
    fingerprint: str | None


def _find_rows(content: _Content, examples: Examples | None) -> _Rows:
    """Return the rows of the examples of a task, of their words, or of what the file says."""
    counts = content.counts.tolist()
    names, texts = [f"row-{number}" for number in range(len(counts))], content.texts
    if examples is not None:
        if examples.pairs is not None or examples.choices is not None:
            raise UserError(
                f"{argument('task')}: wanted a task of single texts, found pairs or choices"
            )
        names, texts = list(examples.ids), dict(enumerate(examples.texts))
    if content.of_sentences:
        _require_sentences(content, texts, len(names))
    words = [texts[i].split() if i in texts else [""] * count for i, count in enumerate(counts)]
    if not content.of_sentences and examples is not None:
        words = [text.split() for text in examples.texts]
        if len(counts) not in (len(names), sum(map(len, words))):
            raise UserError(
                f"{content.where}: wanted {len(names)} rows, one for each example of "
                f"{argument('task')}, or {sum(map(len, words))}, one for each word, found "
                f"{len(counts)}"
            )
    fingerprint = None if examples is None else examples.text_fingerprint
    if len(counts) == len(names) and not content.of_sentences:
        return _Rows(names, names, fingerprint)
    # A sentence that comes twice has the number of one place, and no text at the other.
    ids = [
        f"{name}:{place}{word and f':{word}'}"
        for name, sentence in zip(names, words, strict=True)
        for place, word in enumerate(sentence)
    ]
    if examples is None and len(texts) == len(names):
        fingerprint = hash_json([names, [texts[number] for number in range(len(names))], None])
    return _Rows(ids, np.repeat(names, [len(one) for one in words]).tolist(), fingerprint)


def _require_sentences(content: _Content, texts: dict[int, str], count: int) -> None:
    """Check that sentences are those of the task, and have as many rows as their texts words."""
    if len(content.arrays) != count:
        raise UserError(
            f"{content.where}: wanted {count} sentences, one for each example of "
            f"{argument('task')}, found {len(content.arrays)}"
        )
    for number, array in enumerate(content.arrays):
        words = texts[number].split() if number in texts else [""] * array.shape[1]
        if len(words) != array.shape[1]:
            raise UserError(
                f"{array.where}: wanted {len(words)} words as in {texts[number]!r}, found "
                f"{array.shape[1]}"
            )
        if number in content.texts and content.texts[number].split() != words:
            raise UserError(
                f"{content.where}: wanted {texts[number]!r} as sentence {number}, which is in "
                f"{argument('task')}, found {content.texts[number]!r}"
            )


def _lines(option: str, file: Path, count: int) -> list[str]:
    """Return the lines of a text file, one for each row."""
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{argument(option, file)}: wanted a text file of {option}, found: {error}"
        ) from error
    if len(lines) != count:
        raise UserError(
            f"{argument(option, file)}: wanted a line for each of {count} rows, found {len(lines)}"
        )
    return lines
