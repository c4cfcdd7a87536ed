"""Arrays on disk that are filled piece by piece, so that they never have to fit into memory."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from simlab.store.files import create_reserved, writing

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
        Writable views of the file by name, zero at first, of the given shapes. All of the file has
        room on the disk, so that writing to them cannot fail for lack of it; `store` them.

    Raises
    ------
    WriteError
        The file does not fit.
    """
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + _FLOAT32_BYTES * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)  # the format pads headers with spaces
    start = 8 + len(text)
    create_reserved(path, start + end)
    with path.open("r+b") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
    data = np.memmap(path, np.float32, "r+", start, (end // _FLOAT32_BYTES,)) if end else None
    arrays = {}
    for name, entry in header.items():
        begin, finish = (offset // _FLOAT32_BYTES for offset in entry["data_offsets"])
        flat = np.empty(0, np.float32) if data is None else data[begin:finish]
        arrays[name] = flat.reshape(entry["shape"])
    return arrays


def store(arrays: Iterable[np.ndarray]) -> None:
    """Have the system write out the `arrays` of `create_safetensors`.

    It does so by itself at some time, but then nobody hears of an error: a network file system may
    find only now that its server has no room.

    Raises
    ------
    WriteError
        The disk or the server refused.
    """
    for array in arrays:
        if isinstance(array, np.memmap):  # an empty file is not mapped
            with writing(Path(array.filename)):
                array.flush()
