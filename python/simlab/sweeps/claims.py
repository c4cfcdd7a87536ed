"""Claims: which process works on a job, told by a file that one process alone can create.

The protocol, in terms of a key and the file ``claims/KEY``:

1. A process owns the key if the file exists and holds the token of that process. No token is used
   twice. The file is created exclusively, so that one of many processes becomes the owner.
2. The file loses its name only under its own lock (flock), and the process that holds the lock has
   opened the name again and found the very same file. So an owner that holds the lock of its claim
   stays the owner while it holds the lock (`Claim.locked`).
3. All that other processes see of a key changes under that lock: its output gets its name, a
   damaged output loses it, a failure is recorded, a line is added to the log. The block under the
   lock is short.
4. Another process takes over when the owner is gone. A process of this machine is gone when it has
   ended. Of any other process nothing is known but that it touches its claim every `BEAT_SECONDS`.
   It counts as gone when an observer has seen no change for `STALE_SECONDS` of the observer's own
   clock, and has looked often meanwhile (`watch.Watch`). No times of two clocks are compared,
   neither of two machines nor of a machine and a file.
5. An owner that was taken for gone (a suspended process, a hung mount) finds another token in the
   file, or no file: `LostError`. It publishes nothing, records no failure, and deletes only the
   folder that has the name of its own token. To a driver this is a job at work elsewhere.
6. A process that stops while it holds the lock of a claim holds up this one key: the others find it
   busy.

So no output is published twice, and none is deleted that another process published, whatever
process stops, continues or dies, between any two operations on files. `test_protocol.py` stops,
continues and kills drivers there, with clocks that differ, and `test_killed_workers.py` workers.

The file system has to create files exclusively (O_EXCL), to rename atomically, and to hold locks
for all machines that work in the folder: local file systems, NFS 3 and 4, Lustre with the mount
option ``flock``. `locking` and `neighbours` find those whose locks hold on one machine alone.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simlab.errors import BusyError, ReadError
from simlab.store.files import reading, writing
from simlab.sweeps import processes

BEAT_SECONDS = 5.0
STALE_SECONDS = 120.0
_LOCK_SECONDS = 30.0  # that an owner waits for the lock of its claim
_TAKING_SECONDS = 0.5  # that a process waits for it that would take over
_POLL_SECONDS = 0.01
_ATTEMPTS = 5  # to open a file that other machines replace
_FIELDS = {"place": list, "pid": int, "started": str, "token": str}

Signature = tuple[str, int]  # of a claim: its token, and when it was last touched


class LostError(BusyError):
    """The claim of this process is another's now, or nobody's."""


@dataclass(frozen=True)
class Sight:
    """The owner of a claim, and its last change by the clock of the file system.

    Attributes
    ----------
    owner
        The place, number, start and token of the owner; empty while they are not written yet.
    touched
        Nanoseconds, to be compared with other values of the same claim alone.
    """

    owner: Mapping[str, Any]
    touched: int

    @property
    def signature(self) -> Signature:
        """Return a mark that changes with every heartbeat and every new owner of the claim."""
        return self.owner.get("token", ""), self.touched

    def is_here(self) -> bool:
        """Return whether the owner is a process of this machine whose state can be asked."""
        if self.owner.get("place") != processes.place():
            return False
        return self.owner["started"] not in (processes.UNKNOWN, processes.UNTOLD)

    def is_gone(self) -> bool:
        """Return whether the owner is a process of this machine that has ended."""
        if (
            self.owner.get("place") != processes.place()
            or self.owner["started"] == processes.UNTOLD
        ):
            return False
        return processes.started(self.owner["pid"]) != self.owner["started"]

    def __str__(self) -> str:
        if not self.owner:
            return "a process"
        return f"process {self.owner['pid']} on {self.owner['place'][0]}"


@dataclass(frozen=True)
class Claim:
    """A claim that this process made, and holds unless another process took it over.

    Attributes
    ----------
    path
        The file of the claim.
    token
        Text that no other claim has.
    after
        The token of the last owner, where that is known to have ended; else empty.
    """

    path: Path
    token: str
    after: str = ""

    def is_held(self) -> bool:
        """Return whether no other process had taken over a moment ago."""
        stored = look(self.path)
        return stored is not None and stored.owner.get("token") == self.token

    @contextmanager
    def locked(self, patience: float = _LOCK_SECONDS) -> Iterator[None]:
        """Hold the claim while the block runs: nobody takes it over meanwhile.

        Raises
        ------
        LostError
            Another process has taken over.
        BusyError
            Another process holds the lock, and does not go on.
        """
        with ExitStack() as stack:
            try:
                stack.enter_context(_locked(self.path, patience))
            except FileNotFoundError:
                raise LostError(f"{self.path}: wanted our own claim, found none") from None
            if not self.is_held():
                raise LostError(f"{self.path}: wanted our own claim, found another's")
            yield

    def release(self, patience: float = _LOCK_SECONDS) -> None:
        """Give the claim back: now, or later by a thread.

        Later is when another process holds its lock, or the system refuses to open or remove it.
        """
        _BEATING.discard(self)
        try:
            with self.locked(patience):
                self.path.unlink()
        except LostError:
            pass
        except (BusyError, ReadError, OSError):
            _BEATING.release_later(self)


def claim(folder: Path, key: str, dead: Signature | None = None) -> Claim | None:
    """Claim `key`; return None if a living process has claimed it.

    Parameters
    ----------
    folder
        The folder of all claims, which exists.
    dead
        The claim of an owner that is gone, as a `watch.Watch` found it.
    """
    path = folder / key
    held = _create(path)
    if held is not None:
        return held
    earlier = look(path)
    if earlier is None or not (earlier.is_gone() or earlier.signature == dead):
        return None
    try:
        with _locked(path, _TAKING_SECONDS):
            current = look(path)
            if current is None or current.signature != earlier.signature:
                return None
            with writing(path):
                path.unlink()
            return _create(path, earlier.owner["token"] if earlier.is_gone() else "")
    except (FileNotFoundError, BusyError):
        return None


def remove(folder: Path, key: str, dead: Signature | None = None) -> bool:
    """Remove the claim of an owner that is gone; return whether there is none now."""
    held = claim(folder, key, dead)
    if held is not None:
        held.release()
    return held is not None


def look(path: Path) -> Sight | None:
    """Read a claim; None if there is no claim.

    Raises
    ------
    ReadError
        The system refused to read it.
    """
    with reading(path):
        return _look(path)


def _look(path: Path) -> Sight | None:
    for attempt in range(_ATTEMPTS):
        try:
            # On a network file system, opening asks the server; a stat alone may be a minute old.
            with path.open("rb") as stream:
                touched = os.fstat(stream.fileno()).st_mtime_ns
                return Sight(_read(stream.read()), touched)
        except FileNotFoundError:
            return None
        except OSError as error:
            # Another machine has removed the file since this one opened it.
            if error.errno != errno.ESTALE or attempt == _ATTEMPTS - 1:
                raise
    return None


def _read(content: bytes) -> dict[str, Any]:
    """Return the owner that a claim names: empty if it is not written yet, or not by us."""
    try:
        owner = json.loads(content)
    except ValueError:
        return {}
    if not isinstance(owner, dict):
        return {}
    is_whole = all(isinstance(owner.get(name), kind) for name, kind in _FIELDS.items())
    return owner if is_whole and owner["place"] else {}


def _create(path: Path, after: str = "") -> Claim | None:
    token, pid = uuid.uuid4().hex, processes.own_pid()
    content = {
        "place": processes.place(),
        "pid": pid,
        "started": processes.own_start(pid),
        "token": token,
    }
    with writing(path):
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        except FileExistsError:
            return None
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            try:
                json.dump(content, stream)
                stream.flush()
            except OSError:
                path.unlink(missing_ok=True)
                raise
    held = Claim(path, token, after)
    _BEATING.add(held)
    return held


@contextmanager
def _locked(path: Path, patience: float) -> Iterator[None]:
    """Hold the lock of the file that `path` names while the block runs.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    BusyError
        Another process held the lock for `patience` seconds.
    ReadError
        The system refused to open or to lock the file.
    """
    until = processes.clock() + patience
    while True:
        with reading(path):
            descriptor = os.open(path, os.O_RDWR)
        try:
            with reading(path):
                _lock(descriptor, path, until)
                # The last holder may have removed the name, and then this lock keeps nobody off.
                is_named = _is_named(descriptor, path)
            if is_named:
                yield
                return
        finally:
            os.close(descriptor)


def _lock(descriptor: int, path: Path, until: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno == errno.ESTALE:
                return  # the file has no name any more, as the caller finds
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
        if processes.clock() > until:
            raise BusyError(f"{path}: wanted the lock of this claim, found another process with it")
        time.sleep(_POLL_SECONDS)


def _is_named(descriptor: int, path: Path) -> bool:
    """Return whether the name leads to the file that is open."""
    try:
        with path.open("rb") as stream:
            return os.path.samestat(os.fstat(stream.fileno()), os.fstat(descriptor))
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
        return False


class _Beating:
    """The claims of this process, which one thread touches."""

    def __init__(self) -> None:
        self._claims: set[Claim] = set()
        self._given_up: set[Claim] = set()
        self._lock = threading.Lock()
        self._pid: int | None = None

    def add(self, held: Claim) -> None:
        with self._lock:
            self._claims.add(held)
            if self._pid != os.getpid():  # not started yet, or this is a fork
                self._pid = os.getpid()
                threading.Thread(target=self._beat, daemon=True, name="claims").start()

    def discard(self, held: Claim) -> None:
        with self._lock:
            self._claims.discard(held)

    def release_later(self, held: Claim) -> None:
        with self._lock:
            self._given_up.add(held)

    def _beat(self) -> None:
        while True:
            time.sleep(BEAT_SECONDS)
            with self._lock:
                claims, given_up = list(self._claims), list(self._given_up)
                self._given_up.clear()
            for held in claims:
                with contextlib.suppress(ReadError, OSError):
                    touch(held)
            for held in given_up:
                held.release(patience=0)


def touch(held: Claim) -> None:
    """Say that the owner of a claim is alive.

    A process that stops between the two lines touches the claim of its successor once: that claim
    then counts as held for a little longer.
    """
    if held.is_held():
        os.utime(held.path)


_BEATING = _Beating()
