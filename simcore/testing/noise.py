"""The states of a model, and the same under circumstances that should make no difference."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from simcore.recording.batches import Forward, device_of
from simcore.recording.masks import Given
from simcore.recording.pools import Pool
from simcore.recording.reading import Reading, Sampler
from simcore.recording.selection import Chooser
from simcore.recording.storage import Budget, MemoryStore
from simcore.recording.tape import Tape

States = dict[str, Tensor]
PADDING = 3  # tokens added on the right of each example
MORE_PRECISE = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float32: torch.float64,
}


@dataclass
class Runs:
    """A model and how its states are recorded."""

    model: nn.Module
    modules: Chooser
    pool: Pool
    mask: Given
    forward: Forward
    told: set[str] = field(default_factory=set)  # modules of which a warning was given

    def states(self, batches: Sequence[Any], model: nn.Module | None = None) -> Iterator[States]:
        """Record the batches one after the other, and yield the states of each."""
        budget = Budget(None)
        reading = Reading(self.pool, None, Sampler(None, 0))
        model = self.model if model is None else model
        tape = Tape(
            model, self.modules, reading, MemoryStore(budget), budget,
            mask=self.mask, generate="prompt", told=self.told,
        )  # fmt: skip
        with torch.no_grad(), tape:
            for batch in batches:
                self.forward(model, batch)
                yield tape.layers()
                tape.clear()

    def of(self, batch: Any, model: nn.Module | None = None) -> States:
        """Record one batch."""
        (states,) = self.states([batch], model)
        return states


def measure_noise(
    runs: Runs, batch: Any, other: torch.dtype | None
) -> tuple[dict[str, States], list[str]]:
    """Return the states of a model under each circumstance, and the names of its rows.

    `other` is the dtype of the model that it is compared with.
    """
    noise = {"again": runs.of(batch)}
    size = _examples(batch)
    labels: list[str] = []
    # The same examples one by one, and from last to first.
    if size > 1:
        single = list(runs.states([_taken(batch, [i]) for i in range(size)]))
        counts = {name: [len(one[name]) for one in single] for name in single[0]}
        noise["batch size 1"] = {name: torch.cat([one[name] for one in single]) for name in counts}
        last_first = list(range(size))[::-1]
        noise["rows reversed"] = {
            name: torch.cat(rows.split(counts[name][::-1])[::-1])
            for name, rows in runs.of(_taken(batch, last_first)).items()
        }
        longest = max(counts.values(), key=sum)
        labels = [f"example {i}, row {j}" for i, n in enumerate(longest) for j in range(n)]
    padded = _padded(batch, runs.model)
    if padded is not None:
        noise["padded"] = runs.of(padded)
    # The same batch on another number of threads, and in other precisions.
    device = device_of(runs.model)
    if device is None or device.type == "cpu":
        threads = 1 if torch.get_num_threads() > 1 else 2
        with _threads(threads):
            noise[f"{threads} thread{'s' * (threads > 1)}"] = runs.of(batch)
    own = dtype_of(runs.model)
    precise = MORE_PRECISE.get(own) if own is not None else None
    for dtype in (precise, other if _is_worse(other, own) else None):
        if dtype is not None:
            cast = _cast(runs.model, dtype)
            noise[str(dtype).removeprefix("torch.")] = runs.of(_as_dtype(batch, dtype), cast)
    return noise, labels


def dtype_of(model: nn.Module) -> torch.dtype | None:
    """Return the least precise floating-point dtype of the parameters; None if there is none."""
    dtypes = {p.dtype for p in model.parameters() if p.is_floating_point()}
    return max(dtypes, key=lambda dtype: torch.finfo(dtype).eps, default=None)


def _is_worse(dtype: torch.dtype | None, than: torch.dtype | None) -> bool:
    if dtype is None or than is None:
        return False
    return torch.finfo(dtype).eps > torch.finfo(than).eps


def _cast(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Return a copy whose parameters and stored buffers have another dtype."""
    # Buffers that checkpoints lack, such as the frequencies of rotary positions, keep theirs, as
    # they do where a library loads a model in a dtype.
    model = copy.deepcopy(model)
    stored = model.state_dict(keep_vars=True)
    for tensor in {id(value): value for value in stored.values()}.values():
        if isinstance(tensor, Tensor) and tensor.is_floating_point():
            tensor.data = tensor.data.to(dtype)
    return model


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _mapped(batch: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(batch, Tensor):
        return change(batch)
    if isinstance(batch, Mapping):
        return {name: _mapped(value, change) for name, value in batch.items()}
    if isinstance(batch, list | tuple):
        return [_mapped(value, change) for value in batch]
    return batch


def _examples(batch: Any) -> int:
    """Return the length of the first axis of the first tensor; 0 if there is none."""
    if isinstance(batch, Tensor):
        return len(batch) if batch.ndim else 0
    values = batch.values() if isinstance(batch, Mapping) else batch
    is_many = isinstance(batch, Mapping | list | tuple)
    return next(filter(None, map(_examples, values)), 0) if is_many else 0


def _taken(batch: Any, examples: list[int]) -> Any:
    """Return some examples of a batch; tensors of another length stay as they are."""
    size = _examples(batch)
    return _mapped(batch, lambda x: x[examples] if x.ndim and len(x) == size else x)


def _as_dtype(batch: Any, dtype: torch.dtype) -> Any:
    return _mapped(batch, lambda x: x.to(dtype) if x.is_floating_point() else x)


def _padded(batch: Any, model: nn.Module) -> Any:
    """Return token ids with padding on the right; None where the batch or model has no room."""
    if not isinstance(batch, Mapping) or not {"input_ids", "attention_mask"} <= set(batch):
        return None
    ids, mask = batch["input_ids"], batch["attention_mask"]
    if ids.ndim != 2 or ids.shape != mask.shape:
        return None
    if any(
        isinstance(v, Tensor) and v.shape[:2] == ids.shape and v.ndim > 2 for v in batch.values()
    ):
        return None
    config = getattr(model, "config", None)
    most = getattr(config, "max_position_embeddings", None)
    if most is not None and ids.shape[1] + 2 * PADDING > most:
        return None
    fill = {"input_ids": getattr(config, "pad_token_id", None) or 0}
    if "position_ids" in batch:
        return None
    return {
        name: nn.functional.pad(value, (0, PADDING), value=fill.get(name, 0))
        if isinstance(value, Tensor) and value.shape == ids.shape
        else value
        for name, value in batch.items()
    }
