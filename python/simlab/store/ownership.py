"""Locks, so that one process at a time makes an output.

The process that makes an output holds flock(2) on a file beside the output, ``.NAME.lock``. When
the process ends, in whatever way, the kernel releases the lock (on a network file system, the
server does). So a dead process holds no lock, and no process number has to be looked up: numbers
are reused, and mean nothing on another machine. The text of the lock file tells people which
process holds the lock.

The owner deletes the lock file before it releases the lock, so that no lock file stays beside
finished work. A process that opened the lock file earlier then finds that its file has no name, or
that the name belongs to another file, and opens the new file.

Readers need no lock: an output appears by one rename, complete.
"""

from __future__ import annotations

import errno
import os
import shlex
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.errors import BusyError, UserError, argument
from simlab.store.files import real_output, writing

if TYPE_CHECKING:
    from filelock import AcquireReturnProxy

# Time to wait for a held lock: its owner may be about to end, or may not have signed yet.
_PATIENCE_SECONDS = 0.5
_NO_LOCKS = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK}


@contextmanager
def owned(output: Path, *, lock: Path | None = None) -> Iterator[None]:
    """Hold the lock of `output` while the block runs; raise BusyError if another process holds it.

    The lock file stands beside `output` unless `lock` names another, and its folder is made if
    missing. The message of BusyError says which process, on which machine and since when.
    """
    if lock is None:
        output = real_output(output)
        lock = output.with_name(f".{output.name}.lock")
    signature, owner = _signature(), os.getpid()
    with writing(output):
        lock.parent.mkdir(parents=True, exist_ok=True)
        held = _claim(lock, signature, output)
    with held:
        try:
            yield
        finally:
            # A forked child leaves the lock alone, and somebody may have deleted the file by hand.
            if os.getpid() == owner and _read(lock) == signature:
                lock.unlink()


def _claim(lock: Path, signature: str, output: Path) -> AcquireReturnProxy[Any]:
    """Lock the file named `lock`, and write `signature` into it."""
    from filelock import FileLock, Timeout

    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        # No fallback to a lock that exists as long as its file: a dead owner would still hold it.
        held = FileLock(lock, fallback_to_soft=False, on_acquired=partial(_sign, lock, signature))
        try:
            return held.acquire(timeout=_PATIENCE_SECONDS)
        except Timeout:
            raise BusyError(
                f"{argument('out', output)}: wanted one process at a time, found "
                f"{_read(lock) or 'another process'}; wait for it or choose another "
                f"{argument('out')}"
            ) from None
        except OSError as error:
            if error.errno in _NO_LOCKS:
                raise UserError(
                    f"{argument('out', output)}: wanted a file system that can lock files (flock), "
                    f"found a file system that answers: {error.strerror}; choose another "
                    f"{argument('out')}"
                ) from error
            if error.errno == errno.EISDIR:
                raise UserError(
                    f"{argument('out', output)}: wanted to lock file {lock}, found a folder there; "
                    f"choose another {argument('out')}"
                ) from error
            if error.errno != errno.ESTALE or time.monotonic() > until:
                raise


def _sign(lock: Path, signature: str, descriptor: int) -> None:
    """Write `signature` into the file that `descriptor` has locked; ESTALE if it has no name."""
    # If the last owner deleted the file after this process opened it, the lock is on a file that no
    # other process will open. filelock checks that the file has a name, but on NFS a deleted file
    # that is still open keeps a name.
    try:
        named = os.path.samestat(os.fstat(descriptor), lock.stat())
    except FileNotFoundError:
        named = False
    if not named:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(lock))
    try:
        os.ftruncate(descriptor, 0)  # a killed owner has left its signature
        with open(os.dup(descriptor), "w", encoding="utf-8", errors="surrogateescape") as stream:
            stream.write(signature)
    except OSError:
        lock.unlink()
        raise


def _signature() -> str:
    """Describe this process in one line: number, machine, time and command."""
    since = datetime.now().astimezone().isoformat(" ", "seconds")
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    return f"process {os.getpid()} on {socket.gethostname()} since {since} (`{command}`)"


def _read(lock: Path) -> str:
    """Return the signature in file `lock`; empty if there is none yet, or no file."""
    try:  # bytes, because `read_text` turns each \r of a signature into \n
        return lock.read_bytes().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return ""
