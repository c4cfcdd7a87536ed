"""Where a model runs: on a device that holds all of it, or over several devices and the disk.

The bytes that a model takes are read from the headers of its files, before any weight is. On
``spread`` and ``offload``, accelerate places the model: blocks go to the GPUs, the memory of the
host and the disk in this order, as far as each has room (``offload``: all to the disk). Blocks on
the disk are read whenever they run, once per batch. A block stays whole: one whose parameters lie
in several places may compute something else without an error, as XLNet's do. Everything else
(embeddings, norms, a pooler) stays on the first device, because some models read it without a call
(DeBERTa's relative positions).
"""

from __future__ import annotations

import logging
import math
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.errors import UserError, argument
from simlab.models.hub import weight_files
from simlab.models.recognise import blocks_of
from simlab.models.sources import load_errors
from simlab.store.console import note
from simlab.store.files import real_output, writing
from simlab.store.runtime import best_device

if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PreTrainedConfig, PreTrainedModel

    from simlab.models.sources import ModelSource

AUTO, CPU, SPREAD, OFFLOAD = "auto", "cpu", "spread", "offload"
PRECISIONS = ("float32", "bfloat16", "float16", "auto")  # of the weights of an encoder
_DISK = "disk"
_GPU = re.compile(r"cuda(:\d+)?")
_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
# Types of floating point: how files of safetensors name them, and how torch does.
_TYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float64"}
_SAFETENSORS = ".safetensors"
_SMALL = 1e9  # bytes; the place of a smaller model is not worth a line
_SHARE = 0.8  # of the free memory; the states of a batch need the rest
_WORDS: dict[int | str, str] = {CPU: "in memory", _DISK: "on disk"}


def check_device(device: str, *, spreads: bool = False, in_blocks: bool = False) -> None:
    """Raise UserError for an unknown device, or for a GPU that torch does not see.

    With `spreads`, the caller can use a model that lies on several devices; with `in_blocks`, one
    whose blocks lie on the disk.
    """
    more = [name for name, able in ((SPREAD, spreads), (OFFLOAD, in_blocks)) if able]
    if device in (AUTO, CPU, *more):
        return
    if device == OFFLOAD:
        raise UserError(f"{argument('device', device)}: wanted a device that holds the whole model")
    if not _GPU.fullmatch(device):
        *others, last = (AUTO, CPU, "cuda", "cuda:1", *more)
        raise UserError(f"{argument('device', device)}: wanted {', '.join(others)} or {last}")
    import torch  # planning a sweep does without it

    found = torch.cuda.device_count()
    if int(device.partition(":")[2] or 0) >= found:
        raise UserError(f"{argument('device', device)}: wanted a GPU that is here, found {found}")


@contextmanager
def scratch_beside(output: Path) -> Iterator[Path]:
    """Give an empty hidden folder beside file `output`, and delete it at the end.

    Its name follows from the name of the output, whose lock the caller holds. So the folder of a
    process that was killed is found, and deleted, by the next one.
    """
    output = real_output(output)
    folder = output.with_name(f".{output.name}.scratch")
    shutil.rmtree(folder, ignore_errors=True)
    with writing(folder):
        folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _stored(source: ModelSource) -> Iterator[tuple[int, str]]:
    """Yield size and type, as torch names it, of each tensor in the files of a model.

    The headers of the files are read, and no weight.
    """
    import torch
    from safetensors import safe_open

    for file in weight_files(source.path):
        with load_errors(source, "whole weights"):
            if file.suffix != _SAFETENSORS:
                for one in torch.load(file, map_location="meta", weights_only=True).values():
                    if isinstance(one, torch.Tensor):  # a pickle may hold more
                        yield one.numel(), str(one.dtype).removeprefix("torch.")
                continue
            with safe_open(file, "pt") as opened:
                for name in opened.keys():  # noqa: SIM118
                    tensor = opened.get_slice(name)
                    dtype = tensor.get_dtype()
                    yield math.prod(tensor.get_shape()), _TYPES.get(dtype, dtype)


def weight_bytes(source: ModelSource, weights: str) -> int:
    """Return the bytes of the weights of a model in a precision; ``auto`` is as in the files."""
    own = _BYTES.get(weights)
    return sum(size * (own or _BYTES.get(dtype, 1)) for size, dtype in _stored(source))


