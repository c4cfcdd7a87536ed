"""Tables, sentences and pictures in local files, folders of them, usual columns.

pandas reads the files and not ``datasets.load_dataset``, which takes the labels "01" and 1 for one
and a date for a time, files ``validation_matched`` and ``validation_mismatched`` for one split, and
the rows after a quotation mark in a table with tabs for one cell.

In the tables of `frames` a picture stands in column ``image``, and the hash of its content in
column ``text``. So ids and texts tell examples apart whether they are texts or images, and a
picture that comes twice is not both trained on and held out.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.errors import UserError, first_line

if TYPE_CHECKING:
    import pandas as pd
    from PIL.Image import Image

FILE_SUFFIXES = (".csv", ".tsv", ".json", ".jsonl", ".parquet")
CORPUS_SUFFIXES = (".txt", ".conllu")  # sentences without labels
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
# Usual names of columns in data sets; an option of the user takes precedence.
PAIR_NAMES = {"sentence1": "sentence2", "premise": "hypothesis", "question1": "question2"}
TEXT_NAMES = ("text", "sentence", *PAIR_NAMES)
_TEXTS = (*TEXT_NAMES, *PAIR_NAMES.values())
_SAVED = "dataset_dict.json"  # `save_to_disk` writes this file
IMAGE = "image"  # the column of pictures
DIGITS, IMAGES = "digits", "images:"
_PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")
TRAIN = "train"
_MOST = 255.0
_GREY = 16.0  # the lightest value of scikit-learn's digits


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


@dataclass(frozen=True)
class Picture:
    """An image: values in [0, 1], [H, W] or [H, W, 3], the bytes of a file, or a file."""

    content: np.ndarray | bytes | Path

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of the content."""
        if isinstance(self.content, np.ndarray):
            shape = str((self.content.dtype.str, self.content.shape)).encode()
            return hashlib.sha256(shape + self.content.tobytes()).hexdigest()
        return hashlib.sha256(self._bytes()).hexdigest()

    def image(self) -> Image:
        """Return the image in 8 bits a colour, as transforms for pretrained models take it."""
        from PIL import Image

        if not isinstance(self.content, np.ndarray):
            return self._opened().convert("RGB")
        return Image.fromarray(np.round(self.content * _MOST).astype(np.uint8)).convert("RGB")

    def array(self) -> np.ndarray:
        """Return values in [0, 1], float32 [C, H, W]; C is 1 for an image without colours."""
        if isinstance(self.content, np.ndarray):
            values = self.content.astype(np.float32)
        else:
            image = self._opened()
            image = image if image.mode == "L" else image.convert("RGB")
            values = np.asarray(image, np.float32) / np.float32(_MOST)
        return values[None] if values.ndim == 2 else np.ascontiguousarray(values.transpose(2, 0, 1))

    def _bytes(self) -> bytes:
        if isinstance(self.content, bytes):
            return self.content
        assert isinstance(self.content, Path)  # arrays have no bytes to decode
        try:
            return self.content.read_bytes()
        except OSError as error:
            raise UserError(f"{self.content}: wanted an image, found: {error.strerror}") from error

    def _opened(self) -> Image:
        from PIL import Image

        where = self.content if isinstance(self.content, Path) else "image of the data set"
        try:
            image = Image.open(io.BytesIO(self._bytes()))
            image.load()
        except (OSError, ValueError, SyntaxError) as error:
            raise UserError(f"{where}: wanted an image, found a damaged file: {error}") from error
        return image


def picture_columns(values: np.ndarray) -> dict[str, list[Any]] | None:
    """Return columns of pictures and of their hashes; None if a cell holds no picture."""
    if not len(values) or not all(
        isinstance(v, dict) and {"bytes", "path"} <= {*v} for v in values
    ):
        return None
    contents = [Path(v["path"]) if v["bytes"] is None else v["bytes"] for v in values]
    return _columns_of([Picture(content) for content in contents])


def _columns_of(pictures: list[Picture]) -> dict[str, list[Any]]:
    return {"text": [picture.digest for picture in pictures], IMAGE: pictures}


def is_images(name: str) -> bool:
    """Return whether `name` is a task of images which needs no data set of the hub."""
    return name == DIGITS or name.startswith(IMAGES)


def read_images(name: str) -> dict[str, pd.DataFrame]:
    """Read task ``digits`` or ``images:FOLDER`` as a table for each split, or one under ``all``.

    The folder has a folder of files for each class; or folders of this kind for each split, of
    which one is ``train``; or files alone. The columns are ``id``, ``text``, ``image`` and
    ``label``, the name of the class, which is empty in a folder of files alone.
    """
    if name == DIGITS:
        return {"all": _digits()}
    folder = Path(name.removeprefix(IMAGES)).expanduser()
    if not folder.is_dir():
        raise UserError(f"task {name}: wanted a folder of images, found no such folder")
    has_splits = (folder / TRAIN).is_dir()
    rows: dict[str, list[tuple[Path, str]]] = {}
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        split, *place = parts if has_splits else ("all", *parts)
        if place and path.suffix.lower() in _PICTURES:
            rows.setdefault(split, []).append((path, place[0] if len(place) > 1 else ""))
    if not rows:
        raise UserError(f"{folder}: wanted images ({' '.join(_PICTURES)}), found none")
    return {split: _folder(folder, found) for split, found in rows.items()}


def _digits() -> pd.DataFrame:
    import pandas as pd
    from sklearn.datasets import load_digits

    digits = load_digits()
    pictures = [Picture((image / _GREY).astype(np.float32)) for image in digits.images]
    ids = [f"{DIGITS}-{row}" for row in range(len(pictures))]
    labels = [str(digit) for digit in digits.target]
    return pd.DataFrame({"id": ids, **_columns_of(pictures), "label": labels})


def _folder(folder: Path, files: list[tuple[Path, str]]) -> pd.DataFrame:
    """Return the images of a split with their classes; files outside classes count if alone."""
    import pandas as pd

    files = [(path, label) for path, label in files if label] or files
    ids = [path.relative_to(folder).as_posix() for path, _ in files]
    columns = _columns_of([Picture(path) for path, _ in files])
    return pd.DataFrame({"id": ids, **columns, "label": [label for _, label in files]})
