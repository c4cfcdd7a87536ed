"""Arrays on disk that are filled piece by piece, so that they never have to fit into memory."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from simlab.store.files import create_reserved, writing

_NAMES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}  # of types, in the header
BFLOAT16 = "bfloat16"  # unknown to numpy, which holds its bits as `_BITS`
_BITS = "uint16"
_ALIGNMENT = 8


def create_safetensors(
    path: Path, shapes: Mapping[str, tuple[int, ...]], dtype: str = "float32"
) -> dict[str, np.ndarray]:
    """Create a safetensors file of zeros, and return writable views of its tensors by name.

    The whole file has room on the disk, so writing to the views cannot fail for lack of room; call
    `flush_arrays` at the end. The views of a ``bfloat16`` file take what `as_bits` gives.
    """
    # The writer of the safetensors library takes finished tensors and holds all of them in memory
    # twice. The format is a length, a JSON header and the bytes, so a file of known shapes can be
    # created first and filled later; the safetensors library reads the file as usual.
    header: dict[str, dict[str, Any]] = {}
    end = 0
    name_in_file = _NAMES[dtype]
    dtype = _BITS if dtype == BFLOAT16 else dtype
    item = np.dtype(dtype).itemsize
    for name, shape in shapes.items():
        begin, end = end, end + item * math.prod(shape)
        header[name] = {"dtype": name_in_file, "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)  # the format pads headers with spaces
    start = 8 + len(text)
    create_reserved(path, start + end)
    with path.open("r+b") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
    data = np.memmap(path, dtype, "r+", start, (end // item,)) if end else None
    arrays = {}
    for name, entry in header.items():
        begin, finish = (offset // item for offset in entry["data_offsets"])
        flat = np.empty(0, dtype) if data is None else data[begin:finish]
        arrays[name] = flat.reshape(entry["shape"])
    return arrays


def map_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Map the tensors of a file of `create_safetensors` for reading, without loading them."""
    with path.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        header = json.loads(stream.read(length))
    header.pop("__metadata__", None)
    types = {name: dtype for dtype, name in _NAMES.items()}
    size = max((entry["data_offsets"][1] for entry in header.values()), default=0)
    data = np.memmap(path, np.uint8, "r", 8 + length, (size,)) if size else np.empty(0, np.uint8)
    arrays = {}
    for name, entry in header.items():
        dtype = types[entry["dtype"]]
        flat = np.asarray(data[slice(*entry["data_offsets"])])
        values = _from_bits(flat.view(_BITS)) if dtype == BFLOAT16 else flat.view(dtype)
        arrays[name] = values.reshape(entry["shape"])
    return arrays


def as_bits(values: np.ndarray) -> np.ndarray:
    """Return the bits of `values`, rounded to bfloat16."""
    import torch

    floats = torch.from_numpy(np.ascontiguousarray(values, np.float32))
    return floats.bfloat16().view(torch.uint16).numpy()


def _from_bits(bits: np.ndarray) -> np.ndarray:
    """Return the float32 values of bfloat16, which are the upper halves of their bits."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def flush_arrays(arrays: Iterable[np.ndarray]) -> None:
    """Have the system write the `arrays` of `create_safetensors` to the disk now.

    The system writes them at some time in any case, but then reports no error: a network file
    system may only now find that its server has no room, which raises WriteError.
    """
    for array in arrays:
        if isinstance(array, np.memmap):  # an empty file is not mapped
            assert array.filename is not None
            with writing(Path(array.filename)):
                array.flush()
