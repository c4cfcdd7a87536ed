"""Arrays on disk that are filled piece by piece, so that they never have to fit into memory."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np

_FLOAT32_BYTES = 4
_ALIGNMENT = 8


def create_safetensors(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Lay out a safetensors file of float32 tensors and map each one for writing.

    The library's own writer takes finished tensors and holds all of them in memory twice; the
    format is a length, a JSON header and the bytes, so a file of known shapes can be made first
    and filled later. `safetensors` reads it.

    Returns
    -------
    dict of ndarray
        Writable views of the file by name, zero at first, of the given shapes.
    """
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + _FLOAT32_BYTES * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)  # the format pads headers with spaces
    start = 8 + len(text)
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        stream.truncate(start + end)
    data = np.memmap(path, np.float32, "r+", start, (end // _FLOAT32_BYTES,)) if end else None
    arrays = {}
    for name, entry in header.items():
        begin, finish = (offset // _FLOAT32_BYTES for offset in entry["data_offsets"])
        flat = np.empty(0, np.float32) if data is None else data[begin:finish]
        arrays[name] = flat.reshape(entry["shape"])
    return arrays
