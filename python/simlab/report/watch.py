"""Wait for results that change."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from simlab.errors import UserError
from simlab.report.history import status_files
from simlab.store.reading import results_files


def watched(results: Sequence[Path], seconds: float | None) -> Iterator[None]:
    """Yield at once, and with `seconds` after every change of the results, without an end.

    The states of a sweep's jobs count as a result.
    Folders may be empty at first, and files may come and go.
    """
    before: object = None
    while True:
        now = _state(results)
        if now != before:
            before = now
            yield
        if seconds is None:
            return
        time.sleep(seconds)


def _state(results: Sequence[Path]) -> object:
    try:
        files = [*results_files(results), *status_files(results)]
        stats = [(file, file.stat()) for file in files]
    except (UserError, FileNotFoundError) as error:
        return str(error)
    return [(file, stat.st_mtime_ns, stat.st_size) for file, stat in stats]
