"""One owner per output: the process that makes it holds a lock, which ends with the process.

The lock is flock(2) on a file beside the output, ``.NAME.lock``. The kernel takes it back when its
holder ends, in whatever way, and on a network file system the server does. So the claim of a dead
process is void, and no process number has to be looked up: numbers are given out again, and mean
nothing on another machine. The text of the file says who holds the lock, for people to read.

The owner removes the file before it gives the lock back, so that nothing stays beside finished
work. A process that opened the file before finds that the file has no name any more, or that the
name is another file's, and opens the new one.

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
from typing import TYPE_CHECKING

from simlab.errors import BusyError, UserError
from simlab.store.files import real_output, writing

if TYPE_CHECKING:
    from filelock import AcquireReturnProxy

# How long a held lock is waited for: its owner may be about to end, or may not have signed yet.
_PATIENCE_SECONDS = 0.5
_NO_LOCKS = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK}


@contextmanager
def owned(output: Path, *, option: str = "--out", lock: Path | None = None) -> Iterator[None]:
    """Be the one process that makes `output`, as long as the block runs.

    Parameters
    ----------
    output
        What is made: a file or folder, there already or not.
    option
        The option that named it, for error messages.
    lock
        The lock file, by default beside `output`. Its folder is made if need be.

    Raises
    ------
    BusyError
        Another process is making it. The message says which, where and since when.
    UserError
        The lock file cannot be written, is a folder, or its file system has no locks.
    """
    if lock is None:
        output = real_output(output, option)
        lock = output.with_name(f".{output.name}.lock")
    signature, owner = _signature(), os.getpid()
    with writing(output):
        lock.parent.mkdir(parents=True, exist_ok=True)
        held = _claim(lock, signature, output, option)
    with held:
        try:
            yield
        finally:
            # Not in a forked child that leaves the block, nor if somebody has removed it by hand.
            if os.getpid() == owner and _read(lock) == signature:
                lock.unlink()


def _claim(lock: Path, signature: str, output: Path, option: str) -> AcquireReturnProxy:
    """Lock and sign the file that has the name `lock`."""
    from filelock import FileLock, Timeout

    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        # No fallback to a file whose mere existence is the lock: a dead owner would hold it.
        held = FileLock(lock, fallback_to_soft=False, on_acquired=partial(_sign, lock, signature))
        try:
            return held.acquire(timeout=_PATIENCE_SECONDS)
        except Timeout:
            raise BusyError(
                f"{option} {output}: wanted one process at a time, found "
                f"{_read(lock) or 'another process'}; wait for it or choose another {option}"
            ) from None
        except OSError as error:
            if error.errno in _NO_LOCKS:
                raise UserError(
                    f"{option} {output}: wanted a file system that can lock files (flock), found "
                    f"one that answers: {error.strerror}; choose another {option}"
                ) from error
            if error.errno == errno.EISDIR:
                raise UserError(
                    f"{option} {output}: wanted to lock file {lock}, found a folder there; choose "
                    f"another {option}"
                ) from error
            if error.errno != errno.ESTALE or time.monotonic() > until:
                raise


def _sign(lock: Path, signature: str, descriptor: int) -> None:
    """Write who holds the lock into the file that `descriptor` has locked.

    Raises
    ------
    OSError
        ESTALE if its last owner has removed the file since it was opened. Then the lock is on a
        file that nobody else will open. filelock looks whether the file has a name; on NFS it still
        has one, because a file that is open is renamed there when it is removed.
    """
    try:
        named = os.path.samestat(os.fstat(descriptor), lock.stat())
    except FileNotFoundError:
        named = False
    if not named:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(lock))
    try:
        os.ftruncate(descriptor, 0)  # a killed owner has left its own
        with open(os.dup(descriptor), "w", encoding="utf-8", errors="surrogateescape") as stream:
            stream.write(signature)
    except OSError:
        lock.unlink()
        raise


def _signature() -> str:
    """Who this process is: number, machine, time and command, in one line."""
    since = datetime.now().astimezone().isoformat(" ", "seconds")
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    return f"process {os.getpid()} on {socket.gethostname()} since {since} (`{command}`)"


def _read(lock: Path) -> str:
    """What the owner has signed with; nothing where it has not yet, or is gone."""
    try:  # as bytes, because `read_text` gives each \r of a signature as \n
        return lock.read_bytes().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return ""
