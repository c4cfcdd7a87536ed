"""Padded batches of tokenised texts, which every step encodes here, and batches of images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from simlab.errors import UserError, argument, first_line
from simlab.models.architectures import FIRST, LAST, NONE
from simlab.models.vocabulary import require_embedded, require_known, tokenised
from simlab.store.console import note

if TYPE_CHECKING:
    import torch
    from transformers import BatchEncoding, PreTrainedTokenizerBase

    from simlab.models.sources import ModelSource
    from simlab.tasks import Examples, Task
    from simlab.tasks.images import Picture

_PROCESSOR = "preprocessor_config.json"  # of images
T = TypeVar("T")


def encode(
    tokenizer: PreTrainedTokenizerBase, examples: Examples, max_length: int
) -> list[dict[str, Any]]:
    """Tokenise every example, truncated to `max_length` tokens, without padding.

    Each example has ``input_ids``, ``attention_mask`` and the tokenizer's other outputs: a list of
    t numbers each, or for multiple choice a list of t numbers for each choice.
    """
    examples.require_texts()
    flat = examples.each_choice()
    second = list(flat.pairs) if flat.pairs is not None else None
    limit = token_limit(tokenizer, max_length)
    how: dict[str, Any] = {"truncation": True, "max_length": limit}
    rows = per_example(tokenised(tokenizer, list(flat.texts), second, **how))
    require_short(tokenizer, rows, flat.ids, max_length)
    require_known(tokenizer, rows, flat)
    require_embedded(tokenizer, rows, flat.ids)
    if examples.choices is None:
        return rows
    several = iter(rows)
    nested = [[next(several) for _ in choices] for choices in examples.choices]
    return [{name: [row[name] for row in rows] for name in rows[0]} for rows in nested]


def token_limit(tokenizer: PreTrainedTokenizerBase, max_length: int) -> int:
    """Return the number of tokens to keep per example, at most one more than the model allows.

    The one token more shows `require_short` that a text is longer than the model allows.
    """
    return min(max_length, tokenizer.model_max_length + 1)


def require_short(
    tokenizer: PreTrainedTokenizerBase,
    encoded: list[dict[str, Any]],
    ids: Sequence[str],
    max_length: int,
) -> None:
    """Check that no example is longer than the model allows."""
    limit = tokenizer.model_max_length
    for example, row in zip(ids, encoded, strict=True):
        if len(row["input_ids"]) > limit:
            raise UserError(
                f"{argument('max_length', max_length)}: wanted at most {limit} tokens, the limit "
                f"of the model, found a longer text in example {example}"
            )


def per_example(columns: BatchEncoding) -> list[dict[str, Any]]:
    """Return a dict for each example, from the tokenizer's single dict of columns."""
    count = len(columns["input_ids"])
    return [{name: column[row] for name, column in columns.items()} for row in range(count)]


def batches(
    tokenizer: PreTrainedTokenizerBase,
    encoded: list[dict[str, Any]],
    batch_size: int,
    device: str | torch.device,
    length: int | None = None,
    *,
    alike: bool = False,
    beside: Sequence[dict[str, Any]] | None = None,
    tokens: int | None = None,  # most of a batch, padding included, unless one example has more
) -> Iterator[tuple[np.ndarray, dict[str, Any]]]:
    """Yield padded batches of examples of similar length, the longest first.

    A batch has its row numbers [b], and the model's keyword arguments [b, t], or [b, c, t] for
    multiple choice; None for `length` pads to the longest example of each batch. With `alike`, for
    a model whose rows depend on padding (`alone.reads_padding`), the examples of a batch have
    equally many tokens, in the tokens of another model (`beside`) as well.
    """
    # Sorting by length keeps padding small, and a batch too large for memory fails at once.
    beside = beside or []
    if alike := alike and length is None:
        for examples in (encoded, beside):
            require_even_choices(examples)
    how: dict[str, Any] = {"alike": alike, "beside": beside}
    for rows in in_batches(encoded, batch_size, tokens, length, **how):
        yield rows, pad(tokenizer, [encoded[row] for row in rows], device, length)


