"""The record of a failure, and an error in one line."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Sequence

from simlab.errors import UserError, spelled
from simlab.steps.words import as_key
from simlab.sweeps.plan import Job
from simlab.sweeps.records import FailureRecord

_REPORT_ROWS = 20


def failure(
    job: Job, error: object, trace: str, seconds: float, attempts: int = 1
) -> FailureRecord:
    """Return the record of a failure."""
    return {
        "key": job.key,
        "kind": job.kind,
        "title": job.title,
        "error": last_line(error),
        "traceback": _encodable(trace),
        "attempts": attempts,
        "seconds": round(seconds, 3),
        "machine": socket.gethostname(),
        "when": time.time(),
        "params": dict(job.params),
        "hints": dict(job.hints),
    }


def last_line(error: object) -> str:
    """Return an error in one line, which UTF-8 can encode."""
    said = spelled(error.message, as_key) if isinstance(error, UserError) else str(error)
    text = " ".join(_encodable(said).split())
    if isinstance(error, UserError) or not isinstance(error, BaseException):
        return text
    return f"{type(error).__name__}: {text}"


def lacked_files(error: BaseException | None) -> bool:
    """Return whether an error, or one that it came from, says that too many files are open.

    The message tells: libraries wrap the error of the system, and drop its number.
    """
    while error is not None:
        if os.strerror(errno.EMFILE) in str(error):  # the words of ENFILE begin with the same
            return True
        error = error.__cause__ or error.__context__
    return False


def _encodable(text: str) -> str:
    """Escape bytes of the name of a file that are no UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def failed_lines(failed: Sequence[tuple[str, str]]) -> list[str]:
    """Return the rows of a table of failed jobs, cut where there are many."""
    lines = [f"{title}: {error}" for title, error in failed[:_REPORT_ROWS]]
    if len(failed) > _REPORT_ROWS:
        lines.append(f"... and {len(failed) - _REPORT_ROWS:,} more")
    return lines
