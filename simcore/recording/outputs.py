"""Which tensor of a module's output is recorded."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from simcore._grid.inputs import as_tensor

Select = int | str | Callable[[Any], Tensor] | None


def check_select(select: Select) -> Select:
    """Return `select` if it is an index, a key, a function or None, else raise a TypeError."""
    if select is None or callable(select) or isinstance(select, int | str):
        return select
    raise TypeError(f"select: wanted an index, a key or a function, got {select!r}")


def states_of(output: Any, name: str, select: Select) -> Tensor:
    """Return the tensor of `output` to record."""
    chosen = _selected(output, name, select)
    states = next(tensors_of(chosen), None)
    if isinstance(states, PackedSequence):
        raise TypeError(
            "select: wanted an output whose rows are examples, got a PackedSequence; give a "
            "function, such as lambda output: pad_packed_sequence(output[0], True)[0]"
        )
    if states is None:
        raise TypeError(f"select: wanted a tensor in the output of {name!r}, got {_kind(chosen)}")
    if states.is_nested:
        raise TypeError(
            f"select: wanted a dense tensor in the output of {name!r}, got a nested one "
            "(torch makes these from padded batches: enable_nested_tensor=False)"
        )
    return as_tensor(states, f"the output of {name!r}")


def has_states(output: Any, select: Select) -> bool:
    """Whether an output holds numbers of examples, if no `select` says where."""
    states = next(tensors_of(output), None)
    if select is not None or isinstance(states, PackedSequence):
        return True
    return states is not None and states.is_floating_point() and states.ndim >= 2


def _selected(output: Any, name: str, select: Select) -> Any:
    if select is None:
        return output
    if callable(select):
        return select(output)
    try:
        if isinstance(select, str) and not isinstance(output, Mapping):
            return getattr(output, select)
        return output[select]
    except (AttributeError, IndexError, KeyError, TypeError):
        raise ValueError(
            f"select: wanted {select!r} in the output of {name!r}, got {_kind(output)}"
        ) from None


def tensors_of(output: Any) -> Iterator[Tensor | PackedSequence]:
    """Yield the tensors and packed sequences of an output, depth first."""
    if isinstance(output, Tensor | PackedSequence):
        yield output
    elif isinstance(output, Mapping):
        for value in output.values():
            yield from tensors_of(value)
    elif isinstance(output, list | tuple):
        for value in output:
            yield from tensors_of(value)
    elif dataclasses.is_dataclass(output) and not isinstance(output, type):
        for field in dataclasses.fields(output):
            yield from tensors_of(getattr(output, field.name))


def _kind(output: Any) -> str:
    """Describe an output for a message."""
    if isinstance(output, Tensor):
        return f"a tensor of shape {tuple(output.shape)}"
    kind = type(output).__name__
    if isinstance(output, Mapping):
        return f"{kind} with {', '.join(map(repr, output))}"
    return f"{kind} of length {len(output)}" if isinstance(output, list | tuple) else kind


def accumulation_dtype(states: Tensor) -> torch.dtype:
    """Return the dtype in which means over `states` are summed."""
    return torch.float32 if states.dtype in (torch.float16, torch.bfloat16) else states.dtype
