"""Locks of network file systems: whether they keep processes of other machines off.

Some mounts grant a lock to each machine on its own. The options of the mount tell of the usual
ones; of any file system a probe tells: a process holds a lock, and another machine asks for it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from simlab.errors import BusyError
from simlab.store.files import atomic_file, reading
from simlab.store.ownership import owned
from simlab.sweeps import processes

_PATIENCE_SECONDS = 30.0  # with a process that holds the lock of a folder
_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")
# Options by which locks of a file system stay on one machine (mount.lustre(8), nfs(5)).
_LOCAL = {
    "lustre": ("localflock",),
    "nfs": ("nolock", "local_lock=all", "local_lock=flock"),
    "nfs4": ("nolock", "local_lock=all", "local_lock=flock"),
}


@dataclass(frozen=True)
class Mount:
    """A mounted file system: where, of which kind, with which options."""

    point: Path
    kind: str
    options: tuple[str, ...]

    @property
    def local_option(self) -> str | None:
        """Return the option by which locks hold on one machine alone."""
        return next((name for name in _LOCAL.get(self.kind, ()) if name in self.options), None)


def mount_of(path: Path, listing: Path = _MOUNTS) -> Mount | None:
    """Return the mount that a path is on; None where the system does not list mounts.

    Parameters
    ----------
    listing
        The list of mounts (proc(5)).
    """
    try:
        lines = listing.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return None
    real = Path(os.path.realpath(path))
    mounts = [mount for mount in map(_read, lines) if real.is_relative_to(mount.point)]
    # A later mount on the same folder hides the earlier one.
    return max(reversed(mounts), key=lambda mount: len(mount.point.parts), default=None)


def local_locks(path: Path, listing: Path = _MOUNTS) -> str | None:
    """Return why locks on `path` keep no other machine off, by the options of its mount."""
    mount = mount_of(path, listing)
    if mount is None or mount.local_option is None:
        return None
    return f"{mount.point} is mounted with the option {mount.local_option} ({mount.kind})"


class Probe:
    """A lock that a process holds, so that others can see whether it keeps them off.

    The file gets its name when it is locked and has its text: nobody sees it without its lock.
    """

    def __init__(self, path: Path, text: str = "") -> None:
        self.path = path
        with atomic_file(path) as partial:
            self._stream = partial.open("xb", buffering=0)
            try:
                fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._stream.write(text.encode())
            except BaseException:
                self._stream.close()
                raise

    def close(self) -> None:
        """Release the lock; the file stays."""
        self._stream.close()

    def remove(self) -> None:
        """Remove the file, and release the lock."""
        self.path.unlink(missing_ok=True)
        self.close()


def is_kept_off(path: Path) -> bool | None:
    """Return whether the lock that a `Probe` holds keeps this process off; None without a file.

    The lock that is asked for is a shared one, so that processes which ask do not keep each other
    off, and a process may ask that may not write to the file.
    """
    try:
        with reading(path), path.open("rb") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno in (errno.EAGAIN, errno.EACCES):
                    return True
                raise
    except FileNotFoundError:
        return None
    return False


@contextmanager
def alone(root: Path) -> Iterator[None]:
    """Hold the lock of a sweep folder while a block runs that takes milliseconds.

    Raises
    ------
    BusyError
        Another process has held the lock for long.
    """
    until = processes.clock() + _PATIENCE_SECONDS
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(owned(root, lock=root / ".drivers.lock"))
                break
            except BusyError:  # `owned` has waited
                if processes.clock() > until:
                    raise
        yield


def _read(line: str) -> Mount:
    """Read a line: the mount before the hyphen, the file system after it."""
    before, _, after = line.partition(" - ")
    fields, (kind, *rest) = before.split(), after.split()
    point = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[4])
    options = {*fields[5].split(","), *(rest[-1].split(",") if rest else ())}
    return Mount(Path(point), kind, tuple(sorted(options)))
