"""Reading local files: tables, sentences, and folders with a file for each split."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.errors import UserError, first_line
from simlab.tasks.columns import PAIR_NAMES, TEXT_NAMES

if TYPE_CHECKING:
    import pandas as pd

FILE_SUFFIXES = (".csv", ".tsv", ".json", ".jsonl", ".parquet")
CORPUS_SUFFIXES = (".txt", ".conllu")  # sentences without labels
_TEXTS = (*TEXT_NAMES, *PAIR_NAMES.values())
_SAVED = "dataset_dict.json"  # `save_to_disk` writes this file


def read_table(path: Path, texts: Iterable[str | None] = ()) -> pd.DataFrame:
    """Read a file with one of the `FILE_SUFFIXES` as a table.

    The cells of the columns `texts`, and of columns with usual names, are texts even if all are
    written as numbers.
    """
    import pandas as pd

    as_texts: dict[Any, Any] = dict.fromkeys((*_TEXTS, *filter(None, texts)), str)
    # JSON has types of its own: "007" is a text, also in a column that is called date.
    as_written: dict[str, Any] = {"dtype": False, "precise_float": True}
    readers = {
        ".csv": lambda file: _read_separated(file, ",", as_texts),
        ".tsv": lambda file: _read_separated(file, "\t", as_texts),
        ".json": lambda file: pd.read_json(file, **as_written),
        ".jsonl": lambda file: pd.read_json(file, lines=True, **as_written),
        ".parquet": pd.read_parquet,
    }
    suffix = path.suffix.lower()
    try:
        return readers[suffix](path)
    except (ValueError, OSError) as error:  # pandas and arrow raise ValueErrors for bad content
        raise _unreadable(path, f"a {suffix[1:]} table", error) from error


def _unreadable(path: Path, wanted: str, error: Exception) -> UserError:
    """Return the error for a file that is no table, or no text: what it is, and what to do."""
    found = str(error)
    if isinstance(error, UnicodeDecodeError):
        wanted += " in UTF-8"
        wide = path.read_bytes()[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        kind = "UTF-16" if wide else "LATIN1"
        found = "UTF-16" if wide else f"{first_line(error)}, another encoding"
        found += f"; `iconv -f {kind} -t UTF-8 {path} > NEW{path.suffix}` converts it"
    elif path.suffix.lower() == ".json" and found.startswith("Trailing data"):
        found = f"JSON lines; name the file {path.stem}.jsonl"
    return UserError(f"{path}: wanted {wanted}, found: {found}")


def _read_separated(file: Path, separator: str, types: dict[Any, Any]) -> pd.DataFrame:
    """Read a table of separated cells.

    A row that has more cells than the header raises ValueError, and so does a quoted cell of a csv
    table that goes on after its quotation mark.
    """
    import pandas as pd

    odd = _odd_quotation(file, separator)
    if odd is not None and separator == ",":
        raise ValueError(f"a quotation mark within a quoted cell, which is not doubled, {odd}")
    frame = pd.read_csv(
        file,
        sep=separator,
        # "NA", "null" and "None" are texts like any other; only an empty cell is missing.
        keep_default_na=False,
        na_values=[""],
        dtype=types,
        quoting=csv.QUOTE_MINIMAL if odd is None else csv.QUOTE_NONE,
    )
    if not isinstance(frame.index, pd.RangeIndex):  # the surplus cells, as pandas takes them
        raise ValueError("rows with more cells than the header has names")
    return frame


def _odd_quotation(file: Path, separator: str) -> str | None:
    """Return where a table is not quoted by the rules of csv; None if it is, or has no quotes.

    Many tables with tabs are not quoted at all, so that a text may begin with a quotation mark.
    Read by the rules, such a text goes on to the next mark, through the rows between them.
    """
    content = file.read_text(encoding="utf-8-sig")
    if '"' not in content:
        return None
    reader = csv.reader(io.StringIO(content, newline=""), delimiter=separator, strict=True)
    limit = csv.field_size_limit(len(content) + 1)  # of all readers of this process
    try:
        for _ in reader:
            pass
    except csv.Error:
        return f"in line {reader.line_num}"
    finally:
        csv.field_size_limit(limit)
    return None


def read_columns(path: Path) -> list[str]:
    """Return the names of the columns of a table; its rows are read only where they name them."""
    import pandas as pd
    import pyarrow.parquet as pq

    readers = {
        ".csv": lambda file: list(pd.read_csv(file, nrows=0).columns),
        ".tsv": lambda file: list(pd.read_csv(file, sep="\t", nrows=0).columns),
        ".jsonl": lambda file: list(pd.read_json(file, lines=True, nrows=1).columns),
        ".parquet": lambda file: pq.read_schema(file).names,
    }
    suffix = path.suffix.lower()
    read = readers.get(suffix, lambda file: list(read_table(file).columns))
    try:
        return [str(name) for name in read(path)]
    except (ValueError, OSError) as error:
        raise _unreadable(path, f"a {suffix[1:]} table", error) from error


def read_sentences(path: Path) -> pd.DataFrame:
    """Read a file with one of the `CORPUS_SUFFIXES` as a table with a column ``text``.

    A ``.txt`` file has a sentence on each line; blank lines are skipped. In a ``.conllu`` file, a
    sentence is the list of its words: the second column of the rows whose number is whole.
    """
    import pandas as pd

    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, "a file of sentences", error) from error
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
        raise UserError(f"task {path}: wanted a data file, found no such file")
    is_corpus = path.suffix.lower() in CORPUS_SUFFIXES
    return require_rows(read_sentences(path) if is_corpus else read_table(path, texts), path)


def require_rows(frame: pd.DataFrame, where: Path) -> pd.DataFrame:
    """Return `frame`, or raise UserError if it has no rows (and then perhaps no columns)."""
    if len(frame) == 0:
        raise UserError(f"{where}: wanted rows, found none")
    return frame


def split_names(folder: Path, config: str = "") -> list[str]:
    """Return the names of the splits in `folder`, read from the names of its files."""
    if (folder / _SAVED).is_file():
        return sorted(path.name for path in folder.iterdir() if path.is_dir())
    names = set()
    for place in _places(folder, config):
        files = [path for path in place.glob("*") if path.suffix.lower() in FILE_SUFFIXES]
        names |= {_stem(path) for path in files}
        names |= {path.name for path in place.glob("*") if _numbered(path)}
    return sorted(names)


def read_split(
    folder: Path, split: str, config: str = "", texts: Iterable[str | None] = ()
) -> pd.DataFrame:
    """Read one split of a data set in the format of the hub; `texts` as for `read_table`.

    Either ``save_to_disk`` wrote `folder`, or it has files ``<split>.<suffix>`` or
    ``<split>-00000-of-00001.<suffix>``, or files ``<split>/0000.parquet`` as in the hub's own
    parquet copies, in `folder` itself, in its subfolder ``data`` or in a subfolder with the name
    `config`.
    """
    import pandas as pd

    if (folder / _SAVED).is_file():
        return _read_saved(folder, split)
    for place in _places(folder, config):
        files = [p for p in sorted(place.glob(f"{split}*")) if _stem(p) == split]
        files = [path for path in files if path.suffix.lower() in FILE_SUFFIXES]
        files = files or _numbered(place / split)
        if files:
            kind = files[0].suffix
            tables = [read_table(path, texts) for path in files if path.suffix == kind]
            return require_rows(pd.concat(tables, ignore_index=True), files[0])
    raise UserError(
        f"{folder}: wanted a file {split}.parquet (or {', '.join(FILE_SUFFIXES[:-1])}), found "
        f"{_listed(split_names(folder, config))}"
    )


def _read_saved(folder: Path, split: str) -> pd.DataFrame:
    import datasets

    try:
        saved = datasets.load_from_disk(str(folder))
    except (ValueError, OSError, KeyError) as error:
        reason = first_line(error)
        raise UserError(f"{folder}: wanted a saved data set, found: {reason}") from error
    if split not in saved:
        raise UserError(f"{folder}: wanted a split {split!r}, found {_listed(sorted(saved))}")
    return require_rows(saved[split].to_pandas(), folder / split)


def _numbered(folder: Path) -> list[Path]:
    """Return the files ``0000.parquet``, ``0001.parquet``, ... in a folder."""
    return sorted(path for path in folder.glob("*.parquet") if path.stem.isdecimal())


def _places(folder: Path, config: str) -> list[Path]:
    return [folder / config, folder, folder / "data"] if config else [folder, folder / "data"]


def _stem(path: Path) -> str:
    """Return the split that file `path` belongs to: its name without suffix and number."""
    return path.stem.partition("-")[0]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
