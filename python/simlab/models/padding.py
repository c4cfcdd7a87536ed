"""The padding token, by whose number a classifier of a decoder finds the last token of a text.

Padding is masked, so that any token will do for an encoder. The head of a decoder looks at the
numbers of the tokens, and not at the mask: it reads padding if the tokenizer pads with another
token than the model's configuration names, and the token before the last one in a text that ends
with the padding token. Both give other answers without an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simlab.errors import UserError
from simlab.models.architectures import LAST, text_config
from simlab.models.batches import encode
from simlab.models.recognise import classifier_token
from simlab.models.vocabulary import tokenised

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

    from simlab.tasks import Examples


def give_padding(tokenizer: PreTrainedTokenizerBase, name: str) -> None:
    """Let a tokenizer pad with a special token, if it has one that it does not end texts with.

    Tokenizers of decoders often have no padding token, or pad with the token that they put at the
    end of every text.
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
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    examples: Examples,
    max_length: int,
) -> list[dict[str, Any]]:
    """Tokenise examples as `batches.encode` does, for a model with a head.

    The head must not take the last token of an example for padding.
    """
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
