"""Locks, so that one process at a time makes an output.

The process that makes an output holds a lock on a file beside the output, ``.NAME.lock``. When the
process ends, in whatever way, the system releases the lock: a dead process holds none, and no
process number has to be looked up. The text of the lock file tells people who holds the lock. Its
owner deletes the file before it releases the lock; a process that opened the file earlier finds
that it has no name, and opens a new one.

Readers need no lock: an output appears by one rename, complete.
"""

from __future__ import annotations

import os
import shlex
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from simlab.errors import BusyError, argument
from simlab.store.files import real_output, writing

# Time to wait for a held lock: its owner may be about to end, or may not have signed yet.
_PATIENCE_SECONDS = 0.5


@contextmanager
def owned(output: Path, *, lock: Path | None = None) -> Iterator[None]:
    """Hold the lock of `output` while the block runs; raise BusyError if another process holds it.

    The lock file stands beside `output` unless `lock` names another, and its folder is made if
    missing. The message of BusyError says which process, on which machine and since when.
    """
    from filelock import FileLock, Timeout

    if lock is None:
        output = real_output(output)
        lock = output.with_name(f".{output.name}.lock")
    signature, owner = _signature(), os.getpid()
    with writing(output):
        lock.parent.mkdir(parents=True, exist_ok=True)
        # No fallback to a lock that exists as long as its file: a dead owner would still hold it.
        try:
            held = FileLock(lock, fallback_to_soft=False).acquire(timeout=_PATIENCE_SECONDS)
        except Timeout:
            raise BusyError(
                f"{argument('out', output)}: wanted one process at a time, found "
                f"{_read(lock) or 'another process'}; wait for it or choose another "
                f"{argument('out')}"
            ) from None
    with held:
        try:
            with writing(output):
                lock.write_bytes(os.fsencode(signature))
            yield
        finally:
            # A forked child leaves the lock alone, and somebody may have deleted the file by hand.
            if os.getpid() == owner and signature.startswith(_read(lock)):
                lock.unlink(missing_ok=True)


def _signature() -> str:
    """Describe this process in one line: number, machine, time and command."""
    since = datetime.now().astimezone().isoformat(" ", "seconds")
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    return f"process {os.getpid()} on {socket.gethostname()} since {since} (`{command}`)"


def _read(lock: Path) -> str:
    """Return the signature in file `lock`; empty if there is none yet, or no file."""
    with suppress(FileNotFoundError):
        return os.fsdecode(lock.read_bytes())
    return ""
