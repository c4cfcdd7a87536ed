"""Find out whether the rows of a text depend on the texts beside it, by running it alone.

A mask hides padding from attention, and from nothing else: Fourier transforms, convolutions,
landmarks and blocks of sparse attention may reach into it. Whether a model does so is measured on
its own texts, in the two batches that would show it: the one with the longest text, and the one
with the most padding, of which texts of middle lengths run alone too. A text of the least length
may lie in the first block of a sparse attention, which sees everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from simlab.errors import UserError, first_line
from simlab.models.batches import Halving, in_batches, lengths_of, pad
from simlab.models.place import is_spread
from simlab.models.states import first_states
from simlab.store.console import note_once

if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PreTrainedTokenizerBase

    Batch = dict[str, torch.Tensor]

# Shares of the largest value. States of a layer differ by less where only rounding differs; the
# few outputs of a head may cancel out, so that their rounding is a larger share of them.
_STATES, _OUTPUTS = 1e-4, 1e-2
_OF_A_TEXT = ("hidden_states", "last_hidden_state", "pooler_output", "logits")
_MIDDLES = (2, 8)  # a text of at most this part of the longest runs alone too
_HALF = 4  # times the spacing of numbers, for weights in half precision


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
