"""Padded batches of tokenised texts, and whether rows depend on the texts of a batch.

A mask hides padding from attention, and from nothing else: Fourier transforms, convolutions,
landmarks and blocks of sparse attention may reach into it. Whether the rows of a text depend on the
texts beside it is measured on a model's own texts, in the two batches that would show it: the one
with the longest text, and the one with the most padding, of which texts of middle lengths run alone
too. A text of the least length may lie in the first block of a sparse attention, which sees
everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from simlab.errors import UserError, argument, first_line
from simlab.models.architectures import FIRST, LAST, NONE
from simlab.models.place import is_spread
from simlab.models.states import first_states
from simlab.store.console import note, note_once

if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from simlab.tasks import Task

    Batch = dict[str, torch.Tensor]

# Shares of the largest value. States of a layer differ by less where only rounding differs; the
# few outputs of a head may cancel out, so that their rounding is a larger share of them.
_STATES, _OUTPUTS = 1e-4, 1e-2
_OF_A_TEXT = ("hidden_states", "last_hidden_state", "pooler_output", "logits")
_MIDDLES = (2, 8)  # a text of at most this part of the longest runs alone too
_HALF = 4  # times the spacing of numbers, for weights in half precision
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
    a model whose rows depend on padding (`reads_padding`), the examples of a batch have
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
    tokenizer: PreTrainedTokenizerBase, encoded: list[dict[str, Any]], token: str, model_name: str
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


def reads_padding(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    encoded: Sequence[dict[str, Any]],
    batch_size: int,
    *,
    length: int | None = None,
    rows: Callable[[Batch], list[torch.Tensor]] | None = None,
) -> bool:
    """Return whether the rows of a text depend on the texts of its batch by more than rounding.

    Texts that are all padded to `length` have the same padding in any batch. The batches are not
    run as a whole: a text of a batch runs alone, and beside the longest. If the model's outputs are
    not the rows, `rows` runs the model and returns the rows [r, p] of all texts, in their order.
    """
    import torch

    device = next((p.device for p in model.parameters() if not p.is_meta), "cpu")
    side = getattr(tokenizer, "padding_side", "right")
    run = rows or partial(_outputs, model)
    with torch.no_grad(), _errors_of(model):
        pairs = [] if length else _pairs(encoded, batch_size)
        if encoded and not pairs:
            run(pad(tokenizer, [_longest_choice(encoded[0])], device, length))
        for longest, shortest in pairs:
            texts = [[shortest], [longest, shortest]]
            alone, beside = (run(pad(tokenizer, some, device)) for some in texts)
            short, long = (len(one["input_ids"]) for one in (shortest, longest))
            kept = slice(-short, None) if side == "left" else slice(short)
            if rows:  # the rows of the text are the last
                beside = [b[-len(a) :] for a, b in zip(alone, beside, strict=True)]
                differ = partial(_apart, limit=_STATES)
            else:
                differ = partial(_differ, kept=kept, width=long)
            if any(map(differ, alone, beside)):
                note_once(
                    f"model of type {_type_of(model)!r}: the rows of a text depend on the padding "
                    "beside it, so that only texts of equally many tokens share a batch"
                )
                return True
    return False


@contextmanager
def _errors_of(model: nn.Module) -> Iterator[None]:
    """Turn errors of a model that runs on its first texts into a UserError of one line."""
    try:
        yield
    except (AssertionError, AttributeError, LookupError, TypeError, ValueError, RuntimeError) as e:
        wanted = "wanted a model that takes texts and nothing else"
        way_out = "; a part that does so can be saved as a model of its own"
        if getattr(getattr(model, "config", None), "quantization_config", None):
            wanted, way_out = "wanted quantised weights that transformers runs on this machine", ""
        raise UserError(
            f"model of type {_type_of(model)!r}: {wanted}, found: {first_line(e)}{way_out}"
        ) from e


def _pairs(
    encoded: Sequence[dict[str, Any]], batch_size: int
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the longest text of the two batches beside a shorter one of the same batch."""
    lengths = lengths_of(encoded)
    fed = list(in_batches(encoded, batch_size))
    if not fed:
        return []
    padded = max(fed, key=lambda rows: lengths[rows[0]] - lengths[rows[-1]])
    pairs = [(rows[0], rows[-1]) for rows in (fed[0], padded)]
    for share in _MIDDLES:  # the rows of a batch begin with the longest
        most = lengths[padded[0]] // share
        pairs.append((padded[0], next((r for r in padded if lengths[r] <= most), padded[-1])))
    return [
        (_longest_choice(encoded[longest]), _longest_choice(encoded[shorter]))
        for longest, shorter in dict.fromkeys(pairs)
        if lengths[longest] > lengths[shorter]
    ]


def _longest_choice(example: dict[str, Any]) -> dict[str, Any]:
    """Return the longest choice of an example of multiple choice; others as they are."""
    ids = example["input_ids"]
    if not ids or not isinstance(ids[0], list):
        return example
    place = int(np.argmax([len(choice) for choice in ids]))
    return {name: values[place] for name, values in example.items()}


def _outputs(model: nn.Module, batch: Batch) -> list[torch.Tensor]:
    """Return what a model gives for a batch: the states of its layers, and other outputs [b, ...].

    Of a model that is spread, return the input and the output of the first block: the others may
    lie on the disk.
    """
    import torch
    from transformers import PreTrainedModel

    if type(model).__name__.endswith("ForMultipleChoice"):
        batch = {name: values[:, None] for name, values in batch.items()}  # [b, 1, t]
    if is_spread(model):
        return first_states(cast("PreTrainedModel", model), batch)
    asked = {"output_hidden_states": True} if isinstance(model, PreTrainedModel) else {}
    rows = np.arange(len(batch["input_ids"]))
    halves = Halving().run(lambda _, part: list(_tensors(model(**part, **asked))), rows, batch)
    return [torch.cat(parts) for parts in zip(*(found for _, found in halves), strict=True)]


def _tensors(output: Any) -> Iterator[torch.Tensor]:
    """Yield the floating-point tensors in an output of a model, whatever holds them."""
    import torch

    named = [getattr(output, name, None) for name in _OF_A_TEXT]
    if isinstance(output, torch.Tensor):
        if output.is_floating_point():
            yield output
    elif any(part is not None for part in named):  # a cache may hold the states of padding
        for part in named:
            yield from _tensors(part)
    elif isinstance(output, Mapping | list | tuple):
        for part in output.values() if isinstance(output, Mapping) else output:
            yield from _tensors(part)


def _differ(alone: torch.Tensor, beside: torch.Tensor, kept: slice, width: int) -> bool:
    """Return whether the last output of `beside` differs from that of its text, which ran alone.

    `kept` says which of the `width` positions are the text's.
    """
    alone, beside = alone[-1], beside[-1]
    of_tokens = beside.ndim > 1 and len(beside) == width
    if of_tokens:
        beside = beside[kept]
    return _apart(alone, beside, _STATES if of_tokens else _OUTPUTS)


def _apart(alone: torch.Tensor, beside: torch.Tensor, limit: float) -> bool:
    """Return whether tensors differ by more than a share of the largest value, or than rounding.

    Tensors of different shapes, such as attention weights, are not compared.
    """
    import torch

    if alone.shape != beside.shape:
        return False
    limit = max(limit, _HALF * torch.finfo(alone.dtype).eps)
    alone, beside = alone.double().nan_to_num(), beside.double().nan_to_num()
    return bool((alone - beside).abs().max() > limit * alone.abs().max())


def _type_of(model: nn.Module) -> str:
    return getattr(getattr(model, "config", None), "model_type", type(model).__name__)
