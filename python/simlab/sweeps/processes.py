"""Processes: which one this is, its clock, and whether another one of this machine is there."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from functools import cache
from pathlib import Path

# The start of a process that the system does not tell: of none, or not of this one.
UNKNOWN, UNTOLD = "unknown", "untold"


@cache
def place() -> list[str]:
    """Describe what numbers of processes belong to: the machine since it started, the container."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with contextlib.suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return parts


def machine() -> str:
    """Return a name of this machine since it started, for files."""
    host, *boot = place()
    return "-".join([host, *(word[:8] for word in boot[:1])])


def clock() -> float:
    """Return the seconds of this process's own clock, which nothing sets."""
    return time.monotonic()


def own_pid() -> int:
    """Return the number of this process."""
    return os.getpid()


@cache
def own_start(pid: int) -> str:
    """Return when this process started; a fork has another number."""
    return started(pid) or UNTOLD


def started(pid: int) -> str | None:
    """Return when a process of this machine started; None if it is gone.

    Numbers of processes are used again, and a number with its start is not. A zombie is gone.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
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
    return UNKNOWN
