"""Where a model runs: on a device that holds all of it, or block by block.

The bytes that a model takes are read from the headers of its files, before any weight is.
"""

from __future__ import annotations

import math
import re
from zipfile import is_zipfile

from simlab.errors import UserError, argument
from simlab.models.files import weight_files
from simlab.models.load import PRECISIONS, load_config
from simlab.models.shards import OFFLOAD, SAFETENSORS, empty_model, weight_shapes
from simlab.models.sources import ModelSource
from simlab.models.spread import SPREAD
from simlab.store.console import note
from simlab.store.runtime import best_device

AUTO, CPU = "auto", "cpu"
_GPU = re.compile(r"cuda(:\d+)?")
_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
_SMALL = 1e9  # bytes; the place of a smaller model is not worth a line


def check_device(device: str, *, spreads: bool = False, in_blocks: bool = True) -> None:
    """Raise UserError for an unknown device, or for a GPU that torch does not see.

    With `spreads`, the caller can use a model that lies on several devices; with `in_blocks`, the
    caller can run it block by block.
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


def weight_bytes(source: ModelSource, weights: str) -> int:
    """Return the bytes of the weights of a model in a precision; ``auto`` is as in the files."""
    own = _BYTES.get(weights)
    return sum(
        math.prod(shape) * (own or _BYTES.get(dtype, 1))
        for shape, dtype in weight_shapes(source).values()
    )


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
    advises to run it block by block. The weights of a random twin (`random_init`) are drawn in
    float32 and then rounded.
    """
    from simcore import free_memory

    check_device(device, spreads=True)
    computes = best_device() if device in (AUTO, OFFLOAD, SPREAD) else device
    if device == SPREAD:  # `spread_over` says where
        return computes
    if random_init:
        count = _parameters(source)
        loaded, wanted = 4 * count, _BYTES.get(weights or PRECISIONS[0], 4) * count
    else:
        wanted = weight_bytes(source, weights or PRECISIONS[0])
        loaded = wanted + _unmapped_bytes(source)
    if device == OFFLOAD:
        size = f"{wanted / 1e9:.1f} GB of weights"
        note(f"model {source.name}: {size}, read from disk one block at a time, on {computes}")
        return computes
    # A GPU gets its weights from the host.
    for where, size in {computes: wanted, CPU: loaded}.items():
        free = free_memory(where)
        if size > free:
            raise UserError(
                f"model {source.name}: wanted {size / 1e9:.1f} GB of weights, found "
                f"{free / 1e9:.1f} GB of memory free on {where}; "
                f"{_advice(source, weights, random_init, in_blocks)}"
            )
    if wanted > _SMALL:
        note(f"model {source.name}: {wanted / 1e9:.1f} GB of weights on {computes}")
    return computes


def _parameters(source: ModelSource) -> int:
    """Return the number of weights of a random twin."""
    import torch
    from transformers import AutoModel

    config = load_config(source)
    model = empty_model(AutoModel, config, torch.float32)
    return sum(weight.numel() for weight in model.parameters())


def _unmapped_bytes(source: ModelSource) -> int:
    """Return the bytes of files that torch reads whole beside the model: its format before 1.6."""
    pickled = [file for file in weight_files(source.path) if file.suffix != SAFETENSORS]
    return sum(file.stat().st_size for file in pickled if not is_zipfile(file))


def _advice(source: ModelSource, weights: str | None, random_init: bool, in_blocks: bool) -> str:
    """Return the way to less memory that is open to a model."""
    pickled = [file.name for file in weight_files(source.path) if file.suffix != SAFETENSORS]
    offload = argument("device", OFFLOAD)
    if random_init:
        return "a random twin is drawn in float32 and needs a machine with this memory"
    if in_blocks and not pickled:
        return f"use {offload}"
    if in_blocks:
        return (
            f"{offload} needs safetensors files, which `save_pretrained` writes, and not "
            f"{pickled[0]}"
        )
    half = argument("weights", PRECISIONS[1])
    return f"use {half}" if weights == PRECISIONS[0] else "use a machine with this memory"
