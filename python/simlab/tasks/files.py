"""Tables and sentences in local files, folders with files for each split, usual columns.

pandas reads the files and not ``datasets.load_dataset``, which takes the labels "01" and 1 for one
and a date for a time, files ``validation_matched`` and ``validation_mismatched`` for one split, and
the rows after a quotation mark in a table with tabs for one cell.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.errors import UserError, first_line
from simlab.store.console import note_once

if TYPE_CHECKING:
    import pandas as pd

    from simlab.tasks.task import TaskOptions

FILE_SUFFIXES = (".csv", ".tsv", ".json", ".jsonl", ".parquet")
CORPUS_SUFFIXES = (".txt", ".conllu")  # sentences without labels
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
# Usual names of columns in data sets; an option of the user takes precedence.
PAIR_NAMES = {"sentence1": "sentence2", "premise": "hypothesis", "question1": "question2"}
TEXT_NAMES = ("text", "sentence", *PAIR_NAMES)
IMAGE_NAMES = ("image", "img")  # where a data set has no text
LABEL_NAMES = ("label", "labels", "score", "stars")
_TEXTS = (*TEXT_NAMES, *PAIR_NAMES.values())
_SAVED = "dataset_dict.json"  # `save_to_disk` writes this file


def read_table(path: Path, texts: Iterable[str | None] = ()) -> pd.DataFrame:
    """Read a file with one of the `FILE_SUFFIXES` as a table.

    The cells of the columns `texts`, and of columns with usual names, are texts even if all are
    written as numbers.
    """
    import pandas as pd

    suffix = path.suffix.lower()
    with _readable(path, f"a {suffix[1:]} table"):
        if suffix == ".parquet":
            return pd.read_parquet(path)
        if suffix in _SEPARATORS:
            return _read_separated(path, _SEPARATORS[suffix], (*_TEXTS, *filter(None, texts)))
        # JSON has types of its own: "007" is a text, also in a column that is called date.
        lines = suffix == ".jsonl"
        return pd.read_json(path, lines=lines, dtype=False, precise_float=True)


def _read_separated(path: Path, separator: str, texts: Iterable[str]) -> pd.DataFrame:
    """Read a table of separated cells; a row with more cells than the header is an error.

    Many tables with tabs are not quoted at all, so that a text may begin with a quotation mark.
    Read by the rules of csv, such a text goes on to the next mark, through the rows between them.
    """
    import pandas as pd

    quoting, content = csv.QUOTE_MINIMAL, path.read_text(encoding="utf-8-sig")
    if '"' in content:
        limit = csv.field_size_limit(len(content) + 1)  # of all readers of this process
        reader = csv.reader(io.StringIO(content, newline=""), delimiter=separator, strict=True)
        try:
            for _ in reader:
                pass
        except csv.Error as error:
            if separator == ",":
                mark = "a quotation mark within a quoted cell, which is not doubled"
                raise ValueError(f"{mark}, in line {reader.line_num}") from error
            quoting = csv.QUOTE_NONE
        finally:
            csv.field_size_limit(limit)
    frame = pd.read_csv(
        path,
        sep=separator,
        # "NA", "null" and "None" are texts like any other; only an empty cell is missing.
        keep_default_na=False,
        na_values=[""],
        dtype=dict.fromkeys(texts, str),
        quoting=quoting,
    )
    if not isinstance(frame.index, pd.RangeIndex):  # the surplus cells, as pandas takes them
        raise ValueError("rows with more cells than the header has names")
    return frame


@contextmanager
def _readable(path: Path, wanted: str) -> Iterator[None]:
    """Turn an error for a file that is no table, or no text, into a UserError."""
    try:
        yield
    except (ValueError, OSError) as error:  # pandas and arrow raise ValueErrors for bad content
        raise UserError(f"{path}: wanted {wanted} in UTF-8, found: {first_line(error)}") from error


def read_columns(path: Path) -> list[str]:
    """Return the names of the columns of a table; only of a json table are its rows read."""
    import pandas as pd
    import pyarrow.parquet as pq

    suffix = path.suffix.lower()
    if suffix not in (".parquet", *_SEPARATORS):
        return list(map(str, read_table(path).columns))
    with _readable(path, f"a {suffix[1:]} table"):
        if suffix == ".parquet":
            return pq.read_schema(path).names
        return list(map(str, pd.read_csv(path, nrows=0, sep=_SEPARATORS[suffix]).columns))


def read_sentences(path: Path) -> pd.DataFrame:
    """Read a file with one of the `CORPUS_SUFFIXES` as a table with a column ``text``.

    A ``.txt`` file has a sentence on each line; blank lines are skipped. In a ``.conllu`` file, a
    sentence is the list of its words: the second column of the rows whose number is whole.
    """
    import pandas as pd

    with _readable(path, "a file of sentences"):
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    if path.suffix.lower() == ".txt":
        return pd.DataFrame({"text": [line for line in lines if line.strip()]})
    sentences: list[list[str]] = [[]]
    for line in lines:
        number, *rest = line.split("\t")
        if not line.strip():
            sentences.append([])
        elif number.isdecimal() and rest:
            sentences[-1].append(rest[0])
    return pd.DataFrame({"text": [words for words in sentences if words]})


def read_file(path: Path, texts: Iterable[str | None] = ()) -> pd.DataFrame:
    """Read a table or a file of sentences, by its suffix; `texts` as for `read_table`."""
    if not path.is_file():
        found = "a folder" if path.is_dir() else "no such file"
        raise UserError(f"task {path}: wanted a data file, found {found}")
    is_corpus = path.suffix.lower() in CORPUS_SUFFIXES
    return _require_rows(read_sentences(path) if is_corpus else read_table(path, texts), path)


def _require_rows(frame: pd.DataFrame, where: Path) -> pd.DataFrame:
    if len(frame) == 0:  # and then perhaps no columns
        raise UserError(f"{where}: wanted rows, found none")
    return frame


def open_folder(folder: Path, config: str = "") -> dict[str, Any]:
    """Return the splits of a data set in the format of the hub: a saved table, or a list of files.

    Either ``save_to_disk`` wrote `folder`, or it has files ``<split>.<suffix>`` or
    ``<split>-00000-of-00001.<suffix>``, or files ``<split>/0000.parquet`` as in the hub's own
    parquet copies, in `folder` itself, in its subfolder ``data`` or in a subfolder with the name
    `config`.
    """
    if (folder / _SAVED).is_file():
        import datasets

        try:
            return dict(datasets.load_from_disk(str(folder)))
        except (ValueError, OSError, KeyError) as error:
            reason = first_line(error)
            raise UserError(f"{folder}: wanted a saved data set, found: {reason}") from error
    splits: dict[str, list[Path]] = {}
    for place in (folder / config, folder, folder / "data"):
        named: dict[str, list[Path]] = {}
        numbered: dict[str, list[Path]] = {}
        for path in sorted(place.glob("*.*")):
            if path.suffix.lower() in FILE_SUFFIXES:
                named.setdefault(path.stem.partition("-")[0], []).append(path)
        for path in sorted(place.glob("*/*.parquet")):
            if path.stem.isdecimal():
                numbered.setdefault(path.parent.name, []).append(path)
        splits = numbered | named | splits  # the first place that has a split
    return splits


def read_split(files: Any, where: Path, texts: Iterable[str | None] = ()) -> pd.DataFrame:
    """Read one of the splits of `open_folder`; `texts` as for `read_table`."""
    import pandas as pd

    if not isinstance(files, list):
        return _require_rows(files.to_pandas(), where)
    tables = [read_table(path, texts) for path in files if path.suffix == files[0].suffix]
    return _require_rows(pd.concat(tables, ignore_index=True), files[0])


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