def place(
    source: ModelSource,
    weights: str | None,
    device: str,
    *,
    random_init: bool = False,
    in_blocks: bool = True,
) -> str:
    """Return the device of torch on which a model computes, and say so in a note if it is large.

    A model that needs more memory than is free there is refused; only with `in_blocks`, the message
    advises to leave its blocks on the disk. Of a random twin (`random_init`), no file is read.
    """
    from simcore import free_memory

    check_device(device, spreads=True, in_blocks=True)
    computes = best_device() if device in (AUTO, OFFLOAD, SPREAD) else device
    if random_init or device in (OFFLOAD, SPREAD):  # `spread_over` looks at the memory
        return computes
    wanted = weight_bytes(source, weights or PRECISIONS[0])
    for where in dict.fromkeys((computes, CPU)):  # a GPU gets its weights from the host
        free = free_memory(where)
        if wanted > free:
            advice = "use a machine with this memory"
            if in_blocks:
                advice = f"use {argument('device', OFFLOAD)}"
            elif weights == PRECISIONS[0]:
                advice = f"use {argument('weights', PRECISIONS[1])}"
            raise UserError(
                f"model {source.name}: wanted {wanted / 1e9:.1f} GB of weights, found "
                f"{free / 1e9:.1f} GB of memory free on {where}; {advice}"
            )
    if wanted > _SMALL:
        note(f"model {source.name}: {wanted / 1e9:.1f} GB of weights on {computes}")
    return computes


def stored_type(source: ModelSource) -> str:
    """Return the type of the first tensor of floating point in the files of a model.

    As transformers does for the type ``auto`` where the configuration names none.
    """
    return next((dtype for _, dtype in _stored(source) if dtype in _TYPES.values()), "float32")


def empty_model(
    auto_class: Any, config: PreTrainedConfig, dtype: torch.dtype, **how: Any
) -> PreTrainedModel:
    """Return a model of `auto_class` whose weights have shapes and no values."""
    import torch

    with torch.device("meta"):
        model: PreTrainedModel = auto_class.from_config(config, dtype=dtype, **how)
    return model


def spread_over(
    empty: PreTrainedModel, source: ModelSource, device: str, scratch: Path | None
) -> dict[str, Any]:
    """Return the arguments by which transformers spreads a model, and say where each part goes.

    `device` is `SPREAD` or `OFFLOAD`. Weights that are stored in another form than the model has
    them go to folder `scratch`, which has to stay as long as the model.
    """
    logging.getLogger("accelerate.big_modeling").setLevel(logging.ERROR)  # the note says it
    if not (blocks := blocks_of(empty)):
        raise UserError(
            f"{argument('device', device)}: wanted a model with one list of blocks, found none in "
            f"a model of type {empty.config.model_type!r}"
        )
    path_of = {module: path for path, module in empty.named_modules()}
    sizes = {path_of[block]: _bytes(block) for block in blocks}  # shared blocks are one
    room, whole = free_memories(), _bytes(empty)
    first = next(iter(room))
    placed = _places(sizes, whole, room, source.name, device)
    held: dict[int | str, int] = {first: whole - sum(sizes.values())}
    for path, where in placed.items():
        held[where] = held.get(where, 0) + sizes[path]
    parts = [f"{size / 1e9:.1f} GB {_WORDS.get(d, f'on cuda:{d}')}" for d, size in held.items()]
    note(f"model {source.name}: {whole / 1e9:.1f} GB of weights: {', '.join(parts)}")
    device_map: dict[str, int | str] = {"": first}
    if held.keys() != {first}:
        device_map = placed | dict.fromkeys(_beside(empty, placed), first)
    return {"device_map": device_map, "offload_folder": scratch, "offload_buffers": True}


def _places(
    sizes: Mapping[str, int],  # bytes of every block
    whole: int,  # bytes of the model
    room: dict[int | str, int],  # bytes for weights on each device, the first device first
    name: str,
    device: str,
) -> dict[str, int | str]:
    """Return the device of every block."""
    first, *_ = devices = list(room)
    if device == OFFLOAD:
        devices.clear()
    elif whole <= room[first]:
        return dict.fromkeys(sizes, first)
    needed = whole - sum(sizes.values()) + max(sizes.values())  # blocks on disk run on the first
    if needed > room[first]:
        where = "in memory" if first == CPU else f"on cuda:{first}"
        raise UserError(
            f"model {name}: wanted {needed / 1e9:.2f} GB {where} for one block and all that is no "
            f"block, found {room[first] / 1e9:.2f} GB"
        )
    room[first] -= needed
    placed: dict[str, int | str] = {}
    for path, size in sizes.items():
        while devices and room[devices[0]] < size:
            devices.pop(0)
        placed[path] = devices[0] if devices else _DISK
        if devices:
            room[devices[0]] -= size
    return placed


def _bytes(module: nn.Module) -> int:
    return sum(weights.nbytes for weights in module.parameters())


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
    return {**free, CPU: int(_SHARE * free_memory(CPU))}


def is_spread(model: nn.Module) -> bool:
    """Return whether accelerate has placed a model, which no caller may move."""
    return getattr(model, "hf_device_map", None) is not None


def moved(model: Any, device: str) -> Any:
    """Return `model` on a device of torch, or where accelerate has placed it."""
    return model if is_spread(model) else model.to(device)


def loaded_weights(
    model: PreTrainedModel, fresh: Collection[str] = ()
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield name and values of every parameter but `fresh`; those on disk are read one by one."""
    from transformers.integrations.accelerate import load_offloaded_parameter

    for name, weights in model.named_parameters():
        if name not in fresh:
            yield name, load_offloaded_parameter(model, name) if weights.is_meta else weights
