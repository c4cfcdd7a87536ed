"""Find the tokens of each word of a text, for any fast tokenizer.

A *word* stands between white space (``words="spaces"``), which is the same for every model, or is a
unit of the tokenizer's own pre-tokenisation, cut at white space (``words="tokenizer"``). The whole
text is tokenised, and the places of its tokens say which word each belongs to: a word that is
tokenised alone may have other tokens than in the text, and some tokenizers (Gemma's) take a whole
text for a unit. A text that comes as a list of words is stored as the words joined by single
spaces, so that ``spaces`` gives these words back; it is the default for such texts. Special tokens
and padding belong to no word. A word that truncation cut, even by one sub-word, is left out:
its last sub-word is missing, and the mean of its other sub-words would stand for another word.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.errors import UserError, argument
from simlab.models.tokens import encode_checked, tokenised

if TYPE_CHECKING:
    from transformers import BatchEncoding, PreTrainedTokenizerBase

    from simlab.tasks import Examples

WORD_SOURCES = ("tokenizer", "spaces")
NO_WORD = -1

_Key = tuple[int, int, int]  # of a word: its text, unit and place between white space


@dataclass(frozen=True)
class TextTokens:
    """The t tokens of one example, unpadded."""

    tokens: tuple[str, ...]
    in_text: np.ndarray  # bool [t], False for special tokens
    # int64 [t], index into `word_texts`; `NO_WORD` for special tokens and words that were cut.
    words: np.ndarray
    word_texts: tuple[str, ...]  # every word of the text in order, including words that were cut
    # The first token with characters of two words, which belongs to neither; or empty.
    across: str = ""


def encode_words(
    tokenizer: PreTrainedTokenizerBase,
    examples: Examples,
    max_length: int,
    words: str = "tokenizer",
    special_tokens: bool = True,
) -> tuple[list[dict[str, Any]], list[TextTokens]]:
    """Tokenise `examples` as `tokens.encode` does, and find the word of each token.

    Return the inputs of the model for each example, truncated to `max_length` tokens and unpadded,
    and its tokens. If `special_tokens` is False, the tokenizer adds none.
    """
    examples.require_texts()
    if not tokenizer.is_fast:
        raise UserError(
            f"tokenizer {type(tokenizer).__name__}: wanted a fast tokenizer, which knows the words "
            f"of its tokens, found a slow one; only {argument('kind', 'cls')} works with it"
        )
    how = {"add_special_tokens": special_tokens}
    truncated, encoded = encode_checked(tokenizer, examples, max_length, **how)
    whole = tokenised(tokenizer, examples, truncation=False, **how)
    sides = [examples.texts, *([examples.pairs] if examples.pairs is not None else [])]
    units = words == WORD_SOURCES[0]
    tokens = [
        _text_tokens(truncated, whole, row, [side[row] for side in sides], units)
        for row in range(len(examples))
    ]
    return encoded, tokens


def _text_tokens(
    kept: BatchEncoding, whole: BatchEncoding, row: int, texts: list[str], units: bool
) -> TextTokens:
    """Return the tokens of example `row`, with the words of all its texts numbered in order."""
    complete, word_texts, across = _words_of(whole, row, texts, units)
    keys, tokens = complete, kept.tokens(row)
    if len(tokens) < len(complete):
        keys, _, across = _words_of(kept, row, texts, units)
    counts, wanted = Counter(keys), Counter(complete)
    numbers: dict[_Key | None, int] = {key: number for number, key in enumerate(word_texts)}
    return TextTokens(
        tokens=tuple(tokens),
        in_text=np.array([sequence is not None for sequence in kept.sequence_ids(row)]),
        words=np.array(
            [NO_WORD if counts[k] != wanted[k] else numbers.get(k, NO_WORD) for k in keys],
            np.int64,
        ),
        word_texts=tuple(word_texts.values()),
        across=tokens[across] if across is not None else "",
    )


def _words_of(
    encoding: BatchEncoding, row: int, texts: list[str], units: bool
) -> tuple[list[_Key | None], dict[_Key, str], int | None]:
    """Find the words of all tokens of an example.

    Return the key of each token's word (None for no word), the text of each word in order, and the
    first token with characters of two words.
    """
    places = [_Places(text) for text in texts]
    keys: list[_Key | None] = []
    spans: dict[_Key, tuple[int, int]] = {}
    across, space = None, (-1, -1, -1)  # the token of spaces that came last: its text, unit and end
    columns = zip(encoding.sequence_ids(row), encoding.word_ids(row), strict=True)
    for number, (side, numbered) in enumerate(columns):
        keys.append(None)
        span = None if side is None else encoding.token_to_chars(row, number)
        if side is None or span is None:
            continue
        (start, end), unit = span, -1 if numbered is None else numbered
        touched = places[side].between(start, end)
        if len(touched) > 1:
            across = number if across is None else across
        elif touched:
            key = (side, unit if units else -1, touched[0])
            keys[-1] = key
            if space == (side, unit, start) and texts[side][start].strip():
                keys[-2] = key  # the space before a word, for which the vocabulary has no piece
            first, last = spans.get(key, (start, end))
            spans[key] = min(first, start), max(last, end)
        elif not texts[side][start:end].strip(" "):
            space = (side, unit, end)
    word_texts = {
        key: texts[key[0]][start:end].strip() if units else places[key[0]].words[key[2]]
        for key, (start, end) in spans.items()
    }
    return keys, {key: text for key, text in word_texts.items() if text}, across


class _Places:
    """The places of the words between white space in a text."""

    def __init__(self, text: str) -> None:
        words = list(re.finditer(r"\S+", text))
        self.words = [word[0] for word in words]
        self._starts, self._ends = [w.start() for w in words], [w.end() for w in words]

    def between(self, start: int, end: int) -> range:
        """Return the numbers of the words with characters from `start` to `end`."""
        if start == end:  # a token without characters: the word before it, or else behind it
            return range(bisect_left(self._ends, start), bisect_right(self._starts, start))[:1]
        return range(bisect_right(self._ends, start), bisect_left(self._starts, end))
