"""How a driver moves finished rows into the data set, one driver at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from simlab.errors import BusyError, UserError
from simlab.store.console import note
from simlab.store.ownership import owned
from simlab.sweeps import processes
from simlab.sweeps.folder import SweepFolder
from simlab.sweeps.parts import write_table
from simlab.sweeps.plan import FOLDERS, Plan

GATHER_SECONDS, GATHER_PARTS = 5.0, 1000
PATIENCE_SECONDS = 600.0  # with another driver that moves rows
_TELL_SECONDS = 5.0


class Gatherer:
    """The parts of a driver that are not in the data set yet."""

    def __init__(self, folder: SweepFolder, plan: Plan) -> None:
        self.folder, self.plan = folder, plan
        self._parts: list[Path] = []
        self._gathered = processes.clock()

    def add(self, part: Path) -> None:
        """Note a part that is there."""
        self._parts.append(part)

    def is_due(self) -> bool:
        """Return whether it is time to move rows."""
        late = processes.clock() - self._gathered > GATHER_SECONDS
        return late or len(self._parts) > GATHER_PARTS

    def gather(self) -> set[Path]:
        """Move rows, unless another driver does so now; return the files that were damaged."""
        self._gathered = processes.clock()
        if not self._parts:
            return set()
        try:
            with self._lock():
                return self._move()
        except BusyError:  # later
            return set()

    def gather_all(self) -> set[Path]:
        """Move all rows of the plan, also of other drivers; return the files that were damaged.

        Raises
        ------
        UserError
            Another process holds the lock of the data set, and does not go on.
        """
        kinds = [kind for kind in self.plan.counts() if kind not in FOLDERS]
        wanted = ((kind, key) for kind in kinds for key in self.folder.present(kind))
        known = (pair for pair in wanted if self.plan.number(pair[1]) is not None)
        self._parts = [self.folder.place(*pair) for pair in known]
        if not self._parts:
            return set(self.set_aside_damaged())
        with self._lock_after_others():
            return self._move()

    def set_aside_damaged(self) -> list[Path]:
        """Set damaged files of the data set aside; return where they stood.

        Raises
        ------
        UserError
            Another process holds the lock of the data set, and does not go on.
        """
        if not self.folder.data.damaged():
            return []
        with self._lock_after_others():
            return self.folder.data.set_aside_damaged()

    def set_aside(self) -> None:
        """Take rows out of the data set that an earlier file of this sweep asked for.

        Raises
        ------
        UserError
            Another process holds the lock of the data set, and does not go on.
        """
        data = self.folder.data
        if all(self.plan.number(key) is not None for key in data.made()):
            return
        with self._lock_after_others():
            others = [key for key in data.made() if self.plan.number(key) is None]
            for key, table, made in data.take_out(others):
                place = self.folder.place(made.kind, key)
                write_table(table, place, key, made, self.folder.durable)
        note(f"rows of {len(others):,} jobs of an earlier file are set aside in {data.folder}")

    def _move(self) -> set[Path]:
        parts, self._parts = self._parts, []
        return self.folder.data.gather(parts)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        with owned(self.folder.data.folder, lock=self.folder.root / ".results.lock"):
            yield

    @contextmanager
    def _lock_after_others(self) -> Iterator[None]:
        """Hold the lock of the data set; wait for another driver, and say for which."""
        began, is_noted = processes.clock(), False
        with ExitStack() as stack:
            while True:
                try:
                    stack.enter_context(self._lock())
                    break
                except BusyError as error:  # `owned` has waited
                    waited = processes.clock() - began
                    if waited > PATIENCE_SECONDS:
                        raise UserError(
                            f"{error} (waited {waited:.0f} seconds; finished rows stay in "
                            f"{self.folder.root / 'objects'}, and the same command moves them)"
                        ) from error
                    if waited > _TELL_SECONDS and not is_noted:
                        is_noted = True
                        note(f"waits to move rows: {error}")
            yield
