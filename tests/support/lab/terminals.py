"""Processes on a terminal, and what they show there."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence

_SIGNS = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")  # colours, and moves of the cursor
_UNSET = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")


def on_a_terminal(command: Sequence[str], columns: int, errors: bool = False) -> str:
    """Return what a command, which succeeds, writes to a terminal of so many columns.

    Parameters
    ----------
    errors
        Whether standard error is the terminal besides standard output.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in _UNSET}
    environment |= {"TERM": "xterm", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs if errors else None, env=environment
    )
    os.close(theirs)
    found = b""
    try:
        while part := os.read(ours, 1 << 16):
            found += part
    except OSError:  # Linux reports the end of a terminal by this error
        pass
    os.close(ours)
    assert process.wait() == 0, found.decode()
    return _SIGNS.sub("", found.decode())
