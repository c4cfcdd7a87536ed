"""Tasks: which texts, which labels, which split, which metric.

A task is one of

* ``rt``: Rotten Tomatoes sentences, positive or negative, accuracy (offline);
* ``stsb``: pairs of sentences with a similarity of 0 to 5, Spearman correlation (offline);
* a local csv, tsv, json, jsonl or parquet file with named columns;
* a data set of the hub, ``NAME`` or ``hub:NAME:CONFIG`` (`simlab.hub`).

Held-out rows are drawn before training rows, so a different training size never changes them;
a training row whose text is also held out (up to case and spaces) is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab import assets
from simlab.errors import UserError
from simlab.files import hash_json

if TYPE_CHECKING:
    import pandas as pd

FILE_SUFFIXES = (".csv", ".tsv", ".json", ".jsonl", ".parquet")
DEFAULT_HELDOUT_SHARE = 0.2
RT_TRAIN_SIZE, RT_HELDOUT_SIZE = 4000, 1000
SPLITS = ("heldout", "train")


@dataclass(frozen=True)
class TaskOptions:
    """How to read and split a task; None means the task's own default."""

    text_column: str | None = None
    pair_column: str | None = None
    label_column: str | None = None
    train_size: int | None = None
    heldout_size: int | None = None
    split_seed: int = 0


