"""Kinds of representation: the rows of an example, and the tokens that each row pools.

A kind assigns each token of an example to a row, or to no row (`NO_ROW`). A row is the mean of its
tokens:

* `cls`: one row, the classifier token;
* `mean`: one row, the mean of all tokens of the text;
* `mean-all`: one row, the mean of all tokens, special ones included;
* `mean-padded`: one row, the mean of all positions of a text that is padded to ``max_length``;
* `token`: a row for each token of the text;
* `word-last` (Wu et al. 2020): a row for each word, its last sub-word;
* `word-mean`: a row for each word, the mean of its sub-words.

`attention` pools attention weights between words instead: attention *to* a word is the sum over its
sub-words, attention *from* a word the mean over its sub-words.

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
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.errors import UserError, argument
from simlab.models.architectures import FIRST
from simlab.models.batches import classifier_positions
from simlab.models.tokens import encode, encode_checked, tokenised
from simlab.store.console import note

if TYPE_CHECKING:
    import torch
    from transformers import BatchEncoding, PreTrainedTokenizerBase

    from simlab.tasks import Examples

WORD_SOURCES = ("tokenizer", "spaces")
NO_ROW = NO_WORD = -1

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


@dataclass(frozen=True)
class Rows:
    """The rows of every example, and the tokens of each row."""

    encoded: list[dict[str, Any]]  # for each example, the inputs of the model, unpadded
    # For each example, the row of each token, int64 [t], from 0, or `NO_ROW`.
    groups: list[np.ndarray]
    # For each example, the ids of its rows. An id names the example, the token or word, and its
    # text, so two files have the same rows exactly if they have the same ids.
    ids: list[list[str]]
    # For each example, its number among the task's, which the choices of an example share.
    numbers: np.ndarray

    @property
    def row_examples(self) -> np.ndarray:
        """Return the number of the example that each row belongs to, int64."""
        return np.repeat(self.numbers, self.counts)

    @property
    def counts(self) -> np.ndarray:
        """Return the number of rows of every example, int64 [n]."""
        return np.array([len(ids) for ids in self.ids], np.int64)


@dataclass(frozen=True)
class Kind:
    """A kind of representation."""

    summary: str  # for help texts
    # The function from an example's id and tokens to the groups [t] and row ids; None for `cls`,
    # which needs no words and therefore works with slow tokenizers too.
    rows: Callable[[str, TextTokens], tuple[np.ndarray, list[str]]] | None
    has_words: bool = False  # whether rows are words
    # Number of the first stored layer; attention has no layer 0, the embedding output.
    first_layer: int = 0
    pads: bool = False  # whether the row of an example pools the padding too


def _mean(example: str, tokens: TextTokens) -> tuple[np.ndarray, list[str]]:
    if not tokens.in_text.any():
        raise UserError(
            f"example {example}: {argument('kind', 'mean')} wanted a token that is not special, "
            "found none"
        )
    return np.where(tokens.in_text, 0, NO_ROW), [example]


def _mean_all(example: str, tokens: TextTokens) -> tuple[np.ndarray, list[str]]:
    if not tokens.tokens:
        raise UserError(
            f"example {example}: {argument('kind', 'mean-all')} wanted a token, found none"
        )
    return np.zeros(len(tokens.tokens), np.int64), [example]


def _token(example: str, tokens: TextTokens) -> tuple[np.ndarray, list[str]]:
    groups = np.where(tokens.in_text, np.cumsum(tokens.in_text) - 1, NO_ROW)
    texts = [token for token, wanted in zip(tokens.tokens, tokens.in_text, strict=True) if wanted]
    return groups, [f"{example}:{index}:{token}" for index, token in enumerate(texts)]


def _words(example: str, tokens: TextTokens) -> tuple[np.ndarray, list[str]]:
    if tokens.across:
        raise UserError(
            f"example {example}: wanted tokens that end where a word does, found {tokens.across!r} "
            f"with characters of two words; {argument('kind', 'mean')} needs no words"
        )
    present = np.unique(tokens.words[tokens.words != NO_WORD])
    # Words that were cut have no row, so that a row is the place of its word among those present.
    groups = np.where(tokens.words != NO_WORD, np.searchsorted(present, tokens.words), NO_ROW)
    return groups, [f"{example}:{index}:{tokens.word_texts[index]}" for index in present]


def _last_sub_words(example: str, tokens: TextTokens) -> tuple[np.ndarray, list[str]]:
    groups, ids = _words(example, tokens)
    # Later tokens of a word overwrite earlier ones: each row keeps the place of its last token.
    last = {group: position for position, group in enumerate(groups.tolist()) if group != NO_ROW}
    only_last = np.full_like(groups, NO_ROW)
    only_last[list(last.values())] = list(last)
    return only_last, ids


CLS, ATTENTION = "cls", "attention"
KINDS = {
    CLS: Kind("the classifier token", None),
    "mean": Kind("mean over the tokens of the text", _mean),
    "mean-all": Kind("mean over all tokens, special ones included", _mean_all),
    "mean-padded": Kind("mean over all positions, padding included", _mean_all, pads=True),
    "token": Kind("every token of the text", _token),
    "word-last": Kind("the last sub-word of every word", _last_sub_words, has_words=True),
    "word-mean": Kind("mean over the sub-words of every word", _words, has_words=True),
    ATTENTION: Kind("attention between words", _words, has_words=True, first_layer=1),
}


def help_lines() -> list[str]:
    """Return a heading and a line for each kind."""
    return ["Values of --kind:", *(f"`{name}`: {kind.summary}" for name, kind in KINDS.items())]


def find_rows(
    kind: str,
    tokenizer: PreTrainedTokenizerBase,
    examples: Examples,
    max_length: int,
    words: str,
    model_name: str,
    token: str = FIRST,  # position of the classifier token (`Architecture.token`)
    special_tokens: bool = True,
) -> Rows:
    """Tokenise `examples`, and find the rows of kind `kind`.

    In multiple choice, every choice has rows of its own. If `special_tokens` is False, the
    tokenizer adds none, and texts without a token are left out.
    """
    find = KINDS[kind].rows
    numbers, examples = examples.numbers, examples.each_choice()
    if find is None:
        encoded = encode(tokenizer, examples, max_length)
        positions = classifier_positions(tokenizer, encoded, token, model_name)
        groups = [
            np.where(np.arange(len(example["input_ids"])) == position, 0, NO_ROW)
            for example, position in zip(encoded, positions, strict=True)
        ]
        return Rows(encoded, groups, [[example] for example in examples.ids], numbers)
    encoded, tokens = encode_words(tokenizer, examples, max_length, words, special_tokens)
    rows_of = [find(example, t) for example, t in zip(examples.ids, tokens, strict=True)]
    kept_rows = [row for row, (groups, _) in enumerate(rows_of) if len(groups)]
    rows = Rows(
        [encoded[row] for row in kept_rows],
        [rows_of[row][0] for row in kept_rows],
        [rows_of[row][1] for row in kept_rows],
        numbers[kept_rows],
    )
    if not rows.counts.any():
        raise UserError(
            f"{argument('kind', kind)}: wanted a whole word in {max_length} tokens, found none in "
            "any example"
        )
    lost = [example for example, (_, ids) in zip(examples.ids, rows_of, strict=True) if not ids]
    if lost:
        note(
            f"{argument('kind', kind)}: {len(lost):,} of {len(examples):,} texts have no row, "
            f"because they have no whole word in {max_length} tokens; the first is {lost[0]}"
        )
    return rows


def encode_words(
    tokenizer: PreTrainedTokenizerBase,
    examples: Examples,
    max_length: int,
    words: str = "tokenizer",
    special_tokens: bool = True,
) -> tuple[list[dict[str, Any]], list[TextTokens]]:
    """Tokenise `examples` as `encode` does, and find the word of each token.

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
            [NO_WORD if counts[k] != wanted[k] else numbers.get(k, NO_WORD) for k in keys], np.int64
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