def in_batches(
    encoded: Sequence[dict[str, Any]],
    batch_size: int,
    tokens: int | None = None,
    length: int | None = None,
    *,
    alike: bool = False,
    beside: Sequence[dict[str, Any]] = (),
) -> Iterator[np.ndarray]:
    """Yield the row numbers of every batch of `batches`."""
    lengths = [lengths_of(encoded), *([lengths_of(beside)] if alike and beside else [])]
    order = np.lexsort([-counts for counts in reversed(lengths)])  # the longest first; stable
    parts = [order]
    if alike:
        changes = np.diff(np.stack(lengths)[:, order]).any(0)
        parts = np.split(order, np.flatnonzero(changes) + 1)
    for part in parts:
        start = 0
        while start < len(part):
            longest = length or lengths[0][part[start]]
            width = longest * len(_choices(encoded[part[start]]["input_ids"]))
            most = batch_size if tokens is None else max(1, min(batch_size, tokens // width))
            yield part[start : start + most]
            start += most


class Halving:
    """Run batches of examples, and the halves of a batch that does not fit into memory.

    Later batches of as many tokens are halved before they run.
    """

    def __init__(self) -> None:
        self._most: int | None = None  # tokens of a batch that fits

    def run(
        self, function: Callable[[np.ndarray, dict[str, Any]], T], rows: np.ndarray, batch: Any
    ) -> Iterator[tuple[np.ndarray, T]]:
        """Yield row numbers and ``function(rows, batch)`` for the batch, or for its parts."""
        from accelerate.utils.memory import release_memory, should_reduce_batch_size

        tokens = batch.get("attention_mask", batch["input_ids"]).numel()
        if self._most is None or tokens <= self._most or len(rows) == 1:
            try:
                result = function(rows, batch)
            except RuntimeError as error:
                if not should_reduce_batch_size(error):
                    raise
                if len(rows) == 1:
                    raise UserError(
                        f"{argument('max_length')}: wanted examples that fit into memory, found "
                        f"one of {tokens} tokens that does not: {first_line(error)}"
                    ) from error
            else:
                yield rows, result
                return
            # Here the error is gone, and with it the tensors of the pass that its traceback held.
            release_memory()
            if self._most is None:
                note(f"a batch of {len(rows)} examples does not fit into memory: it runs in halves")
            self._most = tokens // 2
        middle = len(rows) // 2
        for part in (slice(None, middle), slice(middle, None)):
            half = {name: values[part] for name, values in batch.items()}
            yield from self.run(function, rows[part], half)


def lengths_of(encoded: Sequence[dict[str, Any]]) -> np.ndarray:
    """Return the number of tokens of each example, of its longest choice."""
    return np.array([max(map(len, _choices(example["input_ids"]))) for example in encoded])


def require_even_choices(encoded: Sequence[dict[str, Any]]) -> None:
    """Raise UserError unless the choices of each example have equally many tokens."""
    for row, example in enumerate(encoded, 1):
        counts = sorted({len(choice) for choice in _choices(example["input_ids"])})
        if len(counts) > 1:
            raise UserError(
                "model: wanted choices of equally many tokens for a model that reads padding as "
                f"text, found {counts[0]} and {counts[-1]} in example {row}"
            )


def pad(
    tokenizer: PreTrainedTokenizerBase,
    encoded: list[dict[str, Any]],
    device: str | torch.device = "cpu",
    length: int | None = None,
) -> dict[str, torch.Tensor]:
    """Return padded tensors [b, t] of examples, or [b, c, t] of examples with choices.

    t is `length`; None is the length of the longest example.
    """
    flat = [
        dict(zip(example, values, strict=True))
        for example in encoded
        for values in zip(*map(_choices, example.values()), strict=True)
    ]
    padding = "longest" if length is None else "max_length"
    padded = tokenizer.pad(flat, padding=padding, max_length=length, return_tensors="pt").to(device)
    if len(flat) == len(encoded):
        return dict(padded)
    return {name: tensor.unflatten(0, (len(encoded), -1)) for name, tensor in padded.items()}


def _choices(values: list[Any]) -> list[list[int]]:
    """Return a list of choices; the values of an example without choices are the only choice."""
    return values if values and isinstance(values[0], list) else [values]


def collator(tokenizer: PreTrainedTokenizerBase, task: Task) -> Any:
    """Return the function that makes a training batch of rows of `encode` with ``labels``."""
    from transformers import DataCollatorForMultipleChoice, DataCollatorWithPadding

    if task.is_multiple_choice:
        return DataCollatorForMultipleChoice(tokenizer)
    return DataCollatorWithPadding(tokenizer)


def classifier_positions(
    tokenizer: PreTrainedTokenizerBase,
    encoded: list[dict[str, Any]],
    token: str,
    model_name: str,
) -> list[int]:
    """Return the position of the classifier token in every unpadded example.

    `token` is the ``token`` of the model's `Architecture`. At the first position, and at the final
    position of XLNet, the classifier token must be CLS; a decoder reads the last token of any text.
    """
    if token == NONE:
        raise UserError(
            f"{argument('kind', 'cls')}: wanted a model with a classifier token, found {model_name}"
        )
    inputs = [example["input_ids"] for example in encoded]
    if not all(inputs):
        raise UserError(f"model {model_name}: wanted a token in every example, found an empty one")
    last = [len(ids) - 1 for ids in inputs]
    positions = [0] * len(inputs) if token == FIRST else last
    cls = tokenizer.cls_token_id
    tokens = (ids[position] for ids, position in zip(inputs, positions, strict=True))
    if token != LAST and (cls is None or any(number != cls for number in tokens)):
        place = "at position 0" if token == FIRST else "at the last position"
        raise UserError(
            f"model {model_name}: wanted a CLS token {place}, found none there; "
            f"{argument('kind', 'mean')} needs none, and {argument('modules')} with "
            f"{argument('pool', 'first')} or 'last' takes any token"
        )
    return positions


def processor_of(source: ModelSource) -> Callable[[Any], torch.Tensor] | None:
    """Return the function that prepares an image for a model of transformers; None without one."""
    if not (source.path / _PROCESSOR).is_file():
        return None
    from transformers import AutoImageProcessor

    try:
        # The other backend rounds otherwise, and is there on some machines alone.
        processor = AutoImageProcessor.from_pretrained(
            source.path, backend="pil", local_files_only=True
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = first_line(error)
        raise UserError(
            f"model {source.name}: wanted an image processor in {_PROCESSOR}, found: {reason}"
        ) from error

    def prepare(image: Any) -> torch.Tensor:
        return processor(image, return_tensors="pt")["pixel_values"][0]

    return prepare


def image_batches(
    pictures: Sequence[Picture],
    prepare: Callable[[Any], torch.Tensor] | None,
    batch_size: int,
    device: str,
) -> Iterator[tuple[np.ndarray, torch.Tensor]]:
    """Yield images in their order: row numbers [b] and values [b, C, H, W].

    `prepare` makes a tensor [C, H, W] of an image of PIL; None takes the values in [0, 1] as they
    are, with one channel if the images have no colours.
    """
    import torch

    for start in range(0, len(pictures), batch_size):
        part = pictures[start : start + batch_size]
        if prepare is None:
            tensors = [torch.from_numpy(picture.array()) for picture in part]
        else:
            tensors = [torch.as_tensor(prepare(picture.image())) for picture in part]
        shapes = {tuple(one.shape): None for one in tensors}
        if len(shapes) > 1:
            found = " and ".join(str(list(shape)) for shape in list(shapes)[:2])
            raise UserError(
                "task: wanted images of one size, or a model that says how to prepare images, "
                f"found {found}"
            )
        yield np.arange(start, start + len(part)), torch.stack(tensors).to(device)