@dataclass(frozen=True)
class Examples:
    """Rows of one split: unique ids, texts, second texts of pairs (or None), labels.

    `labels` is int64 (index into the task's label names) or float64 (regression), shape [n].
    """

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    pairs: tuple[str, ...] | None
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over ids, texts and labels."""
        return hash_json([self.ids, self.texts, self.pairs, self.labels.tolist()])

    @cached_property
    def text_fingerprint(self) -> str:
        """SHA-256 over ids and texts alone: what a representation depends on."""
        return hash_json([self.ids, self.texts, self.pairs])

    def head(self, count: int) -> Examples:
        """Return the first `count` examples.

        Raises
        ------
        UserError
            There are fewer.
        """
        if not 1 <= count <= len(self):
            raise UserError(f"--limit: wanted 1 to {len(self)} examples, found {count}")
        pairs = self.pairs[:count] if self.pairs is not None else None
        return Examples(self.ids[:count], self.texts[:count], pairs, self.labels[:count])


@dataclass(frozen=True)
class Task:
    """A named task with its two splits; `label_names` is empty for regression."""

    name: str
    train: Examples
    heldout: Examples
    label_names: tuple[str, ...] = field(default=())

    @property
    def is_pair(self) -> bool:
        """Whether each example is a pair of texts."""
        return self.heldout.pairs is not None

    @property
    def is_regression(self) -> bool:
        """Whether the label is a number rather than a class."""
        return not self.label_names

    @property
    def metric(self) -> str:
        """Name of the metric: ``accuracy``, or ``spearman`` for regression."""
        return "spearman" if self.is_regression else "accuracy"

    def score(self, predictions: np.ndarray, labels: np.ndarray) -> float:
        """Return the metric of `predictions` (class indices or numbers, shape [n])."""
        if not self.is_regression:
            return float(np.mean(predictions == labels))
        from scipy.stats import spearmanr

        return float(spearmanr(predictions, labels).statistic)

    def split(self, name: str) -> Examples:
        """Return split ``heldout`` or ``train``."""
        if name not in SPLITS:
            raise UserError(f"--split {name}: wanted {' or '.join(SPLITS)}")
        return self.heldout if name == "heldout" else self.train


def load_task(name: str, options: TaskOptions | None = None) -> Task:
    """Load and split task `name`.

    Raises
    ------
    UserError
        Unknown name, file or column; empty texts or labels; a size that the data cannot fill;
        a single class; an unreachable hub.
    """
    options = options or TaskOptions()
    if name == "rt":
        return _load_rt(options)
    if name == "stsb":
        return _load_stsb(options)
    if name.lower().endswith(FILE_SUFFIXES):
        return _load_file(name, options)
    from simlab.hub import load_hub_task

    return load_hub_task(name, options)


def build_task(
    name: str,
    train: pd.DataFrame,
    heldout: pd.DataFrame,
    label_names: Sequence[str],
    options: TaskOptions,
) -> Task:
    """Make a task of two frames with columns ``id``, ``text``, ``label`` and perhaps ``pair``."""
    seen = set(_text_keys(heldout))
    train = train[[key not in seen for key in _text_keys(train)]]
    heldout = _take(heldout, options.heldout_size, "--heldout-size", name)
    train = _take(train, options.train_size, "--train-size", name)
    return Task(name, _examples(train), _examples(heldout), tuple(label_names))


def heldout_count(rows: int, options: TaskOptions) -> int:
    """How many of `rows` to hold out where the data comes without a split: a fifth."""
    if options.heldout_size is not None:
        return options.heldout_size
    return max(1, round(DEFAULT_HELDOUT_SHARE * rows))


def split_frame(frame: pd.DataFrame, heldout_size: int, seed: int) -> tuple[Any, Any]:
    """Shuffle the rows once and cut: the first `heldout_size` are held out, the rest train.

    Rows that repeat an earlier text (up to case and spaces) are dropped first.
    """
    keys = _text_keys(frame)
    first = {key: row for row, key in reversed(list(enumerate(keys)))}
    frame = frame.iloc[sorted(first.values())]
    order = np.random.default_rng(seed).permutation(len(frame))
    return frame.iloc[order[heldout_size:]], frame.iloc[order[:heldout_size]]


def standard_frame(frame: pd.DataFrame, where: str, options: TaskOptions) -> pd.DataFrame:
    """Pick and check the text, pair and label columns of `frame`; add ids ``row-<number>``.

    A text may be a list of words.
    """
    import pandas as pd

    wanted = {
        "text": ("--text-column", options.text_column or "text"),
        "label": ("--label-column", options.label_column or "label"),
    }
    if options.pair_column:
        wanted["pair"] = ("--text-pair-column", options.pair_column)
    columns = {"id": [f"row-{row}" for row in range(len(frame))]}
    for role, (option, column) in wanted.items():
        if column not in frame.columns:
            found = ", ".join(map(str, frame.columns))
            raise UserError(f"{where}: {option} wanted column {column!r}, found {found}")
        missing = np.flatnonzero(frame[column].isna().to_numpy())
        if missing.size:
            raise UserError(
                f"{where}: column {column!r} is empty in {missing.size} rows, first in data row "
                f"{missing[0] + 1}"
            )
        values = frame[column].to_numpy()
        columns[role] = values if role == "label" else [_as_text(v, where, column) for v in values]
    return pd.DataFrame(columns)


def _as_text(value: Any, where: str, column: str) -> str:
    """A text, or a list of words joined by spaces, which ``--words spaces`` finds again."""
    if not isinstance(value, list | tuple | np.ndarray):
        return str(value)
    words = [str(word) for word in value]
    odd = next((word for word in words if len(word.split()) != 1), None)
    if odd is not None:
        raise UserError(f"{where}: column {column!r} wanted words without spaces, found {odd!r}")
    return " ".join(words)


def encode_labels(values: Sequence[Any], where: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Turn labels into class indices and names; fractional numbers mean regression.

    Returns
    -------
    labels, label_names
        int64 indices and the sorted names, or float64 values and ``()``.
    """
    array = np.asarray(values)
    if array.dtype.kind == "f" and np.any(array != np.round(array)):
        return array.astype(np.float64), ()
    if array.dtype.kind == "f":
        array = array.astype(np.int64)
    classes = sorted(set(array.tolist()))
    if len(classes) < 2:
        raise UserError(f"{where}: wanted at least two different labels, found {classes}")
    index = {value: position for position, value in enumerate(classes)}
    labels = np.array([index[value] for value in array.tolist()], dtype=np.int64)
    return labels, tuple(str(value) for value in classes)


