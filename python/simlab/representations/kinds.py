"""Kinds of representation: which rows an example gives, and which tokens each row pools.

Every kind says for each token of an example to which row it belongs, or to none (`NO_ROW`); the
row is the mean of its tokens. So `cls` is the row of the classifier token alone, `mean` one row of
all tokens of the text, `token` a row each, `word-last` (Wu et al. 2020) a row of each word's last
sub-word and `word-mean` one of all its sub-words. `attention` pools attention weights between the
words instead: *to* a word sums over its sub-words, *from* a word averages over them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.errors import UserError
from simlab.models.architectures import FIRST
from simlab.models.batches import classifier_positions, encode
from simlab.representations.words import NO_WORD, TextTokens, encode_words

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

    from simlab.tasks import Examples

NO_ROW = NO_WORD


@dataclass(frozen=True)
class Rows:
    """Where the tokens of every example go.

    Attributes
    ----------
    encoded
        The model's inputs per example, unpadded.
    groups
        Per example int64 [t]: the token's row, counted from 0 within the example, or `NO_ROW`.
    ids
        Per example the ids of its rows: they say which example, which token or word, and its text,
        so that rows of two files are the same exactly if their ids are.
    """

    encoded: list[dict[str, Any]]
    groups: list[np.ndarray]
    ids: list[list[str]]

    @property
    def counts(self) -> np.ndarray:
        """Rows of every example, int64 [n]."""
        return np.array([len(ids) for ids in self.ids], np.int64)


@dataclass(frozen=True)
class Kind:
    """One kind: how it is named in the help, and the function that finds its rows.

    `rows` maps (example id, tokens) to groups [t] and row ids; None for `cls`, which needs no
    words and therefore works with slow tokenizers too. `first_layer` is the number of the first
    layer that is stored: 0, the embedding output, which has no attention.
    """

    summary: str
    rows: Callable[[str, TextTokens], tuple[np.ndarray, list[str]]] | None
    has_words: bool = False
    first_layer: int = 0


def _mean(example: str, tokens: TextTokens) -> tuple[np.ndarray, list[str]]:
    if not tokens.in_text.any():
        raise UserError(
            f"example {example}: --kind mean wanted a token that is not special, found none"
        )
    return np.where(tokens.in_text, 0, NO_ROW), [example]


def _token(example: str, tokens: TextTokens) -> tuple[np.ndarray, list[str]]:
    groups = np.where(tokens.in_text, np.cumsum(tokens.in_text) - 1, NO_ROW)
    kept = [token for token, wanted in zip(tokens.tokens, tokens.in_text, strict=True) if wanted]
    return groups, [f"{example}:{index}:{token}" for index, token in enumerate(kept)]


def _words(example: str, tokens: TextTokens) -> tuple[np.ndarray, list[str]]:
    present = np.unique(tokens.words[tokens.words != NO_WORD])
    groups = np.where(tokens.words != NO_WORD, np.searchsorted(present, tokens.words), NO_ROW)
    return groups, [f"{example}:{index}:{tokens.word_texts[index]}" for index in present]


def _last_sub_words(example: str, tokens: TextTokens) -> tuple[np.ndarray, list[str]]:
    groups, ids = _words(example, tokens)
    last = {group: position for position, group in enumerate(groups.tolist()) if group != NO_ROW}
    only_last = np.full_like(groups, NO_ROW)
    only_last[list(last.values())] = list(last)
    return only_last, ids


CLS, ATTENTION = "cls", "attention"
KINDS = {
    CLS: Kind("the classifier token", None),
    "mean": Kind("mean over the tokens of the text", _mean),
    "token": Kind("every token of the text", _token),
    "word-last": Kind("the last sub-word of every word", _last_sub_words, has_words=True),
    "word-mean": Kind("mean over the sub-words of every word", _words, has_words=True),
    ATTENTION: Kind("attention between words", _words, has_words=True, first_layer=1),
}


def find_rows(
    kind: str,
    tokenizer: PreTrainedTokenizerBase,
    examples: Examples,
    max_length: int,
    words: str,
    model_name: str,
    token: str = FIRST,
) -> Rows:
    """Tokenise `examples` and find the rows of `kind`; `token` is where `cls` is to be found.

    Of multiple choice every choice has rows of its own.

    Raises
    ------
    UserError
        `cls` without a CLS token where it should be, another kind with a slow tokenizer, an example
        without text for `mean`, or no rows at all.
    """
    find = KINDS[kind].rows
    examples = examples.each_choice()
    if find is None:
        encoded = encode(tokenizer, examples, max_length)
        positions = classifier_positions(tokenizer, encoded, token, model_name)
        groups = [
            np.where(np.arange(len(example["input_ids"])) == position, 0, NO_ROW)
            for example, position in zip(encoded, positions, strict=True)
        ]
        return Rows(encoded, groups, [[example] for example in examples.ids])
    encoded, tokens = encode_words(tokenizer, examples, max_length, words)
    found = [find(example, t) for example, t in zip(examples.ids, tokens, strict=True)]
    rows = Rows(encoded, [groups for groups, _ in found], [ids for _, ids in found])
    if not rows.counts.any():
        raise UserError(
            f"--kind {kind}: wanted a whole word in {max_length} tokens, found none in any example"
        )
    return rows


def membership(groups: list[np.ndarray], attention_mask: torch.Tensor) -> torch.Tensor:
    """Which token belongs to which row, as a matrix per example.

    Parameters
    ----------
    groups
        Per example of the batch int64 [t_i], without padding.
    attention_mask
        [b, T], 0 at padding, on either side.

    Returns
    -------
    Tensor
        float32 [b, R, T] of zeros and ones, R the most rows of an example.
    """
    import torch

    most = max(1, 1 + max(int(group.max(initial=NO_ROW)) for group in groups))
    padded = torch.full(attention_mask.shape, NO_ROW, dtype=torch.int64)
    padded[attention_mask.bool().cpu()] = torch.from_numpy(np.concatenate(groups))
    return (padded[:, None, :] == torch.arange(most)[:, None]).float().to(attention_mask.device)


def pool_states(states: torch.Tensor, member: torch.Tensor) -> torch.Tensor:
    """Mean of each row's tokens: [b, T, p] and [b, R, T] give [b, R, p].

    A matrix product and not a scatter: a sum in fixed order, the same bits every time. Rows
    without tokens are zero.
    """
    return _averages(member) @ states.float()


def pool_attention(weights: torch.Tensor, member: torch.Tensor) -> torch.Tensor:
    """Attention between words: [b, H, T, T] and [b, R, T] give [b, H, R, R].

    First only the words' tokens are kept and the rows are made to sum to 1 again, as if the
    special tokens were not there; then attention to a word sums over its sub-words and attention
    from a word averages over them (Wu et al. 2020, appendix A.4), which keeps the sums. A row
    that gave every word exactly nothing says nothing about them, and becomes uniform.
    """
    kept = member.sum(1)[:, None, None, :]
    words_only = weights.float() * kept
    total = words_only.sum(-1, keepdim=True)
    uniform = kept / kept.sum(-1, keepdim=True).clamp(min=1)
    rows = (words_only / total).where(total > 0, uniform)
    return _averages(member)[:, None] @ rows @ member.transpose(1, 2)[:, None]


def _averages(member: torch.Tensor) -> torch.Tensor:
    return member / member.sum(-1, keepdim=True).clamp(min=1)
