"""Where rows are kept: in memory, within bounds, or in a file."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from simcore._grid.memory import memory_bound
from simcore._grid.options import check_max_memory

_SAFETENSORS = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
}


class Budget:
    """The bytes that recorded rows may take; several tapes may share one.

    `max_memory` is by default a quarter of the free memory of the device of the rows. `hint` ends
    the message where the bytes do not suffice.
    """

    def __init__(
        self,
        max_memory: int | None,
        hint: str = "out= writes them to a file, sample= keeps fewer rows",
    ) -> None:
        self._wanted, self._hint = check_max_memory(max_memory), hint
        self._bound = 0
        self.held = 0

    def check(self, pending: int, device: torch.device, rows: int) -> None:
        """Raise a ValueError if `pending` bytes beyond those held exceed the bound."""
        if not self._bound:
            self._bound = memory_bound(self._wanted, torch.empty(0, device=device))
        if self.held + pending > self._bound:
            raise ValueError(
                f"max_memory: wanted room for {self.held + pending} bytes of recorded rows, got "
                f"{self._bound}, after {rows} rows; {self._hint}"
            )


class Store(ABC):
    """Rows of layers, appended pass by pass; `counts` has the number of rows of each layer."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def append(self, rows: dict[str, Tensor]) -> None:
        """Add the rows ``[r, p]`` of each layer in one pass."""
        self._append(rows)
        for name, layer in rows.items():
            self.counts[name] = self.counts.get(name, 0) + len(layer)

    @abstractmethod
    def _append(self, rows: dict[str, Tensor]) -> None:
        """Do the work of `append`."""

    @abstractmethod
    def layers(self) -> dict[str, Tensor]:
        """Return all rows of each layer, ``[n, p]``."""

    def bytes_after(self, rows: dict[str, Tensor]) -> int:
        """Return the bytes that `append` and `layers` would need beyond those held."""
        return 0

    def complete(self) -> None:  # noqa: B027
        """Complete what is incomplete; nothing more is appended."""

    def discard(self) -> None:  # noqa: B027
        """Remove what is incomplete."""


class MemoryStore(Store):
    """Rows in memory.

    Joining the batches of a layer takes a copy of it; `bytes_after` counts a copy of the largest
    one.
    """

    def __init__(self, budget: Budget) -> None:
        super().__init__()
        self.budget = budget
        self._chunks: dict[str, list[Tensor]] = {}
        self._bytes: dict[str, int] = {}

    def bytes_after(self, rows: dict[str, Tensor]) -> int:
        """Return the bytes of the rows and of a copy of the layer that is largest then."""
        new = sum(layer.nbytes for layer in rows.values())
        return new + max(self._bytes.get(name, 0) + layer.nbytes for name, layer in rows.items())

    def _append(self, rows: dict[str, Tensor]) -> None:
        for name, layer in rows.items():
            self._chunks.setdefault(name, []).append(layer)
            self._bytes[name] = self._bytes.get(name, 0) + layer.nbytes
            self.budget.held += layer.nbytes

    def layers(self) -> dict[str, Tensor]:
        """Join the rows of each layer, once."""
        for name, chunks in self._chunks.items():
            self._chunks[name] = [_joined(chunks)]
        return {name: chunks[0] for name, chunks in self._chunks.items()}

    def clear(self) -> None:
        """Forget all rows."""
        self.budget.held -= sum(self._bytes.values())
        for kept in (self._chunks, self._bytes, self.counts):
            kept.clear()


def _joined(chunks: list[Tensor]) -> Tensor:
    """Return one tensor, fit for automatic differentiation even if it comes of inference mode."""
    if len(chunks) == 1 and not chunks[0].is_inference():
        return chunks[0]
    with torch.inference_mode(False):
        return torch.cat(chunks)


class FileStore(Store):
    """Rows in one file of safetensors.

    The rows of each layer go to a temporary file of its own. `complete` joins these files under a
    temporary name and renames it to `out`, which replaces an older file.
    """

    def __init__(self, out: str | os.PathLike[str]) -> None:
        super().__init__()
        self.out = Path(out)
        if self.out.is_dir() or not self.out.parent.is_dir():
            got = "a folder" if self.out.is_dir() else f"no folder {str(self.out.parent)!r}"
            raise ValueError(f"out: wanted a file in a folder that exists, got {got}")
        self._folder: Path | None = None
        self._files: dict[str, Path] = {}
        self._widths: dict[str, int] = {}
        self._dtypes: dict[str, torch.dtype] = {}
        self._layers: dict[str, Tensor] | None = None
        self._failed = False

    def _append(self, rows: dict[str, Tensor]) -> None:
        self._check_whole()
        try:
            self._write(rows)
        except BaseException:  # some layers have rows that others lack
            self._failed = True
            raise

    def _check_whole(self) -> None:
        if self._failed:
            raise RuntimeError(f"out: wanted {str(self.out)!r} to be writable, got an error before")

    def _write(self, rows: dict[str, Tensor]) -> None:
        if self._folder is None:
            name = f".{self.out.name}."
            self._folder = Path(tempfile.mkdtemp(prefix=name, dir=self.out.parent))
        for name, layer in rows.items():
            if name not in self._files:
                self._files[name] = self._folder / str(len(self._files))
                self._widths[name], self._dtypes[name] = layer.shape[1], layer.dtype
            with self._files[name].open("ab") as file:
                file.write(layer.contiguous().view(torch.uint8).numpy().data)

    def complete(self) -> None:
        """Join the layers in the file, and map it into memory."""
        self._check_whole()
        if self._folder is None:
            return
        # Wide entries first, so that all are aligned; the header keeps the order of execution.
        order = sorted(self._files, key=lambda name: -self._dtypes[name].itemsize)
        offsets, end = {}, 0
        for name in order:
            start, end = end, end + self._files[name].stat().st_size
            offsets[name] = start, end
        header = self._header(offsets)
        joined = self._folder / "joined"
        with joined.open("wb") as file:
            file.write(header)
            for name in order:
                with self._files[name].open("rb") as rows:
                    shutil.copyfileobj(rows, file, 2**24)
                self._files[name].unlink()
        joined.replace(self.out)
        self.discard()
        self._layers = {
            name: self._mapped(name, len(header) + offsets[name][0]) for name in self._files
        }

    def _header(self, offsets: dict[str, tuple[int, int]]) -> bytes:
        entries = {
            name: {
                "dtype": _SAFETENSORS[self._dtypes[name]],
                "shape": [self.counts[name], self._widths[name]],
                "data_offsets": offsets[name],
            }
            for name in self._files
        }
        text = json.dumps(entries).encode()
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text

    def _mapped(self, name: str, offset: int) -> Tensor:
        shape, dtype = (self.counts[name], self._widths[name]), self._dtypes[name]
        size = shape[0] * shape[1] * dtype.itemsize
        if size == 0:
            return torch.empty(shape, dtype=dtype)
        # Copy on write: torch has no read-only tensors, and the file stays as it is.
        data = np.memmap(self.out, np.uint8, "c", offset, (size,))
        return torch.from_numpy(data).view(dtype).view(shape)

    def layers(self) -> dict[str, Tensor]:
        """Return the layers, mapped from the file."""
        if self._layers is None:
            raise RuntimeError(
                f"layers: wanted {str(self.out)!r} to be complete, which it is when the block has "
                "ended without an error"
            )
        return dict(self._layers)

    def discard(self) -> None:
        """Remove the temporary files."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
