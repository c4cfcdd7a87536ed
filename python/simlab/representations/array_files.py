"""Read the arrays of files that other programs wrote: npz, safetensors, HDF5.

Nothing is unpickled: objects in numpy's files are refused.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from simlab.errors import UserError, first_line
from simlab.results.results import natural_key

FLOATING = {"F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64"}
_SENTENCES = "sentence_to_index"  # JSON, the number of each sentence: AllenNLP and Wu et al.
_NUMBER = re.compile(r"(\d+)")


def in_order(names: list[str]) -> list[str]:
    """Return names of layers in the order of the file, or else of their numbers.

    A file keeps its order unless a number goes down between two names that are otherwise the same,
    as in ``layer.1, layer.10, layer.2``: then all names are sorted, with numbers as numbers.
    """
    last: dict[str, list[int]] = {}
    for name in names:
        pattern, numbers = _NUMBER.sub("#", name), [int(n) for n in _NUMBER.findall(name)]
        if last.get(pattern, []) > numbers:
            return sorted(names, key=natural_key)
        last[pattern] = numbers
    return names


@dataclass(frozen=True)
class StoredArray:
    """An array in a file, which is read when it is asked for."""

    where: str  # the file and the name of the array, for messages
    name: str
    shape: tuple[int, ...]
    dtype: str
    read: Callable[[], np.ndarray]

    def values(self) -> np.ndarray:
        """Return the values in float32, and check that they are finite."""
        try:
            values = self.read()
        except Exception as error:  # readers raise errors of any type for damaged files
            raise UserError(f"{self.where}: wanted values, found: {first_line(error)}") from error
        with np.errstate(over="ignore"):
            array = values.astype(np.float32, copy=False)
        bad = np.argwhere(~np.isfinite(array))
        if len(bad):
            found, (row, column) = values[tuple(bad[0])], bad[0][-2:]
            raise UserError(
                f"{self.where}: wanted finite values of float32, found {found} in row {row}, "
                f"column {column}"
            )
        return array


@contextmanager
def open_arrays(path: Path) -> Iterator[tuple[list[StoredArray], dict[int, str]]]:
    """Open a file, and yield its arrays and its sentences by number."""
    reader = _READERS.get(path.suffix.lower())
    if not path.is_file() or reader is None:
        found = path.suffix or "no suffix" if path.is_file() else "no such file"
        found = "a folder" if path.is_dir() else found
        raise UserError(f"{path}: wanted a file of arrays ({' '.join(_READERS)}), found {found}")
    with ExitStack() as stack:
        try:
            arrays, texts = reader(path, stack)
        except UserError:
            raise
        except Exception as error:  # readers raise errors of any type for damaged files
            reason = first_line(error)
            raise UserError(f"{path}: wanted {path.suffix} arrays, found: {reason}") from error
        if not arrays:
            raise UserError(f"{path}: wanted an array, found none")
        yield arrays, texts


def _read_npz(path: Path, stack: ExitStack) -> tuple[list[StoredArray], dict[int, str]]:
    stored = stack.enter_context(np.load(path, allow_pickle=False))
    archive = stack.enter_context(zipfile.ZipFile(path))
    arrays = []
    for name in stored.files:
        with archive.open(name if name in archive.namelist() else f"{name}.npy") as stream:
            old = np.lib.format.read_magic(stream) == (1, 0)
            header = np.lib.format
            read = header.read_array_header_1_0 if old else header.read_array_header_2_0
            shape, _, dtype = read(stream)
        if dtype.hasobject:
            raise UserError(f"{path}: wanted arrays of numbers, found objects in {name!r}")
        get = partial(stored.__getitem__, name)
        arrays.append(StoredArray(f"{path}, {name}", name, shape, dtype.name, get))
    return arrays, {}


def _read_safetensors(path: Path, stack: ExitStack) -> tuple[list[StoredArray], dict[int, str]]:
    from safetensors import safe_open

    # By torch: numpy has no bfloat16.
    tensors = stack.enter_context(safe_open(path, "pt"))
    arrays = []
    for name in tensors.offset_keys():
        part = tensors.get_slice(name)
        dtype, shape = FLOATING.get(part.get_dtype(), part.get_dtype()), tuple(part.get_shape())
        arrays.append(
            StoredArray(f"{path}, {name}", name, shape, dtype, partial(_tensor, tensors, name))
        )
    return arrays, {}


def _tensor(tensors: Any, name: str) -> np.ndarray:
    import torch

    tensor = tensors.get_tensor(name)
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def _read_hdf5(path: Path, stack: ExitStack) -> tuple[list[StoredArray], dict[int, str]]:
    import h5py

    def items(group: h5py.Group) -> Iterator[h5py.Dataset]:
        for name in group:  # in the order of the file, if it was written with `track_order`
            if isinstance(group.get(name, getlink=True), h5py.HardLink):
                item = group[name]
                yield from items(item) if isinstance(item, h5py.Group) else [item]

    found = {item.name[1:]: item for item in items(stack.enter_context(h5py.File(path)))}
    index, texts = found.pop(_SENTENCES, None), dict[int, str]()
    if index is not None:
        try:
            numbers = json.loads(np.atleast_1d(index.asstr()[()])[0])
            texts = {int(number): sentence for sentence, number in numbers.items()}
        except (TypeError, ValueError, AttributeError, IndexError) as error:
            raise UserError(
                f"{path}, {_SENTENCES}: wanted JSON with the number of each sentence, found: "
                f"{first_line(error)}"
            ) from error
    arrays = [
        StoredArray(
            f"{path}, {n}", n, item.shape or (), item.dtype.name, partial(item.__getitem__, ())
        )
        for n, item in found.items()
    ]
    return arrays, texts


_READERS = {
    ".npz": _read_npz,
    ".safetensors": _read_safetensors,
    **dict.fromkeys((".h5", ".hdf5"), _read_hdf5),
}
