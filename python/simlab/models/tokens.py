"""Tokenised texts, and what can be wrong with their tokens without an error.

* For a folder without a vocabulary, or with another model's, transformers makes a tokenizer that
  gives the unknown token for every word (BERT), with marks between them (T5), or no token at all
  (RoBERTa, GPT-2, Qwen). Rows of such tokens are the same for all texts.
* Padding is masked, so that any token will do for an encoder. The head of a decoder looks at the
  numbers of the tokens, and not at the mask: it reads padding if the tokenizer pads with another
  token than the model's configuration names, and the token before the last one in a text that ends
  with the padding token.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from simlab.errors import UserError, argument, first_line
from simlab.models.architectures import LAST, text_config
from simlab.models.recognise import classifier_token

if TYPE_CHECKING:
    from transformers import (
        BatchEncoding,
        PreTrainedConfig,
        PreTrainedModel,
        PreTrainedTokenizerBase,
    )

    from simlab.tasks import Examples

_FIRST_EXAMPLES = 100  # whose tokens are looked at
_BLANKS = ("▁", "Ġ", " ")  # tokens of white space alone, as vocabularies write it
# The number of embeddings of the model that a tokenizer was loaded with.
EMBEDDINGS: WeakKeyDictionary[PreTrainedTokenizerBase, int] = WeakKeyDictionary()


def encode(
    tokenizer: PreTrainedTokenizerBase, examples: Examples, max_length: int
) -> list[dict[str, Any]]:
    """Tokenise every example, truncated to `max_length` tokens, without padding.

    Each example has ``input_ids``, ``attention_mask`` and the tokenizer's other outputs: a list of
    t numbers each, or for multiple choice a list of t numbers for each choice.
    """
    examples.require_texts()
    _, rows = encode_checked(tokenizer, examples.each_choice(), max_length)
    if examples.choices is None:
        return rows
    each_row = iter(rows)
    nested = [[next(each_row) for _ in choices] for choices in examples.choices]
    return [{name: [row[name] for row in rows] for name in rows[0]} for rows in nested]


def encode_checked(
    tokenizer: PreTrainedTokenizerBase, examples: Examples, max_length: int, **how: Any
) -> tuple[BatchEncoding, list[dict[str, Any]]]:
    """Tokenise single texts or pairs, truncated, and check that the model can read their tokens."""
    # A token more than the model allows shows that a text is longer.
    limit = tokenizer.model_max_length
    how |= {"truncation": True, "max_length": min(max_length, limit + 1)}
    columns = tokenised(tokenizer, examples, **how)
    count, embeddings = len(columns["input_ids"]), EMBEDDINGS.get(tokenizer)
    rows = [{name: column[row] for name, column in columns.items()} for row in range(count)]
    for example, row in zip(examples.ids, rows, strict=True):
        if len(row["input_ids"]) > limit:
            raise UserError(
                f"{argument('max_length', max_length)}: wanted at most {limit} tokens, the limit "
                f"of the model, found a longer text in example {example}"
            )
        highest = max(*row["input_ids"], tokenizer.pad_token_id or 0, 0)
        # Tokens may have been added to a tokenizer, and not to the embeddings of its model.
        if embeddings is not None and highest >= embeddings:
            token = tokenizer.convert_ids_to_tokens(highest)
            raise UserError(
                f"tokenizer {tokenizer.name_or_path}: wanted a token with one of the model's "
                f"{embeddings:,} embeddings, found {token!r} ({highest}) in example {example}; "
                "`model.resize_token_embeddings(len(tokenizer))` gives added tokens theirs"
            )
    _require_vocabulary(tokenizer, rows, examples)
    return columns, rows


def tokenised(
    tokenizer: PreTrainedTokenizerBase, examples: Examples | list[str], **how: Any
) -> BatchEncoding:
    """Return the tokens of texts, or of single texts or pairs of examples."""
    texts = [examples] if isinstance(examples, list) else [list(examples.texts)]
    if not isinstance(examples, list) and examples.pairs is not None:
        texts.append(list(examples.pairs))
    try:
        return tokenizer(*texts, **how)
    except Exception as error:  # the library has no type of its own for what it refuses
        raise UserError(
            f"tokenizer {getattr(tokenizer, 'name_or_path', '')}: wanted a tokenizer that takes "
            f"these texts, found: {first_line(error)}"
        ) from error


def _require_vocabulary(
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
    passed = {*special, *(number_of(mark) for mark in _BLANKS), unknown}
    looked = lost = 0
    for text, row in zip(texts_of(examples)[:_FIRST_EXAMPLES], encoded, strict=False):
        for token in getattr(tokenizer, "all_special_tokens", ()):  # as text, such as ``[MASK]``
            text = text.replace(token, " ")
        if letters(text):
            looked += 1
            missed = row["input_ids"].count(unknown)
            read = sum(number not in passed for number in row["input_ids"])
            lost += missed > read or not read
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


def give_padding(tokenizer: PreTrainedTokenizerBase, name: str) -> None:
    """Let a tokenizer pad with a special token, if it has one that it does not end texts with.

    Tokenizers of decoders often have no padding token, or end every text with it.
    """
    if not hasattr(tokenizer, "pad_token"):  # of no library that pads by it
        return
    special = (tokenizer.eos_token, tokenizer.unk_token, *tokenizer.all_special_tokens)
    usable = [token for token in (tokenizer.pad_token, *special) if token is not None]
    if not usable:
        raise UserError(
            f"model {name}: wanted a tokenizer with a padding token, found one without special "
            "tokens; `tokenizer.pad_token = ...` names a token of its vocabulary, and "
            "`tokenizer.save_pretrained` stores it"
        )
    ends = tokenised(tokenizer, ["a"])["input_ids"][0][-1:]
    others = [token for token in usable if tokenizer.convert_tokens_to_ids(token) not in ends]
    tokenizer.pad_token = (others or usable)[0]


def agree_on_padding(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> None:
    """Set the padding token of the configuration of a classifier of a decoder to the tokenizer's.

    Other models keep theirs, from whose number on some of them count positions (RoBERTa).
    """
    text = text_config(config)
    if classifier_token(config) == LAST or getattr(text, "pad_token_id", None) is None:
        text.pad_token_id = tokenizer.pad_token_id


def encode_for_head(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, examples: Examples, max_length: int
) -> list[dict[str, Any]]:
    """Tokenise examples as `encode` does, and check that a head takes no last token for padding."""
    encoded = encode(tokenizer, examples, max_length)
    if classifier_token(model.config) != LAST:
        return encoded
    padding = text_config(model.config).pad_token_id
    for example, row in zip(examples.ids, encoded, strict=True):
        ids = row["input_ids"]
        choices = ids if ids and isinstance(ids[0], list) else [ids]
        if any(tokens[-1:] == [padding] for tokens in choices):
            raise UserError(
                f"example {example}: wanted another last token than {tokenizer.pad_token!r}, with "
                "which the tokenizer pads and which the head passes over, found it"
            )
    return encoded
