"""Whether a tokenizer knows the texts that it is given, and a model the tokens.

For a folder without a vocabulary, or with another model's, transformers makes a tokenizer that
gives the unknown token for every word (BERT), with marks between them (T5), or no token at all
(RoBERTa, GPT-2, Qwen). Rows of such tokens are the same for all texts, and nobody says so.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from simlab.errors import UserError
from simlab.models.architectures import text_config

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedTokenizerBase

    from simlab.models.sources import ModelSource
    from simlab.tasks import Examples

_FIRST_EXAMPLES = 100  # whose tokens are looked at
_MOST_LETTERS = 10
_BLANKS = ("▁", "Ġ", " ")  # tokens of white space alone, as vocabularies write it
# The number of embeddings of the model that a tokenizer was loaded with.
_EMBEDDINGS: WeakKeyDictionary[PreTrainedTokenizerBase, int] = WeakKeyDictionary()


def keep_embeddings(tokenizer: PreTrainedTokenizerBase, count: int) -> None:
    """Keep the number of embeddings of the model that `tokenizer` belongs to."""
    _EMBEDDINGS[tokenizer] = count


def require_embedded(
    tokenizer: PreTrainedTokenizerBase, encoded: list[dict[str, Any]], ids: Sequence[str]
) -> None:
    """Check that the model has an embedding of every token of the examples.

    Tokens may have been added to a tokenizer, and not to the embeddings of its model. Where there
    are no more tokens than embeddings, or the model is not known here, nothing is looked at.
    """
    count = _EMBEDDINGS.get(tokenizer)
    if count is None or len(tokenizer) <= count:
        return
    for example, row in zip(ids, encoded, strict=True):
        highest = max(row["input_ids"], default=0)
        if highest >= count:
            token = tokenizer.convert_ids_to_tokens(highest)
            raise UserError(
                f"tokenizer {tokenizer.name_or_path}: wanted a token with one of the model's "
                f"{count:,} embeddings, found {token!r} ({highest}) in example {example}; "
                "`model.resize_token_embeddings(len(tokenizer))` gives added tokens theirs"
            )


def require_known(
    tokenizer: PreTrainedTokenizerBase, encoded: list[dict[str, Any]], examples: Examples
) -> None:
    """Check the tokens of the first examples: a tokenizer without its vocabulary knows no word.

    It fails if most tokens are the unknown one, most texts have no token that is not special, or
    all texts consist of one token that has not their letters.
    """
    special = {*getattr(tokenizer, "all_special_ids", ())}
    unknown = getattr(tokenizer, "unk_token_id", None)
    # Byte-level tokenizers know every text, and name the end of the text as unknown too.
    if unknown == getattr(tokenizer, "eos_token_id", None):
        unknown = None
    tokens = [
        [number for number in row["input_ids"] if number == unknown or number not in special]
        for row in encoded[:_FIRST_EXAMPLES]
    ]
    counts = Counter(number for numbers in tokens for number in numbers)
    wanted = f"tokenizer {getattr(tokenizer, 'name_or_path', '')}: wanted"
    if unknown is not None and counts[unknown]:
        written = zip(counts, tokenizer.convert_ids_to_tokens([*counts]), strict=True)
        words = counts.total() - sum(counts[number] for number, one in written if one in _BLANKS)
        if 2 * counts[unknown] > words:
            raise UserError(
                f"{wanted} the vocabulary of these texts, found the unknown token "
                f"{tokenizer.unk_token} for {counts[unknown]:,} of their first {words:,} tokens"
            )
    texts = texts_of(examples)[:_FIRST_EXAMPLES]
    with_letters = [bool(letters(_without_special(tokenizer, text))) for text in texts]
    lost = sum(has and not numbers for has, numbers in zip(with_letters, tokens, strict=True))
    if 2 * lost > sum(with_letters):
        raise UserError(
            f"{wanted} tokens of these texts, found none but special ones for {lost:,} of the "
            f"first {sum(with_letters):,} texts that have letters"
        )
    if len(counts) == 1 and hasattr(tokenizer, "decode"):
        only = str(tokenizer.decode([*counts]))
        if missing := {*letters(" ".join(texts))} - {*letters(only)}:
            raise UserError(
                f"{wanted} tokens of these texts, found {only!r} alone, without "
                f"{''.join(sorted(missing))[:_MOST_LETTERS]!r}"
            )


def texts_of(examples: Examples) -> list[str]:
    """Return the text of every example, of pairs both texts as one."""
    if examples.pairs is None:
        return list(examples.texts)
    return [" ".join(pair) for pair in zip(examples.texts, examples.pairs, strict=True)]


def letters(text: str) -> list[str]:
    """Return the letters and digits of a text in sorted order, without case and accents."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    return sorted(letter for letter in plain if letter.isalnum())


def _without_special(tokenizer: PreTrainedTokenizerBase, text: str) -> str:
    """Return a text without special tokens that are written out in it, such as ``[MASK]``."""
    for token in getattr(tokenizer, "all_special_tokens", ()):
        text = text.replace(token, " ")
    return text


def require_embeddings(
    tokenizer: PreTrainedTokenizerBase, source: ModelSource, config: PreTrainedConfig
) -> None:
    """Raise UserError if a special token or one of the vocabulary has no embedding in the model.

    Tokens that were added to the vocabulary may have none: `require_embedded` looks for them in the
    texts.
    """
    rows = getattr(text_config(config), "vocab_size", None)
    if rows is None or len(tokenizer) <= rows:
        return
    keep_embeddings(tokenizer, rows)
    used = {tokenizer.convert_tokens_to_ids(token) for token in tokenizer.all_special_tokens}
    numbers = set(tokenizer.get_vocab().values()) - set(tokenizer.added_tokens_decoder)
    beyond = [number for number in numbers | used if number >= rows]
    if beyond:
        raise UserError(
            f"model {source.name}: wanted a tokenizer of the model's {rows} embeddings, found one "
            f"with token {max(beyond)}, {tokenizer.convert_ids_to_tokens(max(beyond))!r}"
        )
