"""Hashes of files, each read once while it stays as it is.

A hash is remembered with the state of its file: size, times of change, number on the disk. A file
can change twice within one tick of the file system's clock and keep its state, so a hash is
remembered only if the file was at rest for `_REST_NS` before it was read. The time of the last
change is by the server's clock, where a server has the file, and the time of the reading is by
the clock of this machine: `_REST_NS` is longer than a tick by more than two clocks of a cluster
differ. A clock of the server that is ahead makes files look younger, which are then read again.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from simlab.errors import UserError
from simlab.store.files import hash_file, reading

# File systems count time in ticks of up to two seconds. Clocks of a network differ by less than
# five minutes: Kerberos, by which its servers know their users, refuses more.
_REST_NS = (5 * 60 + 2) * 1_000_000_000
_LOOKS = 3  # at a file that is written while it is read

State = tuple[int, int, int, int]  # size, time of change, number, time of change of the state


@dataclass
class FileHashes:
    """The SHA-256 of local files, each read again when the state of the file is another."""

    # The state and the hash of every file that was at rest.
    known: dict[str, tuple[State, str]] = field(default_factory=dict)
    # The state of every file that was asked for, in which it had its hash.
    states: dict[str, State] = field(default_factory=dict)

    def hash(self, file: Path) -> str:
        """Return the SHA-256 of a file; a file that changes while it is read raises UserError."""
        place = str(file.resolve())
        for _ in range(_LOOKS):
            state, began = state_of(file), time.time_ns()
            entry = self.known.get(place)
            if entry is not None and entry[0] == state:
                self.states[str(file)] = state
                return entry[1]
            with reading(file):
                digest = hash_file(file)
            if state_of(file) == state:
                if began - state[3] > _REST_NS:
                    self.known[place] = (state, digest)
                self.states[str(file)] = state
                return digest
        raise UserError(f"{file}: wanted a file that stays as it is, found one that changes")


def state_of(file: Path) -> State:
    """Return a mark that changes when a file is written or replaced."""
    # On a network file system, opening a file asks the server for its state.
    with reading(file):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            state = os.fstat(descriptor)
        finally:
            os.close(descriptor)
    return state.st_size, state.st_mtime_ns, state.st_ino, state.st_ctime_ns


HASHES = FileHashes()  # of this process
