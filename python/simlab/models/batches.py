"""Padded batches of tokenised texts, and batches of images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from simlab.errors import UserError, argument, first_line
from simlab.models.architectures import FIRST, LAST, NONE
from simlab.models.sources import ModelSource, load_errors
from simlab.store.console import note

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

    from simlab.tasks import Task
    from simlab.tasks.files import Picture

_PROCESSOR = "preprocessor_config.json"  # of images
T = TypeVar("T")


def batches(
    tokenizer: PreTrainedTokenizerBase,
    encoded: list[dict[str, Any]],
    batch_size: int,
    device: str | torch.device,
    length: int | None = None,
    *,
    alike: bool = False,
    beside: Sequence[dict[str, Any]] = (),
    tokens: int | None = None,  # most of a batch, padding included, unless one example has more
) -> Iterator[tuple[np.ndarray, dict[str, Any]]]:
    """Yield padded batches of examples of similar length, the longest first.

    A batch has its row numbers [b], and the model's keyword arguments [b, t], or [b, c, t] for
    multiple choice; None for `length` pads to the longest example of each batch. With `alike`, for
    a model whose rows depend on padding (`alone.reads_padding`), the examples of a batch have
    equally many tokens, in the tokens of another model (`beside`) as well.
    """
    same = [encoded, beside] if alike and length is None else []
    for examples in same:
        require_even_choices(examples)
    for rows in in_batches(encoded, batch_size, tokens, length, [some for some in same if some]):
        yield rows, pad(tokenizer, [encoded[row] for row in rows], device, length)


def in_batches(
    encoded: Sequence[dict[str, Any]],
    batch_size: int,
    tokens: int | None = None,
    length: int | None = None,
    same: Sequence[Sequence[dict[str, Any]]] = (),
) -> Iterator[np.ndarray]:
    """Yield the row numbers of every batch of `batches`.

    All rows of a batch have equally many tokens in each encoding that is in `same`.
    """
    # Sorting by length keeps padding small, and a batch too large for memory fails at once.
    lengths = [lengths_of(each) for each in (same or [encoded])]
    order = np.lexsort([-counts for counts in reversed(lengths)])  # stable
    breaks: Any = np.flatnonzero(np.diff(np.stack(lengths)[:, order]).any(0)) + 1 if same else []
    for run in np.split(order, breaks):
        start = 0
        while start < len(run):
            longest = length or lengths[0][run[start]]
            width = longest * len(_choices(encoded[run[start]]["input_ids"]))
            most = batch_size if tokens is None else max(1, min(batch_size, tokens // width))
            yield run[start : start + most]
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
        for span in (slice(None, middle), slice(middle, None)):
            half = {name: values[span] for name, values in batch.items()}
            yield from self.run(function, rows[span], half)


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
        where = "at position 0" if token == FIRST else "at the last position"
        raise UserError(
            f"model {model_name}: wanted a CLS token {where}, found none there; "
            f"{argument('kind', 'mean')} needs none, and {argument('modules')} with "
            f"{argument('pool', 'first')} or 'last' takes any token"
        )
    return positions


def processor_of(source: ModelSource) -> Callable[[Any], torch.Tensor] | None:
    """Return the function that prepares an image for a model of transformers; None without one."""
    if not (source.path / _PROCESSOR).is_file():
        return None
    from transformers import AutoImageProcessor

    with load_errors(source, f"an image processor in {_PROCESSOR}"):
        # The other backend rounds otherwise, and is there on some machines alone.
        how: dict[str, Any] = {"backend": "pil", "local_files_only": True}
        processor = AutoImageProcessor.from_pretrained(source.path, **how)

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
        some = pictures[start : start + batch_size]
        if prepare is None:
            tensors = [torch.from_numpy(picture.array()) for picture in some]
        else:
            tensors = [torch.as_tensor(prepare(picture.image())) for picture in some]
        other = next((image for image in tensors if image.shape != tensors[0].shape), None)
        if other is not None:
            raise UserError(
                "task: wanted images of one size, or a model that says how to prepare images, "
                f"found {list(tensors[0].shape)} and {list(other.shape)}"
            )
        yield np.arange(start, start + len(some)), torch.stack(tensors).to(device)
