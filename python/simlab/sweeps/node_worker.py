"""The worker on a node of a cluster: it checks that it sees the folder, then takes orders.

Nothing here imports Ray, to which `cluster` gives these functions. Orders and answers are small;
jobs read and write files of the folder that all nodes see.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from simlab.errors import argument
from simlab.sweeps.execute import REFUSED, Answer, Order, execute
from simlab.sweeps.locking import Probe, is_kept_off
from simlab.sweeps.worker import keep_imports

_MARK = ".shared-"
_PATIENCE_SECONDS = 60.0  # a network file system remembers for so long that a file is not there


@dataclass(frozen=True)
class Desk:
    """Where the processes of a sweep work, and how they know that they share the same folder.

    Attributes
    ----------
    root
        The folder of the sweep.
    token
        Name and content of a file that the driver writes into the folder, and keeps locked.
    start
        The folder where the command was started, to which relative names of models refer.
    """

    root: str
    token: str
    start: str

    def order(self, order: Order) -> Order:
        """Return an order for a process on another node, which may see new files late."""
        return replace(order, root=self.root, patience=_PATIENCE_SECONDS)

    def open(self) -> Probe:
        """Write the driver's file and lock it; delete the files of drivers that have ended."""
        root = Path(self.root)
        for mark in root.glob(f"{_MARK}*"):
            driver = mark.with_name(mark.name[: len(_MARK) + len(self.token)])
            if not is_kept_off(driver):
                mark.unlink(missing_ok=True)
        return Probe(self._mark(), self.token)

    def clear(self) -> None:
        """Delete the files of the driver and of all nodes."""
        for mark in Path(self.root).glob(f"{self._mark().name}*"):
            mark.unlink(missing_ok=True)

    def answer(self, node: str) -> None:
        """Write the file of a node."""
        self._mark(node).touch()

    def wrong(self) -> str:
        """Return why this process does not share the driver's file; nothing if it does."""
        try:
            mark = self._mark().read_text()
        except OSError as error:
            return f"it does not see a file that was written there ({error.strerror})"
        if mark != self.token:
            return "it sees another folder of this name"
        if not is_kept_off(self._mark()):
            return (
                "it got a lock that the driver holds, because this mount locks files for each "
                "machine alone (Lustre: mount with flock; NFS: without nolock and local_lock)"
            )
        return ""

    def wrong_of(self, node: str) -> str:
        """Return why the driver does not see what a node wrote; nothing if it does."""
        there = self._mark(node).is_file()
        return "" if there else "what it wrote there is not in the folder"

    def _mark(self, node: str = "") -> Path:
        return Path(self.root, f"{_MARK}{self.token}{node}")


def check_node(desk: Desk, node: str) -> str:
    """Read the driver's file and write one for it; return what is wrong, or nothing."""
    wrong = desk.wrong()
    if not wrong:
        try:
            desk.answer(node)
        except OSError as error:
            wrong = f"it cannot write there ({error.strerror})"
    return wrong


def do(desk: Desk, order: Order) -> Answer:
    """Do an order in a process of a node."""
    wrong = _sit_down(desk)
    if wrong:
        node = socket.gethostname()
        wanted = f"a folder that node {node} shares"
        message = f"{argument('out', desk.root)}: wanted {wanted}, found that {wrong}"
        return Answer(order.job.key, REFUSED, message=message)
    with _printing_to(Path(desk.root, "log", f"worker-{socket.gethostname()}.txt")):
        answer = execute(order)
    keep_imports()
    return answer


@cache
def _sit_down(desk: Desk) -> str:
    """Make this process ready for orders; return what is wrong, or nothing.

    The driver has checked the nodes that were there at the start; others may have come.
    """
    wrong = desk.wrong()
    if not wrong:
        with contextlib.suppress(OSError):  # a node without it can do jobs without relative names
            os.chdir(desk.start)
    return wrong


@contextlib.contextmanager
def _printing_to(file: Path) -> Iterator[None]:
    """Add to a file what the block prints, in whatever way; Ray prints between two orders."""
    outputs = {1: sys.stdout, 2: sys.stderr}
    before = {number: os.dup(number) for number in outputs}
    log = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        for number, stream in outputs.items():
            stream.flush()
            os.dup2(log, number)
        yield
    finally:
        for number, stream in outputs.items():
            stream.flush()
            os.dup2(before[number], number)
            os.close(before[number])
        os.close(log)
