"""The layouts of arrays that other programs write: layers, or an array for each sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simlab.errors import UserError, argument
from simlab.representations.array_files import ArrayFile, StoredArray, in_order, open_arrays
from simlab.representations.folder import LayerWriter

_LAYOUTS = "[rows, columns], [layers, rows, columns] or one [layers, words, columns] a sentence"
_PIECE = 1 << 24  # bytes that are read at once


@dataclass(frozen=True)
class _Layer:
    """A layer [n, p]: an array, or one of its parts."""

    name: str
    array: StoredArray
    part: int | None = None

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return rows `start` to `stop` in float32."""
        rows = slice(start, stop)
        values = self.array.read(rows if self.part is None else (self.part, rows))
        return _as_float32(values, self.array.where, start)


@dataclass(frozen=True)
class Layers:
    """Layers [n, p], with the ids that a file has."""

    layers: list[_Layer]
    ids: list[str] | None = None
    texts: None = None

    @property
    def names(self) -> list[str]:
        """Return the names of the layers."""
        return [layer.name for layer in self.layers]

    @property
    def counts(self) -> np.ndarray:
        """Return the number of rows of every row, 1, int64 [n]."""
        return np.ones(self.layers[0].array.shape[-2], np.int64)

    @property
    def widths(self) -> list[int]:
        """Return the number of columns of every layer."""
        return [layer.array.shape[-1] for layer in self.layers]

    @property
    def where(self) -> str:
        """Return the place of the first layer, for messages."""
        return self.layers[0].array.where

    @property
    def pieces(self) -> int:
        """Return how often `write` yields."""
        return sum(len(self._starts(layer)) for layer in self.layers)

    def _starts(self, layer: _Layer) -> range:
        step = max(1, _PIECE // (8 * max(1, layer.array.shape[-1])))
        return range(0, len(self.counts), step)

    def write(self, writer: LayerWriter) -> Iterator[None]:
        """Write all rows, and yield after each piece."""
        for number, layer in enumerate(self.layers):
            starts = self._starts(layer)
            for start in starts:
                writer.put_rows(number, start, layer.read(start, start + starts.step))
                yield


@dataclass(frozen=True)
class Sentences:
    """An array [layers, words, p] for each sentence, with the texts and ids that a file has."""

    arrays: list[StoredArray]
    texts: dict[int, str] | None
    ids: list[str] | None

    @property
    def names(self) -> list[str]:
        """Return the names of the layers."""
        return [str(layer) for layer in range(self.arrays[0].shape[0])]

    @property
    def counts(self) -> np.ndarray:
        """Return the number of words of every sentence, int64 [n]."""
        return np.array([array.shape[1] for array in self.arrays], np.int64)

    @property
    def widths(self) -> list[int]:
        """Return the number of columns of every layer."""
        layers, _, width = self.arrays[0].shape
        return [width] * layers

    @property
    def where(self) -> str:
        """Return the file, for messages."""
        return self.arrays[0].where.rpartition(", ")[0]

    @property
    def pieces(self) -> int:
        """Return how often `write` yields."""
        return len(self.arrays)

    def write(self, writer: LayerWriter) -> Iterator[None]:
        """Write all rows, and yield after each piece."""
        for number, array in enumerate(self.arrays):
            values = _as_float32(array.read(slice(None)), array.where)
            writer.put(np.array([number]), list(values[:, None]))
            yield


@contextmanager
def opened(paths: list[Path], chosen: Sequence[str]) -> Iterator[Layers | Sentences]:
    """Open the files, and find their layout."""
    if not paths:
        raise UserError("wanted a file of arrays, found none")
    with ExitStack() as stack:
        files = [stack.enter_context(open_arrays(path)) for path in paths]
        numbered = [_is_numbered(file) and not chosen for file in files]
        if any(numbered) and len(files) > 1:
            where = files[numbered.index(True)].path
            raise UserError(
                f"{where}: wanted no other file with arrays of sentences, found several"
            )
        yield _sentences_of(files[0]) if any(numbered) else _layers_of(files, chosen)


def _is_numbered(file: ArrayFile) -> bool:
    numbered = all(array.name.isdecimal() and len(array.shape) == 3 for array in file.arrays)
    return numbered or file.sentences is not None


def _sentences_of(file: ArrayFile) -> Sentences:
    by_name = {array.name: array for array in file.arrays}
    names = [str(number) for number in range(len(by_name))]
    missing = next((name for name in names if name not in by_name), None)
    if missing is not None:
        raise UserError(
            f"{file.path}: wanted sentences 0 to {len(names) - 1}, found no array {missing!r}"
        )
    arrays = [by_name[name] for name in names]
    layers, _, width = first = arrays[0].shape if len(arrays[0].shape) == 3 else (0, 0, 0)
    for array in arrays:
        _require_floating(array)
        if len(array.shape) != 3 or (array.shape[0], array.shape[2]) != (layers, width):
            wanted = f"[{layers}, words, {width}] as in sentence 0" if any(first) else _LAYOUTS
            raise UserError(f"{array.where}: wanted {wanted}, found shape {list(array.shape)}")
    return Sentences(arrays, file.sentences, file.ids)


def _layers_of(files: list[ArrayFile], chosen: Sequence[str]) -> Layers:
    layers: list[_Layer] = []
    unknown = dict.fromkeys(chosen)
    for file in files:
        by_name = {array.name: array for array in file.arrays}
        names = [name for name in chosen if name in by_name] if chosen else in_order([*by_name])
        for name in names:
            unknown.pop(name, None)
            layers += _parts(by_name[name], name or file.path.stem)
    if unknown:
        found = ", ".join(array.name for file in files for array in file.arrays)
        raise UserError(
            f"{argument('layers', next(iter(unknown)))}: wanted an array of this name, found "
            f"{found}"
        )
    first = layers[0]
    for layer in layers:
        wanted, found = first.array.shape[-2], layer.array.shape[-2]
        if wanted != found:
            raise UserError(
                f"{layer.array.where}: wanted {wanted} rows as in {first.array.where}, found "
                f"{found}"
            )
    listed = [(file, file.ids) for file in files if file.ids is not None]
    for file, ids in listed[1:]:
        if ids != listed[0][1]:
            raise UserError(f"{file.path}: wanted the ids of {listed[0][0].path}, found other ids")
    return Layers(layers, listed[0][1] if listed else None)


def _parts(array: StoredArray, name: str) -> list[_Layer]:
    """Return the layers in an array [n, p] or [L, n, p]."""
    _require_floating(array)
    if len(array.shape) not in (2, 3) or 0 in array.shape:
        raise UserError(
            f"{array.where}: wanted {_LAYOUTS}, found shape {list(array.shape)}; "
            f"{argument('layers')} names the arrays to take"
        )
    if len(array.shape) == 2:
        return [_Layer(name, array)]
    return [_Layer(f"{name}.{part}", array, part) for part in range(array.shape[0])]


def _require_floating(array: StoredArray) -> None:
    if not array.is_floating:
        raise UserError(f"{array.where}: wanted floating-point values, found {array.dtype}")


def _as_float32(values: np.ndarray, where: str, start: int = 0) -> np.ndarray:
    """Return values as float32, and check that they are finite."""
    with np.errstate(over="ignore"):
        array = np.asarray(values).astype(np.float32, copy=False)
    bad = ~np.isfinite(array)
    if bad.any():
        place = tuple(int(axis[0]) for axis in np.nonzero(bad))
        row = start + place[-2]
        raise UserError(
            f"{where}: wanted finite values of float32, found {values[place]} in row {row}, column "
            f"{place[-1]}"
        )
    return array
