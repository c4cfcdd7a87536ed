"""From texts to padded batches: the one way that extraction and evaluation feed a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.errors import UserError

if TYPE_CHECKING:
    from transformers import BatchEncoding, PreTrainedTokenizerBase

    from simlab.tasks import Examples

DEFAULT_MAX_LENGTH = 128


def encode(
    tokenizer: PreTrainedTokenizerBase, examples: Examples, max_length: int
) -> list[dict[str, Any]]:
    """Tokenise every example, truncated to `max_length` tokens and not padded.

    Returns
    -------
    list of dict
        Per example ``input_ids``, ``attention_mask`` and whatever else the tokenizer makes.
    """
    second = list(examples.pairs) if examples.pairs is not None else None
    limit = token_limit(tokenizer, max_length)
    return per_example(tokenizer(list(examples.texts), second, truncation=True, max_length=limit))


def token_limit(tokenizer: PreTrainedTokenizerBase, max_length: int) -> int:
    """The tokens kept per example: `max_length`, or fewer if the model takes fewer."""
    return min(max_length, tokenizer.model_max_length)


def per_example(columns: BatchEncoding) -> list[dict[str, Any]]:
    """One dict per example from the tokenizer's one dict of columns."""
    count = len(columns["input_ids"])
    return [{name: column[row] for name, column in columns.items()} for row in range(count)]


def batches(
    tokenizer: PreTrainedTokenizerBase,
    encoded: list[dict[str, Any]],
    batch_size: int,
    device: str,
) -> Iterator[tuple[np.ndarray, dict[str, Any]]]:
    """Yield padded batches of similar length, longest first.

    Sorting by length keeps padding small, and an input too large for memory fails at once; the
    row numbers that come with each batch let the caller write results in example order.

    Yields
    ------
    rows, batch
        Row numbers, shape [b], and the model's keyword arguments, tensors of shape [b, t].
    """
    lengths = np.array([len(example["input_ids"]) for example in encoded])
    order = np.argsort(-lengths, kind="stable")
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        chosen = [encoded[row] for row in rows]
        yield rows, dict(tokenizer.pad(chosen, return_tensors="pt").to(device))


def require_cls_first(
    tokenizer: PreTrainedTokenizerBase, encoded: list[dict[str, Any]], model_name: str
) -> None:
    """Check that position 0 of every example is the CLS token.

    Raises
    ------
    UserError
        The model has no CLS token or puts it elsewhere (causal models, XLNet).
    """
    cls = tokenizer.cls_token_id
    if cls is None or any(example["input_ids"][0] != cls for example in encoded):
        raise UserError(f"model {model_name}: wanted a CLS token at position 0, found none there")
