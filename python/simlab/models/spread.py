"""A model over several devices: the GPUs, the memory of the host and the disk, by accelerate.

accelerate gives modules to devices in their order, as far as each has memory, and moves the inputs
of a module to it. Blocks stay whole here: a block whose parameters lie in several places may
compute something else without an error, as XLNet's do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

from simlab.errors import UserError, argument
from simlab.models.recognise import blocks_of
from simlab.store.console import note

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from simlab.models.sources import ModelSource

SPREAD = "spread"  # the device of models that lie on several
_CPU, _DISK = "cpu", "disk"
_SHARE = 0.8  # of the free memory; the states of a batch need the rest
_WORDS = {_CPU: "in memory", _DISK: "on disk"}


@contextmanager
def spread_folder(device: str, beside: Path) -> Iterator[Path | None]:
    """Give a folder in `beside` for `spread_over`, and delete it at the end.

    None for another device than `SPREAD`.
    """
    if device != SPREAD:
        yield None
        return
    with TemporaryDirectory(prefix=".weights-", dir=beside) as folder:
        yield Path(folder)


def spread_over(empty: PreTrainedModel, source: ModelSource, scratch: Path) -> dict[str, Any]:
    """Return the arguments by which transformers spreads a model, and say where each part goes.

    Parameters
    ----------
    empty
        The model without weights (`shards.empty_model`).
    scratch
        Folder for weights that are stored in another form than the model has them. It has to stay
        as long as the model.

    Raises
    ------
    UserError
        The blocks of the model are not known.
    """
    from accelerate import infer_auto_device_map

    blocks = blocks_of(empty)
    if not blocks:
        raise UserError(
            f"{argument('device', SPREAD)}: wanted a model with one list of blocks, found none in "
            f"a model of type {empty.config.model_type!r}"
        )
    room = free_memories()
    whole = [*dict.fromkeys(type(block).__name__ for block in blocks)]
    empty.tie_weights()
    found = infer_auto_device_map(
        empty,
        max_memory=cast(Any, room),
        no_split_module_classes=whole,
        dtype=empty.dtype,
    )
    note(f"model {source.name}: {_sizes(empty, found)}")
    return {"device_map": found, "offload_folder": str(scratch), "offload_buffers": True}


def free_memories() -> dict[int | str, int]:
    """Return the bytes that a model may take of every GPU and of the host."""
    import torch

    from simcore import free_memory

    gpus = range(torch.cuda.device_count())
    free: dict[int | str, int] = {n: int(_SHARE * free_memory(f"cuda:{n}")) for n in gpus}
    return {**free, _CPU: int(_SHARE * free_memory(_CPU))}


def is_spread(model: torch.nn.Module) -> bool:
    """Return whether accelerate has placed a model, which no caller may move."""
    return getattr(model, "hf_device_map", None) is not None


def loaded_weights(model: PreTrainedModel) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the name and the values of every parameter; those on disk are read one by one."""
    for name, weights in model.named_parameters():
        if not weights.is_meta:
            yield name, weights
            continue
        owner, _, leaf = name.rpartition(".")
        hook: Any = model.get_submodule(owner)._hf_hook
        stored = [one.weights_map for one in getattr(hook, "hooks", [hook])]
        yield name, next(one for one in stored if one is not None)[leaf]


def _sizes(model: PreTrainedModel, device_of: Mapping[str, Any]) -> str:
    """Return the bytes of the weights on every device, in words."""
    sizes: dict[Any, int] = {}
    for name, weights in model.named_parameters():
        path = name
        while path not in device_of:
            path = path.rpartition(".")[0] if path else ""
        sizes[device_of[path]] = sizes.get(device_of[path], 0) + weights.nbytes
    parts = [f"{size / 1e9:.1f} GB {_WORDS.get(d, f'on cuda:{d}')}" for d, size in sizes.items()]
    return f"{sum(sizes.values()) / 1e9:.1f} GB of weights: {', '.join(parts)}"