def membership(groups: list[np.ndarray], attention_mask: torch.Tensor) -> torch.Tensor:
    """Return which token belongs to which row of its example: zeros and ones, float32 [b, R, T].

    `groups` has the rows of each example's tokens, int64 [t_i], without padding, and
    `attention_mask` [b, T] is 0 at padding, which may be on either side. R is the largest number of
    rows of an example.
    """
    import torch

    most = max(1, 1 + max(int(group.max(initial=NO_ROW)) for group in groups))
    padded = torch.full(attention_mask.shape, NO_ROW, dtype=torch.int64)
    padded[attention_mask.bool().cpu()] = torch.from_numpy(np.concatenate(groups))
    return (padded[:, None, :] == torch.arange(most)[:, None]).float().to(attention_mask.device)


def pool_states(states: torch.Tensor, member: torch.Tensor) -> torch.Tensor:
    """Return the mean of each row's tokens, [b, R, p], from [b, T, p] and [b, R, T].

    A matrix product sums in a fixed order, so the bits are the same every time; a scatter would
    not. Rows without tokens are zero.
    """
    return _averages(member) @ states.float()


def pool_attention(weights: torch.Tensor, member: torch.Tensor) -> torch.Tensor:
    """Return the attention between words, [b, H, R, R], from [b, H, T, T] and [b, R, T].

    First, only tokens of words are kept and the rows are scaled to sum to 1, as if there were no
    special tokens. Then attention to a word is the sum over its sub-words, and attention from a
    word the mean over its sub-words (Wu et al. 2020, appendix A.4), so rows still sum to 1. A row
    with weight 0 on every word becomes uniform.
    """
    of_words = member.sum(1)[:, None, None, :]
    words_only = weights.float() * of_words
    total = words_only.sum(-1, keepdim=True)
    uniform = of_words / of_words.sum(-1, keepdim=True).clamp(min=1)
    rows = (words_only / total).where(total > 0, uniform)
    return _averages(member)[:, None] @ rows @ member.transpose(1, 2)[:, None]


def _averages(member: torch.Tensor) -> torch.Tensor:
    return member / member.sum(-1, keepdim=True).clamp(min=1)
