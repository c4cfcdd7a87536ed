"""Files of ended drivers and workers that no job will use again."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from simlab.errors import BusyError
from simlab.sweeps import claims, processes
from simlab.sweeps.finished import note_if_missing
from simlab.sweeps.folder import SweepFolder, discard
from simlab.sweeps.plan import Plan
from simlab.sweeps.scratch import discard_all, key_of
from simlab.sweeps.watch import Watch

_LOOK_SECONDS = 10.0


class Leftovers:
    """Removes claims of owners that are gone, unfinished outputs, and records of earlier files.

    The claim of a job that is still to be done stays for the process that takes it over.

    Parameters
    ----------
    done, needed
        Lists of the driver, by the number of the job; they change while it works.
    """

    def __init__(
        self,
        folder: SweepFolder,
        plan: Plan,
        watch: Watch,
        done: list[bool],
        needed: list[bool],
    ) -> None:
        self.folder, self.plan, self.watch = folder, plan, watch
        self.done, self.needed = done, needed
        self._looked = 0.0
        self._over: list[Path] = []

    def clean(self) -> None:
        """Remove what is there when a driver begins."""
        # The folders were listed before the claims: who makes a folder has claimed its job.
        scratches = list(self.folder.work.iterdir())
        claimed = [self.folder.claims / key for key in self.folder.claimed()]
        self._over = [path for path in claimed if not self._is_wanted(path.name)]
        self._over += [self.folder.drivers / name for name in _names(self.folder.drivers)]
        self._settle()
        working = set(self.folder.claimed())
        for scratch in scratches:
            key = key_of(scratch)
            if not self._is_wanted(key) and key not in working:
                discard(scratch)
        for name in _names(self.folder.failures):
            key = name.removesuffix(".json")
            number = self.plan.number(key)
            if number is None or self.done[number]:  # of an earlier file, or done since
                self.folder.forgive(key)

    def look(self) -> None:
        """Remove claims whose owners have been silent since they were found."""
        # A watch begins anew after half of `stale` without a look.
        if processes.clock() - self._looked > min(_LOOK_SECONDS, self.watch.stale / 4):
            self._settle()

    def add(self, number: int) -> None:
        """Settle the claim of a finished job as soon as its owner is known to be gone."""
        self.done[number] = True
        self._over.append(self.folder.claims / self.plan.jobs[number].key)
        self._settle()

    def settle(self, number: int, dead: claims.Signature) -> None:
        """Remove what the owner of a finished job left that ended before it gave the claim back."""
        job = self.plan.jobs[number]
        held = claims.claim(self.folder.claims, job.key, dead)
        if held is None:
            return
        try:
            with contextlib.suppress(BusyError), held.locked():
                note_if_missing(self.folder, job.kind, job.key)
                discard_all(self.folder, job.key)
        finally:
            held.release()

    def _is_wanted(self, key: str) -> bool:
        number = self.plan.number(key)
        return number is not None and self.needed[number]

    def _settle(self) -> None:
        self._looked = processes.clock()
        left = []
        for path in self._over:
            dead = self.watch.is_dead(path)
            if dead is not None:
                self._remove(path, dead)
            elif self.watch.seen(path) is not None:
                left.append(path)
        self._over = left

    def _remove(self, path: Path, dead: claims.Signature) -> None:
        number = self.plan.number(path.name)
        if number is not None and self.done[number]:
            self.settle(number, dead)
        else:
            claims.remove(path.parent, path.name, dead)


def _names(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if not name.startswith(".")]
