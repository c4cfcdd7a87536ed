"""Whether a tokenizer knows the texts that it is given, and a model the tokens.

For a folder without a vocabulary, or with another model's, transformers makes a tokenizer that
gives the unknown token for every word (BERT), with marks between them (T5), or no token at all
(RoBERTa, GPT-2, Qwen). Rows of such tokens are the same for all texts, and nobody says so.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from simlab.errors import UserError, first_line
from simlab.models.architectures import text_config

if TYPE_CHECKING:
    from transformers import BatchEncoding, PreTrainedConfig, PreTrainedTokenizerBase

    from simlab.tasks import Examples

_FIRST_EXAMPLES = 100  # whose tokens are looked at
_BLANKS = ("▁", "Ġ", " ")  # tokens of white space alone, as vocabularies write it
# The number of embeddings of the model that a tokenizer was loaded with.
_EMBEDDINGS: WeakKeyDictionary[PreTrainedTokenizerBase, int] = WeakKeyDictionary()


def tokenised(
    tokenizer: PreTrainedTokenizerBase, *texts: list[str] | None, **how: Any
) -> BatchEncoding:
    """Return the tokens of texts and, if given, of the second texts of their pairs."""
    try:
        return tokenizer(*texts, **how)
    except Exception as error:  # the library has no type of its own for what it refuses
        raise UserError(
            f"tokenizer {getattr(tokenizer, 'name_or_path', '')}: wanted a tokenizer that takes "
            f"these texts, found: {first_line(error)}"
        ) from error


def keep_embeddings(tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig) -> None:
    """Keep the number of embeddings of the model that `tokenizer` belongs to."""
    count = getattr(text_config(config), "vocab_size", None)
    if count is not None:
        _EMBEDDINGS[tokenizer] = count


def require_embedded(
    tokenizer: PreTrainedTokenizerBase, encoded: list[dict[str, Any]], ids: Sequence[str]
) -> None:
    """Check that the model has an embedding of every token of the examples.

    Tokens may have been added to a tokenizer, and not to the embeddings of its model.
    """
    count = _EMBEDDINGS.get(tokenizer)
    if count is None:
        return
    for example, row in zip(ids, encoded, strict=True):
        highest = max(*row["input_ids"], tokenizer.pad_token_id or 0, 0)
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

    A text that has letters is lost if more than half of its tokens are the unknown one, or if none
    of them is left beside special ones and marks. Most texts must not be lost.
    """
    special = {*getattr(tokenizer, "all_special_ids", ())}
    unknown = getattr(tokenizer, "unk_token_id", None)
    # Byte-level tokenizers know every text, and name the end of the text as unknown too.
    if unknown == getattr(tokenizer, "eos_token_id", None):
        unknown = None
    number_of = getattr(tokenizer, "convert_tokens_to_ids", lambda mark: None)  # not of all
    blanks = {number_of(mark) for mark in _BLANKS} - {None, unknown}
    looked = lost = 0
    for text, row in zip(texts_of(examples)[:_FIRST_EXAMPLES], encoded, strict=False):
        if letters(_without_special(tokenizer, text)):
            looked += 1
            missed = row["input_ids"].count(unknown)
            known = sum(number not in {*special, *blanks, unknown} for number in row["input_ids"])
            lost += missed > known or not known
    if 2 * lost > looked:
        raise UserError(
            f"tokenizer {getattr(tokenizer, 'name_or_path', '')}: wanted the vocabulary of these "
            "texts, found no token but unknown and special ones, or more unknown than known ones, "
            f"in {lost:,} of the first {looked:,} texts that have letters"
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