def _load_rt(options: TaskOptions) -> Task:
    import pandas as pd

    frame = pd.read_csv(assets.fetch("rt"))
    frame = frame[frame["source"] == "rotten_tomatoes"].reset_index(drop=True)
    frame = frame.assign(id=[f"rt-{row}" for row in frame.index])[["id", "text", "label"]]
    heldout_size = RT_HELDOUT_SIZE if options.heldout_size is None else options.heldout_size
    train, heldout = split_frame(frame, heldout_size, options.split_seed)
    sized = TaskOptions(
        train_size=RT_TRAIN_SIZE if options.train_size is None else options.train_size,
        heldout_size=heldout_size,
    )
    return build_task("rt", train, heldout, ("negative", "positive"), sized)


def _load_stsb(options: TaskOptions) -> Task:
    """Read the official train and dev files; test stays untouched."""
    folder = assets.fetch("stsb")
    train = _read_stsb(folder / "sts-train.csv", "train")
    order = np.random.default_rng(options.split_seed).permutation(len(train))
    heldout = _read_stsb(folder / "sts-dev.csv", "dev")
    return build_task("stsb", train.iloc[order], heldout, (), options)


def _read_stsb(path: Path, split: str) -> pd.DataFrame:
    import pandas as pd

    # Tab-separated without quoting; some rows carry two further columns that name a source.
    lines = path.read_text(encoding="utf-8").split("\n")
    rows = [line.split("\t") for line in lines if line]
    return pd.DataFrame(
        {
            "id": [f"{split}-{row}" for row in range(len(rows))],
            "text": [row[5] for row in rows],
            "pair": [row[6] for row in rows],
            "label": [float(row[4]) for row in rows],
        }
    )


def _load_file(name: str, options: TaskOptions) -> Task:
    path = Path(name).expanduser()
    if not path.is_file():
        raise UserError(f"task {name}: wanted a data file, found no such file")
    frame = standard_frame(_read_table(path), str(path), options)
    labels, label_names = encode_labels(frame["label"], str(path))
    frame = frame.assign(label=labels)
    size = heldout_count(len(frame), options)
    train, heldout = split_frame(frame, size, options.split_seed)
    return build_task(path.stem, train, heldout, label_names, options)


def _read_table(path: Path) -> pd.DataFrame:
    import pandas as pd

    readers = {
        ".csv": pd.read_csv,
        ".tsv": lambda file: pd.read_csv(file, sep="\t"),
        ".json": pd.read_json,
        ".jsonl": lambda file: pd.read_json(file, lines=True),
        ".parquet": pd.read_parquet,
    }
    suffix = path.suffix.lower()
    try:
        return readers[suffix](path)
    except (ValueError, OSError) as error:  # parser errors of pandas and arrow are ValueErrors
        raise UserError(f"{path}: wanted a {suffix[1:]} table, found: {error}") from error


def _text_keys(frame: pd.DataFrame) -> list[tuple[str, ...]]:
    columns = [frame[name] for name in ("text", "pair") if name in frame.columns]
    rows = zip(*columns, strict=True)
    return [tuple(" ".join(text.lower().split()) for text in row) for row in rows]


def _take(frame: pd.DataFrame, size: int | None, option: str, where: str) -> pd.DataFrame:
    size = len(frame) if size is None else size
    if not 1 <= size <= len(frame):
        raise UserError(f"task {where}: {option} wanted 1 to {len(frame)} rows, found {size}")
    return frame.iloc[:size]


def _examples(frame: pd.DataFrame) -> Examples:
    pairs = tuple(frame["pair"]) if "pair" in frame.columns else None
    labels = frame["label"].to_numpy().copy()
    return Examples(tuple(frame["id"]), tuple(frame["text"]), pairs, labels)
