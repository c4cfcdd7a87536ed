"""Words and characters of ELMo, with the methods of a fast tokenizer that simlab calls.

A token is a word between white space, or the mark at either end of the text. The number of a token
is the place of its text in the order in which the tokenizer read it; `ElmoTokenizer.pad` turns
numbers into characters.
"""

from __future__ import annotations

import re
from collections import UserDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from simlab.errors import UserError
from simlab.models.elmo_files import (
    FILLING,
    SENTENCE_BEGINS,
    SENTENCE_ENDS,
    WORD_BEGINS,
    WORD_ENDS,
)

if TYPE_CHECKING:
    from transformers import BatchEncoding

BEGINS, ENDS = "<S>", "</S>"  # as the vocabulary of the published programs calls them
_NO_LIMIT = 10**9
_MARKS = 2


class Span(NamedTuple):
    """The characters of a word in its text."""

    start: int
    end: int


@dataclass(frozen=True)
class _Text:
    """The tokens of a text; a mark has no word and no place."""

    tokens: list[str]
    words: list[int | None]
    spans: list[Span | None]


class ElmoEncoding(UserDict[str, list[list[int]]]):
    """The numbers of the tokens of several texts, and the words that they belong to."""

    def __init__(self, columns: dict[str, list[list[int]]], texts: list[_Text]) -> None:
        super().__init__(columns)
        self._texts = texts

    def tokens(self, row: int = 0) -> list[str]:
        """Return the tokens of a text."""
        return self._texts[row].tokens

    def word_ids(self, row: int = 0) -> list[int | None]:
        """Return the number of the word of every token; None for a mark."""
        return self._texts[row].words

    def sequence_ids(self, row: int = 0) -> list[int | None]:
        """Return 0 for every word, and None for a mark."""
        return [None if word is None else 0 for word in self._texts[row].words]

    def token_to_chars(self, row: int, token: int) -> Span | None:
        """Return the place of a token in its text; None for a mark."""
        return self._texts[row].spans[token]


class ElmoTokenizer:
    """A tokenizer of words between white space.

    A word has at most `word_characters` characters, marks included; longer words are cut.
    """

    is_fast = True
    model_max_length = _NO_LIMIT
    cls_token_id = None
    pad_token_id = 0

    def __init__(self, word_characters: int) -> None:
        self.word_characters = word_characters
        self._numbers: dict[tuple[str, bool], int] = {}
        self._characters: list[np.ndarray] = []

    def __call__(
        self,
        texts: Sequence[str],
        pairs: Sequence[Any] | None = None,
        *,
        truncation: bool = False,
        max_length: int | None = None,
        add_special_tokens: bool = True,
    ) -> ElmoEncoding:
        """Return the tokens of texts; pairs of texts, which ELMo does not read, are refused."""
        if pairs is not None:
            raise UserError(
                "task: wanted single texts for an ELMo, found pairs of texts or choices"
            )
        most = max_length if truncation else None
        encodings = [_tokens(text, add_special_tokens, most) for text in texts]
        numbers = [
            [self._number(*one) for one in zip(text.tokens, text.words, strict=True)]
            for text in encodings
        ]
        mask = [[1] * len(row) for row in numbers]
        return ElmoEncoding({"input_ids": numbers, "attention_mask": mask}, encodings)

    def convert_ids_to_tokens(self, numbers: Sequence[int]) -> list[str]:
        """Return the texts of tokens."""
        texts = [text for text, _ in self._numbers]
        return [texts[number] for number in numbers]

    def pad(
        self,
        examples: Sequence[dict[str, list[int]]],
        padding: str | bool = "longest",
        max_length: int | None = None,
        return_tensors: str = "pt",
    ) -> BatchEncoding:
        """Return characters [b, t, c], 0 at padding, and the mask [b, t]."""
        from transformers import BatchEncoding

        rows = [example["input_ids"] for example in examples]
        longest = max(map(len, rows))
        length = longest if max_length is None or padding == "longest" else max_length
        characters = np.zeros((len(rows), length, self.word_characters), np.int64)
        mask = np.zeros((len(rows), length), np.int64)
        for row, numbers in enumerate(rows):
            characters[row, : len(numbers)] = [self._characters[number] for number in numbers]
            mask[row, : len(numbers)] = 1
        columns = {"input_ids": characters, "attention_mask": mask}
        return BatchEncoding(columns, tensor_type=return_tensors)

    def _number(self, token: str, word: int | None) -> int:
        key = (token, word is None)
        if key not in self._numbers:
            self._numbers[key] = len(self._characters)
            self._characters.append(self._characters_of(token, word is None))
        return self._numbers[key]

    def _characters_of(self, token: str, is_mark: bool) -> np.ndarray:
        """Return the characters of a token [c], counted from 1: 0 is padding."""
        inner = list(token.encode("utf-8", "ignore"))[: self.word_characters - 2]
        if is_mark:
            inner = [SENTENCE_BEGINS if token == BEGINS else SENTENCE_ENDS]
        numbers = np.full(self.word_characters, FILLING, np.int64)
        numbers[: len(inner) + 2] = [WORD_BEGINS, *inner, WORD_ENDS]
        return numbers + 1


def _tokens(text: str, marks: bool, most: int | None) -> _Text:
    """Return the tokens of a text, of which `most` are kept."""
    places = list(re.finditer(r"\S+", text))
    if most is not None:
        places = places[: max(0, most - _MARKS * marks)]
    tokens = [place[0] for place in places]
    words: list[int | None] = [*range(len(places))]
    spans: list[Span | None] = [Span(*place.span()) for place in places]
    if marks:
        tokens, words, spans = [BEGINS, *tokens, ENDS], [None, *words, None], [None, *spans, None]
    return _Text(tokens, words, spans)
