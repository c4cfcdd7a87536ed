"""The columns of a data set without a name of its own: usual names, and columns that nobody reads.

A column of texts that is left over may be what the task is about (the passage of a question), so
that guessing stops there. Columns without such content do not stop it: numbers, ids, a constant, a
name of the label, a category that few texts share. A category may be needed (the aspect of which a
review speaks), so that a note names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from simlab.errors import UserError, argument
from simlab.store.console import note_once

if TYPE_CHECKING:
    import pandas as pd

    from simlab.tasks.task import TaskOptions

# Usual names of columns in data sets; an option of the user takes precedence.
TEXT_NAMES = ("text", "sentence", "sentence1", "premise", "question", "question1", "content")
PAIR_NAMES = {"sentence1": "sentence2", "premise": "hypothesis", "question1": "question2"}
IMAGE_NAMES = ("image", "img")  # where a data set has no text
LABEL_NAMES = ("label", "labels", "score", "stars")
_ID = re.compile(r"(?i:.*[_-])?(?i:idx|id|ids|guid|uid|uuid|index)|\w*[a-z](?:ID|Id)")
# Ids: numbers, hashes and addresses. A passage in Chinese, Japanese or Thai has no white space.
_ID_TEXT = r"[!-~]{1,64}|https?://[!-~]+"
_NUMBERS = tuple("biufcmM")  # kinds of types of numpy: truth values, numbers, times
# A category has at most so many values, each of them in so many rows on average.
_MOST_VALUES, _LEAST_ROWS = 30, 10
_INSPECTED = 10_000  # rows that are looked at


def guess_columns(rows: pd.DataFrame, options: TaskOptions, where: str) -> TaskOptions:
    """Set each column that `options` leave open to the first usual name that `rows` have.

    If `options` do not name the text, a column of further texts that would not be read is an error.
    """
    names = list(rows.columns)
    usual = (*TEXT_NAMES, *IMAGE_NAMES)
    text = options.text_column or next((name for name in usual if name in names), None)
    pair = options.pair_column
    usual_pair = PAIR_NAMES.get(text) if text is not None and options.text_column is None else None
    if pair is None and usual_pair is not None and usual_pair in names:
        pair = usual_pair
    label = options.label_column or next((name for name in LABEL_NAMES if name in names), None)
    guessed = replace(options, text_column=text, pair_column=pair, label_column=label)
    if options.text_column is None and text in TEXT_NAMES:
        _require_read(rows, guessed, where)
    return guessed


def _require_read(rows: pd.DataFrame, chosen: TaskOptions, where: str) -> None:
    read = [chosen.text_column, chosen.pair_column, chosen.label_column]
    rows = rows.head(_INSPECTED)
    left: list[str] = []
    categories: list[str] = []
    for name in rows.columns:
        values = rows[name].dropna()
        if name in read or values.dtype.kind in _NUMBERS or not any(map(_has_text, values)):
            continue
        written = values.map(_as_text)
        different = written.nunique()
        ids = values.map(lambda value: isinstance(value, str)).all() and written.is_unique
        if different <= 1 or _ID.fullmatch(name) or (ids and written.str.fullmatch(_ID_TEXT).all()):
            continue
        if chosen.label_column in rows.columns:
            labels = rows[chosen.label_column][values.index].map(_as_text)
            if labels.nunique() == different == len({*zip(written, labels, strict=True)}):
                continue  # a name of the label
        is_category = different <= _MOST_VALUES and len(rows) >= _LEAST_ROWS * different
        (categories if is_category else left).append(name)
    if categories and not left:
        note_once(f"{where}: categories that are not read: {', '.join(map(repr, categories))}")
    if not left:
        return
    named = f"{argument('text_column', chosen.text_column)}"
    pair = chosen.pair_column or left[0]
    raise UserError(
        f"{where}: wanted options that name its columns, found texts that would not be read in "
        f"{', '.join(map(repr, left))}; {named} reads {chosen.text_column!r} alone, and {named} "
        f"{argument('pair_column', pair)} a pair"
    )


def _has_text(value: Any) -> bool:
    """Return whether a value is a text, or has one at any depth."""
    if isinstance(value, str | bytes):
        return True
    if isinstance(value, Mapping):
        return any(map(_has_text, value.values()))
    if getattr(getattr(value, "dtype", None), "kind", "") in _NUMBERS:  # an array
        return False
    return isinstance(value, Iterable) and any(map(_has_text, value))


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)
