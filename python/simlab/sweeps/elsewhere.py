"""Jobs that other processes work on, as a driver sees them: their claims, looked at in turn."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from simlab.store.console import note
from simlab.sweeps import processes
from simlab.sweeps.claims import Sight, Signature
from simlab.sweeps.watch import Watch

LOOK_SECONDS = 0.5  # between two looks at the same claim
_LOOKS = 25  # most looks at once, unless a claim would be looked at too rarely
_TELL_SECONDS = 5.0  # that a driver waits for others alone, before it says so


class Elsewhere:
    """The jobs that other processes work on.

    A round looks at few claims, so that a thousand jobs at work elsewhere cost the file system as
    much as fifty. Each claim is looked at four times in the time after which it is stale.

    Parameters
    ----------
    folder
        The folder of the claims.
    watch
        Sees which owners are gone.
    """

    def __init__(self, folder: Path, watch: Watch) -> None:
        self.folder, self.watch = folder, watch
        self._looked: dict[str, float] = {}  # when each claim was looked at, the oldest look first
        self._sights: dict[str, Sight] = {}
        self._round = 0.0
        self._alone: float | None = None
        self._told = False

    def __len__(self) -> int:
        return len(self._looked)

    def __contains__(self, key: str) -> bool:
        return key in self._looked

    def add(self, key: str) -> None:
        """Watch the claim of a job."""
        self._looked[key] = processes.clock()

    def look(self) -> Iterator[tuple[str, Signature | None]]:
        """Yield the jobs that no process works on now, with the claim of an owner that is gone."""
        now = processes.clock()
        if now - self._round < LOOK_SECONDS:
            return
        self._round = now
        rarely = math.ceil(len(self._looked) * 4 * LOOK_SECONDS / self.watch.stale)
        due = [key for key, looked in self._looked.items() if now - looked >= LOOK_SECONDS]
        for key in due[: max(_LOOKS, rarely)]:
            del self._looked[key]
            dead = self.watch.is_dead(self.folder / key)
            sight = self.watch.seen(self.folder / key)
            if sight is None or dead is not None:
                self._sights.pop(key, None)
                yield key, dead
            else:
                self._looked[key], self._sights[key] = now, sight

    def tell_once(self, alone: bool) -> None:
        """Say which process the driver waits for, if it has waited for others alone for a while."""
        if not alone or not self._sights:
            self._alone = None
            return
        self._alone = self._alone or processes.clock()
        if self._told or processes.clock() - self._alone < _TELL_SECONDS:
            return
        self._told = True
        owners = sorted({str(sight) for sight in self._sights.values()})
        jobs = "a job" if len(self) == 1 else f"{len(self):,} jobs"
        more = f" and {len(owners) - 1:,} more" if len(owners) > 1 else ""
        note(f"waits for {jobs} of {owners[0]}{more}")
