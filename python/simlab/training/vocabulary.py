"""A tokenizer with the most frequent words of some texts.

A small corpus uses a part of BERT's 30,522 words, and most of a small model's parameters and
time would go into the others. The words that stay are chosen by counting alone, so that the same
texts give the same tokenizer on every machine, which a tokenizer trained anew does not promise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from simlab.errors import UserError, argument

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CONTINUED = "##"  # the beginning of a piece that continues a word
_TEXTS_AT_ONCE = 1000


def common_words(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], size: int
) -> PreTrainedTokenizerBase:
    """Return a tokenizer with the `size` words of `tokenizer` that the texts use most.

    The special tokens and every letter of the texts stay, at the beginning of a word and within it,
    so that a word that goes becomes shorter pieces, and nothing becomes unknown. A `size` of 0
    returns `tokenizer`.
    """
    from transformers import BertTokenizer

    if not size:
        return tokenizer
    if not isinstance(tokenizer, BertTokenizer):
        raise UserError(
            f"{argument('vocabulary', size)}: wanted a tokenizer of BERT, found "
            f"{type(tokenizer).__name__}; 0 keeps all its words"
        )
    words = tokenizer.get_vocab()
    counts = token_counts(tokenizer, texts)
    special = set(tokenizer.all_special_ids)
    letters_of_words = {_bare(word) for word, i in words.items() if counts[i] and i not in special}
    letters = set().union(*letters_of_words)
    kept = special | {i for word, i in words.items() if _bare(word) in letters}
    if size < len(kept):
        raise UserError(
            f"{argument('vocabulary')}: wanted at least {len(kept)} words, the special tokens and "
            f"the letters of these texts, found {size}"
        )
    others = [int(i) for i in np.argsort(-counts, kind="stable") if counts[i] and i not in kept]
    kept |= set(others[: size - len(kept)])
    by_number = {i: word for word, i in words.items()}
    return BertTokenizer(
        vocab={by_number[i]: number for number, i in enumerate(sorted(kept))},
        do_lower_case=tokenizer.do_lower_case,
        tokenize_chinese_chars=tokenizer.tokenize_chinese_chars,
        strip_accents=tokenizer.strip_accents,
    )


def token_counts(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> np.ndarray:
    """Return how often each word of a tokenizer comes in the texts, int64 [words]."""
    counts = np.zeros(len(tokenizer), np.int64)
    for part in _parts(texts):
        encoded = tokenizer(
            part,
            add_special_tokens=False,
            return_attention_mask=False,
            return_token_type_ids=False,
        )["input_ids"]
        ids = np.fromiter(chain.from_iterable(encoded), np.int64)
        counts += np.bincount(ids, minlength=len(counts))
    return counts


def _parts(texts: Sequence[str]) -> Iterator[list[str]]:
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        yield list(texts[start : start + _TEXTS_AT_ONCE])


def _bare(word: str) -> str:
    return word.removeprefix(CONTINUED)
