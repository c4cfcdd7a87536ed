"""Peak memory of a piece of code, as the kernel counts it, in a process of its own.

Allocator statistics miss memory that libraries allocate without torch. The resident set is measured
instead: its high-water mark is reset just before the code runs and read just after.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")
ROOT = Path(__file__).resolve().parents[1]


def _status_bytes(field: str) -> int:
    for line in STATUS.read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{STATUS}: wanted a line {field}, found none (a Linux kernel writes it)")


def resident_bytes() -> int:
    """Return the size of this process's resident set now."""
    return _status_bytes("VmRSS")


def peak_during(function: Callable[[], object]) -> int:
    """Run ``function``; return the bytes by which the resident set rose above its start.

    Pages that an earlier call left in the process count as its start: call this once per process.
    """
    CLEAR.write_text("5")  # resets the high-water mark, see proc(5)
    start = resident_bytes()
    function()
    return max(0, _status_bytes("VmHWM") - start)


def in_subprocess(code: str, *, timeout: float = 600) -> str:
    """Run ``code`` by this Python in a fresh process, in the repository; return its output."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout
