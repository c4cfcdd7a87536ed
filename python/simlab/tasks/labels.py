"""What the labels of a task are: classes in one order, or scores, whatever file they come from.

Files write the same label in several ways: a csv file has texts alone, JSON has ``"3.8"`` and
``3.8``, parquet has whole numbers of a fractional type. So a text that is a number is read as the
number, and the values alone decide: all numbers, and some with a fraction, are scores; everything
else is classes. Classes that are all numbers have the order of numbers, others that of texts. A
whole number with leading zeros is a number among scores alone, and a name of its own among classes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.errors import UserError, argument

if TYPE_CHECKING:
    import pandas as pd

CLASSES, SCORES = KINDS = ("classes", "scores")
HIDDEN = (-1, "-1", "")  # published test splits have these values in place of labels
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf(inity)?|nan", re.IGNORECASE)
_PADDED = re.compile(r"[+-]?0\d+")
_TRUTH = ("true", "false")
_MANY = 20  # rows of which not all can be of classes of their own


def encode_labels(
    values: Sequence[Any], where: str, kind: str | None = None
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return labels as int64 indices of the sorted classes, or of scores as float64, without names.

    None for `kind` takes numbers of which some have a fraction for scores, and all other labels for
    classes. A text that is a number stands for the number.
    """
    listed = _listed(values)
    cells = [_cell(value, where) for value in listed]
    if "" in cells and {*cells} != {""}:
        row = cells.index("") + 1
        raise UserError(f"{where}: wanted a label in every row, found none in data row {row}")
    texts = [row for row, cell in enumerate(cells) if isinstance(cell, str)]
    if not texts:
        require_finite(np.array(cells, np.float64), where)
        fractions = any(isinstance(cell, float) for cell in cells)
        if kind == SCORES or (kind is None and fractions):
            return np.array(cells, np.float64), ()
    elif kind == SCORES:
        raise UserError(
            f"{where}: {argument('labels', SCORES)}: wanted numbers, found {cells[texts[0]]!r} in "
            f"data row {texts[0] + 1}"
        )
    spelled = [str(value).strip() for value in listed]
    if texts or any(map(_PADDED.fullmatch, spelled)):
        both = zip(spelled, cells, strict=True)
        cells = [text if _PADDED.fullmatch(text) else str(cell) for text, cell in both]
    classes = sorted(set(cells))
    if len(classes) < 2:
        raise UserError(f"{where}: wanted at least two different labels, found {classes}")
    if len(classes) == len(cells) >= _MANY and kind is None:
        raise UserError(
            f"{where}: wanted classes of several rows, or numbers for {argument('labels', SCORES)},"
            f" found {len(classes)} labels that are all different"
        )
    index = {value: position for position, value in enumerate(classes)}
    return np.array([index[cell] for cell in cells], np.int64), tuple(map(str, classes))


def code_frames(
    parts: Sequence[pd.DataFrame], where: str, kind: str | None, left_out: Counter[str]
) -> tuple[list[pd.DataFrame], tuple[str, ...]]:
    """Return the frames with coded labels and without rows that have none, and the classes.

    `parts` are the rows; or the training rows and the held-out rows, whose classes all have
    training rows. `left_out` counts the rows without a label.
    """
    import pandas as pd

    values = pd.concat([part["label"] for part in parts], ignore_index=True)
    labelled = ~is_unlabelled(values, kind)
    left_out["labelled -1"] += int((~labelled).sum())
    codes, names = encode_labels(values[labelled], where, kind)
    coded, start, done = [], 0, 0
    for part in parts:
        kept = labelled[start : start + len(part)]
        start += len(part)
        coded.append(part[kept].assign(label=codes[done : done + kept.sum()]))
        done += kept.sum()
    if names and len(coded) > 1 and (unknown := {*coded[1]["label"]} - {*coded[0]["label"]}):
        raise UserError(
            f"{where}: wanted held-out labels that the training rows have, found "
            f"{', '.join(repr(names[code]) for code in sorted(unknown))}"
        )
    return coded, names


def is_unlabelled(values: Sequence[Any], kind: str | None) -> np.ndarray:
    """Return which rows have -1 in place of a label, bool [n].

    That is a row with -1 where the other labels are the codes 0, 1 and so on of two classes or
    more. Kind ``classes`` keeps -1 as a class.
    """
    cells = [value if isinstance(value, str) else str(value) for value in _listed(values)]
    known = [NUMBER.fullmatch(cell) and not _PADDED.fullmatch(cell) for cell in cells]
    numbers = np.array([float(c) if k else np.nan for c, k in zip(cells, known, strict=True)])
    codes = sorted({*numbers.tolist()} - {-1.0})
    if kind is not None or len(codes) < 2 or codes != list(range(len(codes))):
        return np.zeros(len(cells), bool)
    return numbers == -1


def require_finite(values: np.ndarray, where: str, shown: np.ndarray | None = None) -> np.ndarray:
    """Return numbers as float64, or raise UserError if one is not finite; `shown` are the cells."""
    odd = np.flatnonzero(~np.isfinite(values))
    if odd.size:
        found = (values if shown is None else shown)[odd[0]]
        raise UserError(f"{where} wanted finite numbers, found {found!s} in data row {odd[0] + 1}")
    return values.astype(np.float64)


def same_name(name: str) -> str:
    """Return a form of a class's name that is equal for spellings of one name.

    >>> [same_name(name) for name in ("Bad", "LABEL_1", "1.0", "01")]
    ['bad', '1', '1', '01']
    """
    text = name.strip().casefold().removeprefix("label_")
    is_number = NUMBER.fullmatch(text) and not _PADDED.fullmatch(text)
    return str(_number(text)) if is_number else text


def repeats(texts: Sequence[Any], labels: Sequence[Any]) -> tuple[np.ndarray, int]:
    """Return which rows repeat an earlier text, bool [n], and how many have another label."""
    first: dict[Any, Any] = {}
    pairs = list(zip(texts, labels, strict=True))
    known = [text in first or first.setdefault(text, label) is None for text, label in pairs]
    others = sum(first[text] != label for text, label in pairs)
    return np.array(known, bool), others


def _listed(values: Any) -> list[Any]:
    return values.tolist() if hasattr(values, "tolist") else list(values)


def _cell(value: Any, where: str) -> int | float | str:
    """Return a label as a number (whole ones as int) or as a text."""
    if isinstance(value, list | tuple | Mapping | np.ndarray | bytes):
        kind = type(value).__name__
        raise UserError(f"{where}: wanted labels that are numbers or names, found {kind}")
    text = str(value).strip()
    if text.casefold() in _TRUTH:  # a csv file does not tell `true` from `True`
        return text.capitalize()
    return _number(text) if NUMBER.fullmatch(text) else text


def _number(text: str) -> int | float:
    try:
        return int(text)  # also beyond the whole numbers that a float has
    except ValueError:
        number = float(text)
        return int(number) if number.is_integer() else number
