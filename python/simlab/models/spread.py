"""A model over several devices: the GPUs, the memory of the host and the disk, by accelerate.

Blocks go to the devices in their order, as far as each has memory, and accelerate moves the inputs
of a block to it. A block stays whole: one whose parameters lie in several places may compute
something else without an error, as XLNet's do. Everything else (embeddings, norms, a pooler) stays
on the first device, because some models read it without a call (DeBERTa's relative positions).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from simlab.errors import UserError, argument
from simlab.models.recognise import blocks_of
from simlab.store.console import note

if TYPE_CHECKING:
    import torch
    from torch import nn
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

    `empty` is the model without weights (`shards.empty_model`). Weights that are stored in another
    form than the model has them go to folder `scratch`, which has to stay as long as the model.
    """
    logging.getLogger("accelerate.big_modeling").setLevel(logging.ERROR)  # the note says it
    blocks = blocks_of(empty)
    if not blocks:
        raise UserError(
            f"{argument('device', SPREAD)}: wanted a model with one list of blocks, found none in "
            f"a model of type {empty.config.model_type!r}"
        )
    device_of = _places(empty, [*dict.fromkeys(blocks)], free_memories(), source.name)
    note(f"model {source.name}: {_sizes(empty, device_of)}")
    return {"device_map": device_of, "offload_folder": str(scratch), "offload_buffers": True}


def _places(
    model: PreTrainedModel, blocks: Sequence[nn.Module], room: Mapping[int | str, int], name: str
) -> dict[str, int | str]:
    """Return the device of every block, and of every module beside them.

    `room` has the bytes for weights on each device, the first device first. The modules beside the
    blocks have to fit on the first device together with the largest block.
    """
    first, *_ = devices = list(room)
    sizes = [sum(weights.nbytes for weights in block.parameters()) for block in blocks]
    whole = sum(weights.nbytes for weights in model.parameters())
    left = dict(room)
    if whole <= room[first]:
        return {"": first}
    left[first] -= whole - sum(sizes) + max(sizes)  # blocks from memory and disk run there
    if left[first] < 0:
        wanted, found = (room[first] - left[first]) / 1e9, room[first] / 1e9
        where = "in memory" if first == _CPU else f"on cuda:{first}"
        raise UserError(
            f"model {name}: wanted {wanted:.2f} GB {where} for one block and all that is no block, "
            f"found {found:.2f} GB; {argument('device', 'offload')} needs less"
        )
    path_of = {module: path for path, module in model.named_modules()}
    placed: dict[str, int | str] = {}
    for block, size in zip(blocks, sizes, strict=True):
        while devices and left[devices[0]] < size:
            devices.pop(0)
        if devices:
            left[devices[0]] -= size
        placed[path_of[block]] = devices[0] if devices else _DISK
    return placed | dict.fromkeys(_beside(model, placed), first)


def _beside(module: nn.Module, blocks: Collection[str], path: str = "") -> Iterator[str]:
    """Yield the paths of modules and parameters that are no blocks, nor in a block or around it."""
    start = f"{path}." if path else ""
    yield from (f"{start}{name}" for name, _ in module.named_parameters(recurse=False))
    yield from (f"{start}{name}" for name, _ in module.named_buffers(recurse=False))
    for name, child in module.named_children():
        inner = f"{start}{name}"
        if inner in blocks:
            continue
        if any(block.startswith(f"{inner}.") for block in blocks):
            yield from _beside(child, blocks, inner)
        else:
            yield inner


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
