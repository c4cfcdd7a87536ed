"""Read the arrays in files that other programs wrote, piece by piece.

`READERS` lists the formats: npy, npz, safetensors, HDF5, and files of ``torch.save``.
Nothing is unpickled: objects in numpy's files are refused, and torch reads tensors alone
(``weights_only``).
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from simlab.errors import UserError, first_line
from simlab.store.labels import natural_key

IDS = "ids"  # the name under which a file may hold the ids of its rows
SENTENCES = "sentence_to_index"  # JSON, the number of each sentence: AllenNLP and Wu et al.
_NUMBER = re.compile(r"(\d+)")
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


@dataclass(frozen=True)
class StoredArray:
    """An array in a file."""

    where: str  # the file and the name of the array, for messages
    name: str  # empty if the file holds a single array without a name
    shape: tuple[int, ...]
    dtype: str
    # Returns `array[key]`; a key is a slice, or an index and a slice.
    get: Callable[[Any], np.ndarray]

    @property
    def is_floating(self) -> bool:
        """Return whether the values are numbers with a fraction."""
        return self.dtype in ("float16", "bfloat16", "float32", "float64")

    def read(self, key: Any) -> np.ndarray:
        """Return ``array[key]``, or raise a UserError if the file is damaged there."""
        try:
            return self.get(key)
        except Exception as error:  # readers raise errors of any type for damaged files
            raise UserError(f"{self.where}: wanted values, found: {first_line(error)}") from error


@dataclass(frozen=True)
class ArrayFile:
    """The arrays of a file in their order, and the ids and sentences that come with them."""

    path: Path
    arrays: list[StoredArray]
    ids: list[str] | None = None
    sentences: dict[int, str] | None = field(default=None)  # by number, from `SENTENCES`


@contextmanager
def open_arrays(path: Path) -> Iterator[ArrayFile]:
    """Open a file of arrays; they can be read until the block ends.

    Content that is damaged or pickled, or that is no array, raises a UserError.
    """
    wanted = " ".join(READERS)
    if not path.is_file():
        found = "a folder" if path.is_dir() else "no such file"
        raise UserError(f"{path}: wanted a file of arrays ({wanted}), found {found}")
    if path.suffix.lower() not in READERS:
        raise UserError(f"{path}: wanted a file of arrays ({wanted}), found {path.suffix or path}")
    with ExitStack() as stack:
        try:
            file = stack.enter_context(READERS[path.suffix.lower()](path))
        except UserError:
            raise
        except Exception as error:  # readers raise errors of any type for damaged files
            found = f"found: {first_line(error)}"
            raise UserError(f"{path}: wanted {path.suffix} arrays, {found}") from error
        if not file.arrays:
            raise UserError(f"{path}: wanted an array, found none")
        yield file


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


@contextmanager
def _open_npy(path: Path) -> Iterator[ArrayFile]:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise UserError(f"{path}: wanted one array, found an archive; rename it to .npz")
    stored = StoredArray(str(path), "", array.shape, array.dtype.name, array.__getitem__)
    yield ArrayFile(path, [stored])


@contextmanager
def _open_npz(path: Path) -> Iterator[ArrayFile]:
    with zipfile.ZipFile(path) as archive, np.load(path, allow_pickle=False) as arrays:
        shapes = {name: _npz_header(archive, name) for name in arrays.files}
        load = lru_cache(maxsize=1)(arrays.__getitem__)  # each array is read in pieces

        def stored(name: str) -> StoredArray:
            shape, dtype = shapes[name]
            if dtype.hasobject:
                raise UserError(f"{path}: wanted arrays of numbers, found objects in {name!r}")
            where = f"{path}, {name}"
            return StoredArray(where, name, shape, dtype.name, lambda key: load(name)[key])

        ids = _texts(arrays[IDS], path) if IDS in arrays.files else None
        yield ArrayFile(path, [stored(name) for name in arrays.files if name != IDS], ids)


def _npz_header(archive: zipfile.ZipFile, name: str) -> tuple[tuple[int, ...], np.dtype]:
    member = name if name in archive.namelist() else f"{name}.npy"
    with archive.open(member) as stream:
        shape, _, dtype = _HEADERS[np.lib.format.read_magic(stream)](stream)
    return shape, dtype


@contextmanager
def _open_safetensors(path: Path) -> Iterator[ArrayFile]:
    from safetensors import safe_open

    types = {"F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64"}
    with safe_open(path, "pt") as tensors:  # torch has bfloat16, numpy has not
        with path.open("rb") as stream:  # the library gives the names in another order
            (length,) = np.frombuffer(stream.read(8), "<u8")
            header = json.loads(stream.read(int(length)))
        extra = header.pop("__metadata__", {})

        def stored(name: str) -> StoredArray:
            dtype, where = header[name]["dtype"], f"{path}, {name}"
            part = tensors.get_slice(name)
            shape = tuple(header[name]["shape"])
            return StoredArray(
                where, name, shape, types.get(dtype, dtype), lambda key: _as_numpy(part[key])
            )

        ids = _texts(json.loads(extra[IDS]), path) if IDS in extra else None
        yield ArrayFile(path, [stored(name) for name in header], ids)


@contextmanager
def _open_hdf5(path: Path) -> Iterator[ArrayFile]:
    import h5py

    with h5py.File(path, "r") as file:
        items_of: dict[str, Any] = {}
        file.visititems(lambda name, item: items_of.update({name: item}))
        names = sorted(items_of, key=_place_in(file))
        items = {name: items_of[name] for name in names if isinstance(items_of[name], h5py.Dataset)}
        ids = _texts(_plain(items.pop(IDS)), path) if IDS in items else None
        sentences = _sentences(items.pop(SENTENCES), path) if SENTENCES in items else None
        arrays = [
            StoredArray(
                f"{path}, {name}", name, item.shape or (), item.dtype.name, item.__getitem__
            )
            for name, item in items.items()
        ]
        yield ArrayFile(path, arrays, ids, sentences)


def _place_in(file: Any) -> Callable[[str], list[int]]:
    """Return the key that sorts names as the file lists them: as they came, if it knows that."""

    @cache
    def places(group: str) -> dict[str, int]:
        return {name: place for place, name in enumerate(file[group])}

    def key(name: str) -> list[int]:
        parts = name.split("/")
        return [places("/".join(["", *parts[:i]]) or "/")[part] for i, part in enumerate(parts)]

    return key


def _plain(item: Any) -> np.ndarray:
    """Return the values of a data set, with texts as texts and not as bytes."""
    return item.asstr()[()] if item.dtype.kind in "OS" else item[()]


def _sentences(item: Any, path: Path) -> dict[int, str]:
    """Return the sentence of each number; the JSON has the number of each sentence."""
    try:
        texts = np.atleast_1d(item.asstr()[()])
        numbers = json.loads(texts[0])
        return {int(number): sentence for sentence, number in numbers.items()}
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        raise UserError(
            f"{path}, {SENTENCES}: wanted JSON with the number of each sentence, found: "
            f"{first_line(error)}"
        ) from error


@contextmanager
def _open_torch(path: Path) -> Iterator[ArrayFile]:
    import pickle

    import torch

    try:
        mapped = zipfile.is_zipfile(path)  # files of torch before 1.6 cannot be mapped
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:
        other = re.search(r"GLOBAL (\S+)", str(error))
        raise UserError(
            f"{path}: wanted tensors alone, found {other[1] if other else 'another object'}; "
            "nothing is unpickled"
        ) from error
    ids = None
    if isinstance(content, Mapping):
        tensors = {str(name): value for name, value in content.items()}
        ids = _texts(tensors.pop(IDS), path) if IDS in tensors else None
    elif isinstance(content, list | tuple):
        tensors = {str(number): value for number, value in enumerate(content)}
    else:
        tensors = {"": content}
    for name, value in tensors.items():
        if not isinstance(value, torch.Tensor):
            raise UserError(
                f"{path}: wanted a tensor, a list or a dict of tensors, found a "
                f"{type(value).__name__}{f' in {name!r}' if name else ''}"
            )
    yield ArrayFile(path, [_of_torch(path, name, value) for name, value in tensors.items()], ids)


def _of_torch(path: Path, name: str, tensor: Any) -> StoredArray:
    where = f"{path}, {name}" if name else str(path)
    dtype = str(tensor.dtype).removeprefix("torch.")
    shape = tuple(tensor.shape)
    return StoredArray(where, name, shape, dtype, lambda key: _as_numpy(tensor.detach()[key]))


def _as_numpy(tensor: Any) -> np.ndarray:
    import torch

    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def _texts(values: Any, path: Path) -> list[str]:
    """Return ids as strings; numbers stand for themselves."""
    values = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(values, list) or not all(isinstance(one, str | int) for one in values):
        raise UserError(f"{path}: wanted {IDS} that are texts or whole numbers, found others")
    return [str(value) for value in values]


READERS: dict[str, Callable[[Path], AbstractContextManager[ArrayFile]]] = {
    ".npy": _open_npy,
    ".npz": _open_npz,
    ".safetensors": _open_safetensors,
    **dict.fromkeys((".h5", ".hdf5"), _open_hdf5),
    **dict.fromkeys((".pt", ".pth"), _open_torch),
}
