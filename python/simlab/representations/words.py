"""Find the tokens of each word of a text, for any fast tokenizer.

A *word* is a unit of the tokenizer's own pre-tokenisation (``words="tokenizer"``), or a unit
between white space (``words="spaces"``), which is the same for every model. A text that comes as a
list of words is stored as the words joined by single spaces, so that ``spaces`` gives these words
back; it is the default for such texts. Special tokens and padding belong to
no word. A word that truncation cut, even by one sub-word, is left out: its last sub-word is
missing, and the mean of its other sub-words would stand for another word.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.errors import UserError, argument
from simlab.models.batches import per_example, require_short, token_limit
from simlab.models.vocabulary import require_embedded, require_known

if TYPE_CHECKING:
    from transformers import BatchEncoding, PreTrainedTokenizerBase

    from simlab.tasks import Examples

WORD_SOURCES = ("tokenizer", "spaces")
NO_WORD = -1


@dataclass(frozen=True)
class TextTokens:
    """The tokens of one example, unpadded.

    Attributes
    ----------
    tokens
        The strings of the t tokens.
    in_text
        bool [t], False for special tokens.
    words
        int64 [t], index into `word_texts`; `NO_WORD` for special tokens and words that were cut.
    word_texts
        Every word of the text in order, including words that were cut.
    """

    tokens: tuple[str, ...]
    in_text: np.ndarray
    words: np.ndarray
    word_texts: tuple[str, ...]


def encode_words(
    tokenizer: PreTrainedTokenizerBase,
    examples: Examples,
    max_length: int,
    words: str = "tokenizer",
    special_tokens: bool = True,
) -> tuple[list[dict[str, Any]], list[TextTokens]]:
    """Tokenise `examples` as `batches.encode` does, and find the word of each token.

    If `special_tokens` is False, the tokenizer adds none.

    Returns
    -------
    encoded : list of dict
        For each example, the inputs of the model, truncated to `max_length` tokens, unpadded.
    tokens : list of TextTokens
        For each example, its tokens and words.

    Raises
    ------
    UserError
        The tokenizer is a slow one, which does not know the places of its tokens in the text, or a
        text is longer than the model allows, or a token has no embedding.
    """
    examples.require_texts()
    if not tokenizer.is_fast:
        raise UserError(
            f"tokenizer {type(tokenizer).__name__}: wanted a fast tokenizer, which knows the words "
            f"of its tokens, found a slow one; only {argument('kind', 'cls')} works with it"
        )
    sides = [examples.texts, *([examples.pairs] if examples.pairs is not None else [])]
    split = words == "spaces"
    if split:
        sides = [[_spaced(text) for text in side] for side in sides]
    arguments = [list(side) for side in sides]
    limit = token_limit(tokenizer, max_length)
    how = {"is_split_into_words": split, "add_special_tokens": special_tokens}
    truncated = tokenizer(*arguments, truncation=True, max_length=limit, **how)
    encoded = per_example(truncated)
    require_short(tokenizer, encoded, examples.ids, max_length)
    require_known(tokenizer, encoded, examples)
    require_embedded(tokenizer, encoded, examples.ids)
    whole = tokenizer(*arguments, truncation=False, **how)
    tokens = [
        _text_tokens(truncated, whole, row, [side[row] for side in sides])
        for row in range(len(examples))
    ]
    return encoded, tokens


def _spaced(text: str) -> list[str]:
    """Return the words of `text`; each word except the first begins with a space.

    With these spaces, byte-level and sentence-piece tokenizers split the words as they split the
    text. Tokenizers that split at white space drop the spaces.
    """
    first, *others = text.split() or [""]
    return [first, *(f" {word}" for word in others)]


def _text_tokens(
    kept: BatchEncoding, whole: BatchEncoding, row: int, texts: list[str | list[str]]
) -> TextTokens:
    """Return the tokens of example `row`, with the words of all its texts numbered in order."""
    counts, complete = Counter(_word_keys(kept, row)), Counter(_word_keys(whole, row))
    numbers: dict[tuple[int, int] | None, int] = {}
    word_texts: list[str] = []
    for key in complete:
        text = _word_text(whole, row, key, texts)
        if key is not None and text:  # byte-level tokenizers make words that are only spaces
            numbers[key] = len(word_texts)
            word_texts.append(text)
    keys = _word_keys(kept, row)
    return TextTokens(
        tokens=tuple(kept.tokens(row)),
        in_text=np.array([sequence is not None for sequence in kept.sequence_ids(row)]),
        words=np.array(
            [numbers.get(k, NO_WORD) if counts[k] == complete[k] else NO_WORD for k in keys],
            np.int64,
        ),
        word_texts=tuple(word_texts),
    )


def _word_keys(encoding: BatchEncoding, row: int) -> list[tuple[int, int] | None]:
    """Return (text, word) of every token, None for special tokens; each text counts its words."""
    pairs = zip(encoding.sequence_ids(row), encoding.word_ids(row), strict=True)
    return [None if text is None or word is None else (text, word) for text, word in pairs]


def _word_text(
    encoding: BatchEncoding,
    row: int,
    key: tuple[int, int] | None,
    texts: list[str | list[str]],
) -> str:
    if key is None:
        return ""
    side, word = key
    text = texts[side]
    if isinstance(text, str):
        span = encoding.word_to_chars(row, word, side)
        return text[span.start : span.end].strip()
    return text[word].strip()
