"""Texts that published rows keep in several columns, written as one.

A function takes the rows of a split and returns them with further columns, which the spec of the
task reads. Words that a model is asked about are marked in the text: ``*`` stands around the first,
``#`` around the second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from simlab.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

FIRST_MARK, SECOND_MARK = "*", "#"
QUESTION = "question_number"  # the column of the number of the question that a row answers
QUESTIONS = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}


def _copa(rows: pd.DataFrame, where: str) -> pd.DataFrame:
    """Add ``asked``: the question that ``question``, "cause" or "effect", stands for."""
    asked = [QUESTIONS.get(kind) for kind in _column(rows, "question", where)]
    if None in asked:
        odd = rows["question"].iloc[asked.index(None)]
        raise UserError(f"{where}: column 'question' wanted cause or effect, found {odd!r}")
    return rows.assign(asked=asked)


def _cosmosqa(rows: pd.DataFrame, where: str) -> pd.DataFrame:
    """Add ``asked``: the context and the question, as the library jiant joins them."""
    contexts, questions = (_column(rows, name, where) for name in ("context", "question"))
    return rows.assign(asked=[f"{c} {q}" for c, q in zip(contexts, questions, strict=True)])


def _multirc(rows: pd.DataFrame, where: str) -> pd.DataFrame:
    """Add ``answered``, the question and one of its answers; and `QUESTION`.

    Column ``idx`` has the numbers of the paragraph, of its question, and of the answer.
    """
    questions, answers = (_column(rows, name, where) for name in ("question", "answer"))
    places = [(idx["paragraph"], idx["question"]) for idx in _column(rows, "idx", where)]
    numbers = {place: number for number, place in enumerate(dict.fromkeys(places))}
    answered = [f"{q} {a}" for q, a in zip(questions, answers, strict=True)]
    return rows.assign(answered=answered, **{QUESTION: [numbers[place] for place in places]})


def _wic(rows: pd.DataFrame, where: str) -> pd.DataFrame:
    """Add ``first`` and ``second``: the word, and each sentence with the word marked in it."""
    words = _column(rows, "word", where)
    added = {}
    for number, name in ((1, "first"), (2, "second")):
        columns = (f"sentence{number}", f"start{number}", f"end{number}")
        spans = zip(words, *(_column(rows, one, where) for one in columns), strict=True)
        added[name] = [f"{word}: {_marked(text, a, b)}" for word, text, a, b in spans]
    return rows.assign(**added)


def _marked(text: str, start: int, end: int) -> str:
    return f"{text[:start]}{FIRST_MARK}{text[start:end]}{FIRST_MARK}{text[end:]}"


def _wsc(rows: pd.DataFrame, where: str) -> pd.DataFrame:
    """Add ``marked``: the text with the noun and the pronoun marked in it.

    ``span1_index`` counts the words between spaces before the noun, and ``span2_index`` those
    before the pronoun; the words at an index must be the words of the span.
    """
    names = ("text", "span1_index", "span1_text", "span2_index", "span2_text")
    every = zip(*(_column(rows, name, where) for name in names), strict=True)
    marked = []
    for row, (text, *spans) in enumerate(every, 1):
        words = str(text).split(" ")
        for place, span, mark in ((*spans[:2], FIRST_MARK), (*spans[2:], SECOND_MARK)):
            last = int(place) + len(str(span).split(" ")) - 1
            there = " ".join(words[int(place) : last + 1]).strip(FIRST_MARK).lower()
            if not there.startswith(str(span).lower()):
                raise UserError(
                    f"{where}: columns 'text' and spans wanted {span!r} at word {place}, found "
                    f"{there!r} in data row {row}"
                )
            words[int(place)] = mark + words[int(place)]
            words[last] += mark
        marked.append(" ".join(words))
    return rows.assign(marked=marked)


def _column(rows: pd.DataFrame, name: str, where: str) -> Any:
    if name not in rows.columns:
        raise UserError(f"{where}: wanted column {name!r}, found {', '.join(rows.columns)}")
    return rows[name]


ENCODINGS: dict[str, Callable[[pd.DataFrame, str], pd.DataFrame]] = {
    "copa": _copa,
    "cosmosqa": _cosmosqa,
    "multirc": _multirc,
    "wic": _wic,
    "wsc": _wsc,
}
