"""Decoders that predict the next token: load one with its head for words, and its perplexity."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from simlab.errors import UserError
from simlab.models.alone import reads_padding
from simlab.models.architectures import LAST
from simlab.models.batches import batches, encode
from simlab.models.damage import load_errors
from simlab.models.load import load_config, load_weights
from simlab.models.recognise import classifier_token, without_cache
from simlab.models.sources import ModelSource
from simlab.store.console import progress

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from simlab.tasks import Examples


def load_decoder(source: ModelSource) -> PreTrainedModel:
    """Load a decoder with its head for words, in evaluation mode and the precision of its files."""
    from transformers import AutoModelForCausalLM

    config = load_config(source)
    wanted = "a decoder with a head for words"
    if config.is_encoder_decoder or classifier_token(config) != LAST:
        raise UserError(f"model {source.name}: wanted {wanted}, found a {config.model_type}")
    with load_errors(source, wanted):
        model, fresh, _ = load_weights(AutoModelForCausalLM, source, config, "auto")
    if fresh:
        raise UserError(
            f"model {source.name}: wanted {wanted}, found no weights for {next(iter(fresh))}"
        )
    return model.eval()


def perplexity(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    examples: Examples,
    max_length: int,
    batch_size: int = 32,
    description: str = "perplexity",
) -> tuple[float, int]:
    """Return the perplexity of a decoder on texts, and the number of tokens that it predicts.

    The perplexity is exp of the mean of -log p(token | the tokens before it), over all tokens of
    all texts but the first token of each text.
    """
    import torch
    from torch.nn.functional import cross_entropy

    tokenizer.padding_side = "right"  # a token then sees nothing but the tokens before it
    encoded = encode(tokenizer, examples, max_length)
    total, count = 0.0, 0
    with (
        torch.inference_mode(),
        without_cache(model),
        progress(description, len(encoded)) as advance,
    ):
        alike = reads_padding(model, tokenizer, encoded, batch_size)
        fed = batches(tokenizer, encoded, batch_size, model.device, alike=alike)
        for rows, batch in fed:
            ids, mask = batch["input_ids"], batch["attention_mask"].bool()
            logits = model(**batch).logits[:, :-1].float()
            losses = cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
            predicted = mask[:, 1:] & mask[:, :-1]
            total += float(losses[predicted].double().sum())
            count += int(predicted.sum())
            advance(len(rows))
    if not count:
        raise UserError("texts: wanted a text of two tokens or more, found none")
    return math.exp(total / count), count
