"""Where a model runs: on a device that holds all of it, or block by block.

The bytes that a model takes are read from the headers of its files, before any weight is.
"""

from __future__ import annotations

import math
import re

from simlab.errors import UserError, argument
from simlab.models.files import weight_files
from simlab.models.shards import OFFLOAD, SAFETENSORS, weight_shapes
from simlab.models.sources import ModelSource
from simlab.store.console import note
from simlab.store.runtime import best_device

AUTO, CPU = "auto", "cpu"
_GPU = re.compile(r"cuda(:\d+)?")
_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "float32": 4, "float16": 2, "bfloat16": 2}
_SMALL = 1e9  # bytes; the place of a smaller model is not worth a line


def check_device(device: str) -> None:
    """Raise UserError for an unknown device, or for a GPU that torch does not see."""
    if device in (AUTO, CPU, OFFLOAD):
        return
    if not _GPU.fullmatch(device):
        raise UserError(
            f"{argument('device', device)}: wanted {AUTO}, {CPU}, cuda, cuda:1 or {OFFLOAD}"
        )
    import torch  # planning a sweep does without it

    found = torch.cuda.device_count()
    if int(device.partition(":")[2] or 0) >= found:
        raise UserError(f"{argument('device', device)}: wanted a GPU that is here, found {found}")


def weight_bytes(source: ModelSource, weights: str) -> int:
    """Return the bytes that the weights of a model take in a precision.

    Parameters
    ----------
    weights
        ``float32``, ``bfloat16``, ``float16``, or ``auto``, the types in the files.
    """
    files = [file for file in weight_files(source.path) if file.suffix != SAFETENSORS]
    own = _BYTES.get(weights)
    stored = (
        math.prod(shape) * (own or _BYTES.get(dtype, 1))
        for shape, dtype in weight_shapes(source).values()
    )
    return sum(stored) + sum(file.stat().st_size for file in files)


def place(source: ModelSource, weights: str, device: str) -> str:
    """Return the device of torch on which a model computes, and say so in a note if it is large.

    Raises
    ------
    UserError
        The model needs more memory than is free there.
    """
    from simcore import free_memory

    check_device(device)
    computes = best_device() if device in (AUTO, OFFLOAD) else device
    wanted = weight_bytes(source, weights)
    size = f"{wanted / 1e9:.1f} GB of weights"
    if device == OFFLOAD:
        note(f"model {source.name}: {size}, read from disk one block at a time, on {computes}")
        return computes
    for where in dict.fromkeys((CPU, computes)):  # a GPU gets its weights from the host
        free = free_memory(where)
        if wanted > free:
            raise UserError(
                f"model {source.name}: wanted {size}, found {free / 1e9:.1f} GB of memory free on "
                f"{where}; use {argument('device', OFFLOAD)}"
            )
    if wanted > _SMALL:
        note(f"model {source.name}: {size} on {computes}")
    return computes
