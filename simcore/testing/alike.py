"""`check_alike` and `assert_alike`: are two models the same, layer by layer?

Noise is the states of a model under circumstances that should make no difference.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from simcore.recording.batches import Forward, call, device_of
from simcore.recording.masks import PADDING_IS_TRUE, Given
from simcore.recording.pools import Pool
from simcore.recording.reading import Reading, Sampler
from simcore.recording.selection import Chooser, named_modules
from simcore.recording.storage import Budget, MemoryStore
from simcore.recording.tape import Tape
from simcore.recording.wrappers import wrapped_in
from simcore.testing.judge import LIMIT, States, judge_alike
from simcore.testing.verdicts import AlikeResult, Allow, check_allow

Recorded = dict[str, Tensor]
PADDING = 3  # tokens added on the right of each example
MORE_PRECISE = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float32: torch.float64,
}
How = tuple[Pool, Given, Forward]
LISTS = (nn.ModuleList, nn.Sequential)  # of layers


@dataclass
class Runs:
    """A model and how its states are recorded."""

    model: nn.Module
    modules: Chooser
    pool: Pool
    mask: Given
    forward: Forward
    told: set[str] = field(default_factory=set)  # modules of which a warning was given

    def states(self, batches: Sequence[Any], model: nn.Module | None = None) -> Iterator[Recorded]:
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

    def of(self, batch: Any, model: nn.Module | None = None) -> Recorded:
        """Record one batch."""
        (states,) = self.states([batch], model)
        return states


def measure_noise(
    runs: Runs, batch: Any, other: torch.dtype | None
) -> tuple[dict[str, Recorded], list[str]]:
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


def check_alike(
    a: nn.Module | States,
    b: nn.Module | States,
    batch: Any = None,
    *,
    modules: Chooser | None = None,
    modules_b: Chooser | None = None,
    pool: Pool = None,
    mask: Given = None,
    forward: Forward | None = None,
    noise: Mapping[str, States] | None = None,
    limit: float = LIMIT,
    labels: Sequence[str] = (),
) -> AlikeResult:
    """Judge whether two models are the same, by the states of their layers for one batch.

    Parameters
    ----------
    a : nn.Module, or dict of str to array ``[n, p]``
        The reference, in eval mode. It runs again under circumstances that should make no
        difference, and its differences are the noise: the same batch again, batch size 1, rows in
        reverse, 3 tokens of padding on the right (of a dictionary with ``input_ids`` and
        ``attention_mask``, without ``position_ids``), another number of threads (on a CPU), a copy
        in the next more precise dtype, and a copy in the dtype of `b` where that is less precise.
    b : nn.Module, or dict of str to array ``[n, p]``
        The model in question, in eval mode; or its layers, as another program recorded them.
    batch : optional
        One batch, as in `simcore.compare`. Not for two dictionaries.
    modules, modules_b : str, list of str, or function, optional
        As in `simcore.record`; `modules_b` is `modules` by default. Default: the output, and the
        modules around and in lists such as ``encoder.layer``, without their parts. ``"**"`` is
        every module: it names the part of a block that diverges first.
    pool : str or function, optional
        As in `simcore.record`. Default: a row for each token that is no padding where the batch has
        a mask by name, else for each position.
    mask : optional
        As in `simcore.record`.
    forward : function, optional
        Called as ``forward(model, batch)``, with batches of one example too.
    noise : dict of str to dicts, optional
        States of `a` under more circumstances, or of two dictionaries: see `judge_alike`.
    limit, labels
        As in `judge_alike`. Default of `labels`: the example and the row within it.

    Returns
    -------
    AlikeResult
        ``print(result)`` has a line for each layer, and on top the first that diverges.

    Raises
    ------
    TypeError, ValueError
        As `simcore.record` and `judge_alike`; a model in training mode; a model without a batch; a
        dictionary as `a` and a model as `b`, since the noise is measured on `a`.

    Examples
    --------
    >>> import torch
    >>> from simcore.testing import check_alike
    >>> a = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> b = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    >>> _ = b.load_state_dict(a.state_dict())
    >>> result = check_alike(a.eval(), b.eval(), torch.randn(10, 4))
    >>> result.first().name
    '1'
    """
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return judge_alike(a, b, noise, limit=limit, labels=labels)
    if not isinstance(a, nn.Module):
        kind = "a dictionary" if isinstance(a, Mapping) else type(a).__name__
        raise TypeError(f"a: wanted an nn.Module, whose noise can be measured, got {kind}")
    if batch is None:
        raise TypeError("batch: wanted one batch, which the models are called with, got none")
    how = (_pool(pool, mask, batch), _mask(mask, batch), forward or call)
    runs = _runs("a", a, modules, how)
    states = runs.of(batch)
    if isinstance(b, nn.Module):
        chosen = modules if modules_b is None else modules_b
        states_b: States = _runs("b", b, chosen, how).of(batch)
        dtype = dtype_of(b)
    else:
        states_b, dtype = b, None
    measured, rows = measure_noise(runs, batch, dtype)
    every = {**measured, **(noise or {})}
    return judge_alike(states, states_b, every, limit=limit, labels=labels or rows)


def assert_alike(
    a: nn.Module | States,
    b: nn.Module | States,
    batch: Any = None,
    *,
    allow: Allow | None = None,
    **options: Any,
) -> None:
    """Raise an AssertionError with the report unless two models are the same, layer by layer.

    Parameters
    ----------
    a, b, batch
        As in `check_alike`.
    allow : {"scaled", "permuted", "rotated"}, optional
        What layers may be besides equal within noise; each contains those before it.
    **options
        Of `check_alike`.

    Raises
    ------
    AssertionError
        A layer differs, or only one model has it.
    TypeError, ValueError
        As `check_alike`; an unknown `allow`.

    Examples
    --------
    >>> import torch
    >>> from simcore.testing import assert_alike
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU()).eval()
    >>> assert_alike(model, model, torch.randn(10, 4))
    """
    check_allow(allow)
    result = check_alike(a, b, batch, **options)
    if not result.is_alike(allow):
        raise AssertionError(result.report(allow))


def _runs(side: str, model: nn.Module, modules: Chooser | None, how: How) -> Runs:
    if any(module.training for module in model.modules()):
        raise ValueError(
            f"{side}: wanted a model in eval mode, as model.eval() sets it, got others"
        )
    if modules is not None:
        return Runs(model, modules, *how)
    *_, core = wrapped_in(model)
    stages = {"", *_stages(core, "")}
    return Runs(model, lambda name, _: name in stages, *how, told=set(named_modules(core)))


def _stages(module: nn.Module, prefix: str) -> Iterable[str]:
    """Return the names of the modules in lists, and of those beside lists and around them."""
    for name, child in module.named_children():
        if isinstance(module, LISTS) or not _holds_list(child):
            yield prefix + name
        else:
            yield from _stages(child, f"{prefix}{name}.")


def _holds_list(module: nn.Module) -> bool:
    return any(isinstance(part, LISTS) and len(part) for part in module.modules())


def _has_mask(batch: Any) -> bool:
    return isinstance(batch, Mapping) and any(
        batch.get(name) is not None for name in PADDING_IS_TRUE
    )


def _mask(mask: Given, batch: Any) -> Given:
    return False if mask is None and not _has_mask(batch) else mask


def _pool(pool: Pool, mask: Given, batch: Any) -> Pool:
    if pool is not None:
        return pool
    return "tokens" if _mask(mask, batch) is not False else _positions


def _positions(states: Any) -> Any:
    """Return a row for each position of states ``[B, p]``, ``[B, T, p]`` or ``[B, C, ...]``."""
    if states.ndim > 3:
        states = states.flatten(2).transpose(1, 2)
    return states.flatten(0, -2)
