"""States of batches that wait for the next block, in memory or, where they do not fit, in files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from simlab.store.files import real_output, writing

if TYPE_CHECKING:
    import torch


class WaitingStates:
    """States by number.

    At most `max_memory` bytes of them stay in memory; a file in `folder` is made for each of the
    others.
    """

    def __init__(self, folder: Path, max_memory: int) -> None:
        self.folder, self.max_memory = folder, max_memory
        self._held: dict[int, tuple[torch.Tensor, torch.device]] = {}
        self._bytes = 0  # in memory
        self._stored: dict[int, tuple[torch.Size, torch.dtype, torch.device]] = {}

    def put(self, number: int, states: torch.Tensor) -> None:
        """Keep `states` in place of the states that had the number before."""
        import torch

        self.drop(number)
        if self._bytes + states.nbytes <= self.max_memory:
            # In memory of the host, which `max_memory` counts; on the CPU nothing is copied.
            self._held[number] = states.cpu(), states.device
            self._bytes += states.nbytes
            return
        file = self._file(number)
        with writing(file, states.nbytes):
            states.detach().cpu().contiguous().view(torch.uint8).numpy().tofile(file)
        self._stored[number] = states.shape, states.dtype, states.device

    def drop(self, number: int) -> None:
        """Give up the states of a number, if there are any."""
        if number in self._held:
            self._bytes -= self._held.pop(number)[0].nbytes
        if self._stored.pop(number, None) is not None:
            self._file(number).unlink()

    def get(self, number: int) -> torch.Tensor:
        """Return the states of a number."""
        import torch

        if number in self._held:
            held, device = self._held[number]
            return held.to(device)
        shape, dtype, device = self._stored[number]
        # Read into memory of torch, whose alignment the results of matrix products depend on.
        states = torch.empty(shape, dtype=dtype)
        with self._file(number).open("rb") as stream:
            stream.readinto(states.view(torch.uint8).numpy().data)
        return states.to(device)

    def _file(self, number: int) -> Path:
        return self.folder / f"states-{number}"


def room_for_states(beside: Path, max_memory: int | None = None) -> int:
    """Return the bytes of states that may wait at once: in memory, and in half of the free disk."""
    return _memory(max_memory) + shutil.disk_usage(beside).free // 2


def _memory(max_memory: int | None) -> int:
    from simcore import free_memory

    return free_memory() // 4 if max_memory is None else max_memory


@contextmanager
def waiting_states(beside: Path, max_memory: int | None = None) -> Iterator[WaitingStates]:
    """Give `WaitingStates` whose files lie in a hidden folder in `beside`, and delete them.

    `max_memory` counts the bytes of states in memory; None is a quarter of the free memory.
    """
    with TemporaryDirectory(prefix=".states-", dir=beside) as folder:
        yield WaitingStates(Path(folder), _memory(max_memory))


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
