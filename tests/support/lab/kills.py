"""Runs of a toy sweep that die, or stand still, before an operation that changes a file.

``python -m support.lab.kills FOLDER STEP`` runs a sweep without interruption in FOLDER, and then,
for every STEP-th of its operations, a sweep that is killed before it and continued. Driver and
worker are one process, so that the operations of both are counted; each sweep is a fork of this
process, which has imported everything. It prints the number of operations, and one line for each
sweep that ended with other rows or objects, or left something behind.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

from support.lab.inline import Inline
from support.lab.toysweep import contents, rows, run_toy, same_as, toy_plan

SEEDS = 2
# Events of the interpreter (sys.addaudithook) that come before a file is changed.
_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.symlink", "os.truncate"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def before_changes(root: Path, act: Callable[[int], None]) -> None:
    """Have `act` called with a number before each operation below `root` that changes a file.

    It cannot be undone: a process that calls this function is for one run.
    """
    numbers, place = count(1), str(root)

    def hook(event: str, arguments: tuple) -> None:
        changes = event in _CHANGES or (event == "open" and arguments[2] & _WRITES)
        if changes and isinstance(arguments[0], str | Path) and place in str(arguments[0]):
            act(next(numbers))

    sys.addaudithook(hook)


def run(root: Path) -> None:
    """Run the sweep in this process, or continue it."""
    outcome = run_toy(root, toy_plan(root, seeds=SEEDS), start=lambda _: Inline())
    assert (outcome.failed, outcome.waiting) == ((), 0)


def forked(act: Callable[[], None]) -> int:
    """Call a function in a fork of this process; return its exit code, or less a signal."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def operations(root: Path) -> int:
    """Run a sweep without interruption; return how many operations it has."""
    seen = root.with_name("operations")

    def whole() -> None:
        numbers: list[int] = []
        before_changes(root, numbers.append)
        run(root)
        seen.write_text(str(len(numbers)))

    assert forked(whole) == 0
    return int(seen.read_text())


def killed_at(root: Path, number: int) -> None:
    """Run a sweep that is killed before an operation."""

    def dies() -> None:
        before_changes(
            root, lambda now: os.kill(os.getpid(), signal.SIGKILL) if now == number else None
        )
        run(root)

    assert forked(dies) in (0, -signal.SIGKILL)


def wrong(root: Path, whole: tuple, plan) -> list[str]:
    """Return what is not as after a run without interruption."""
    found = [] if same_as(whole, root, plan) else ["other rows or objects"]
    left = [*(root / "work").iterdir(), *(root / "failures").iterdir()]
    return found + [str(path.relative_to(root)) for path in left]


def main(folder: str, step: str) -> None:
    """Kill a sweep before every `step`-th of its operations."""
    place = Path(folder)
    plan = toy_plan(place / "whole", seeds=SEEDS)
    most = operations(place / "whole")
    whole = rows(place / "whole", plan), contents(place / "whole")
    print(most)
    for number in range(1, most + 1, int(step)):
        root = place / str(number)
        killed_at(root, number)
        assert forked(lambda root=root: run(root)) == 0, number
        if problems := wrong(root, whole, plan):
            print(number, *problems)


if __name__ == "__main__":
    main(*sys.argv[1:])
