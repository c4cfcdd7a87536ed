"""Claims: which process works on a job, told by a file that one process alone can create.

A claim is a file with the name of a job's key, created exclusively. It names its owner: machine,
process, start of the process. While the owner works, it touches the file every `BEAT_SECONDS`. A
claim ends when its owner deletes it, at once when the owner was a process of this machine that is
gone, and else when it has not been touched for `STALE_SECONDS`. Then another process may take over,
one at a time under a lock.

The time of a claim is compared with that of a file that is touched now in the same folder, so that
the clock of the file system alone counts.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from simlab.store.files import writing
from simlab.store.ownership import owned

BEAT_SECONDS = 5.0
STALE_SECONDS = 120.0
_UNKNOWN = "unknown"  # the start of a process, on systems that do not tell


@dataclass(frozen=True)
class Claim:
    """A claim that this process holds.

    Attributes
    ----------
    path
        The file of the claim.
    token
        Text that no other claim has.
    """

    path: Path
    token: str

    def is_held(self) -> bool:
        """Return whether no other process has taken over meanwhile."""
        found = read_claim(self.path)
        return found is not None and found.get("token") == self.token

    def release(self) -> None:
        """Give the claim back."""
        _BEATING.discard(self)
        if self.is_held():
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()


def claim(folder: Path, key: str, stale: float = STALE_SECONDS) -> Claim | None:
    """Claim job `key`; return None if a living process has claimed it.

    Parameters
    ----------
    folder
        The folder of all claims, which exists.
    stale
        Seconds after which a claim that is not touched has no owner.
    """
    path = folder / key
    held = _create(path)
    if held is None and is_dead(path, stale):
        # One process takes over: two would each delete the claim that the other has just made.
        with owned(folder, lock=folder / ".taking-over"):
            if is_dead(path, stale):
                path.unlink(missing_ok=True)
                held = _create(path)
    return held


def read_claim(path: Path) -> dict[str, Any] | None:
    """Return the owner that a claim names: None without a claim, {} if it is not written yet."""
    try:
        return json.loads(path.read_text("utf-8") or "{}")
    except FileNotFoundError:
        return None
    except ValueError:
        return {}


def is_dead(path: Path, stale: float = STALE_SECONDS) -> bool:
    """Return whether the owner of a claim is gone."""
    found = read_claim(path)
    if found is None:
        return False
    if found and found["place"] == _place():
        if _started(found["pid"]) != found["started"]:
            return True
        if found["started"] != _UNKNOWN:
            return False
    return _age(path) > stale


def _create(path: Path) -> Claim | None:
    token = uuid.uuid4().hex
    pid = os.getpid()
    content = {"place": _place(), "pid": pid, "started": _own_start(pid), "token": token}
    with writing(path):
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            return None
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            try:
                json.dump(content, stream)
                stream.flush()
            except OSError:
                path.unlink(missing_ok=True)
                raise
    held = Claim(path, token)
    _BEATING.add(held)
    return held


def _age(path: Path) -> float:
    """Return the seconds since a claim was touched, by the clock of the file system."""
    now = path.with_name(f".now-{uuid.uuid4().hex}")
    try:
        with writing(now):
            now.touch()
            return now.stat().st_mtime - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
    finally:
        now.unlink(missing_ok=True)


@cache
def _place() -> list[str]:
    """Describe what numbers of processes belong to: the machine since it started, the container."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with contextlib.suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return parts


@cache
def _own_start(pid: int) -> str | None:
    """Return when this process started; a fork has another number."""
    return _started(pid)


def _started(pid: int) -> str | None:
    """Return when a process of this machine started; None if it is gone.

    Numbers of processes are used again, and a number with its start is not. A zombie is gone.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return None
    else:
        return None if fields[0] in "ZX" else fields[19]
    try:  # systems without /proc
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return _UNKNOWN


class _Beating:
    """The claims of this process, which one thread touches."""

    def __init__(self) -> None:
        self._claims: set[Claim] = set()
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

    def _beat(self) -> None:
        while True:
            time.sleep(BEAT_SECONDS)
            with self._lock:
                claims = list(self._claims)
            for held in claims:
                with contextlib.suppress(OSError):
                    # A claim that was taken over while this process slept is another's to touch.
                    if held.is_held():
                        os.utime(held.path)


_BEATING = _Beating()
