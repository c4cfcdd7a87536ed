"""A process that makes one output and can be held at work; `test_ownership` starts several.

``owner.py KIND OUT KEY SIGNS [fork]`` makes OUT (KIND: folder, resumable or file) from inputs KEY.
The process writes a file ``begun-PID`` into folder SIGNS when it is at work, goes on when there is
a file ``go``, and ends as the command line would. With ``fork`` the process has a child,
``child-PID``, that lives on when its parent is killed.
"""

import os
import sys
import time
from pathlib import Path

from simlab.errors import UserError
from simlab.results.results import ResultRow, ensure_results
from simlab.store.jobs import run_job

PATIENCE_SECONDS = 120


def wait_for(found) -> None:
    """Return when ``found()`` is true."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def make(kind: str, out: Path, key: str, work):
    """Make `out` of kind `kind` from inputs `key`, after ``work()``."""

    def make_folder(partial: Path) -> None:
        (partial / "half").write_text(key)
        work()
        (partial / "whole").write_text(key * 1000)

    def make_rows():
        work()
        return [
            ResultRow(experiment="e", measure=key, label_x="x", value=float(value), n=1, task="t")
            for value in range(1000)
        ]

    if kind == "file":
        return ensure_results(out, {"key": key}, make_rows, replace=True)
    return run_job(out, {"key": key}, make_folder, replace=True, resumable=kind == "resumable")


def main(kind: str, out: str, key: str, signs: str, fork: str = "") -> int:
    """Make the output named on the command line and return the exit code."""

    def work() -> None:
        if fork:
            child = os.fork()
            if child == 0:
                time.sleep(PATIENCE_SECONDS)
                os._exit(0)
            (Path(signs) / f"child-{child}").touch()
        (Path(signs) / f"begun-{os.getpid()}").touch()
        wait_for((Path(signs) / "go").exists)

    try:
        outcome = make(kind, Path(out), key, work)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("done before" if outcome.skipped else "made")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
