"""Watches: which claims have no owner any more, by the own clock of the process that looks."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from simlab.sweeps import processes
from simlab.sweeps.claims import STALE_SECONDS, Sight, Signature, look


class Watch:
    """The claims of other processes, as one process has seen them.

    A claim is dead when its owner is known to have ended, or when it was the same in all looks of
    `stale` seconds. If there was no look for half that time, the watch begins anew: an observer
    that was suspended, perhaps together with the owner, has seen nothing.

    Parameters
    ----------
    stale
        Seconds of this process without a change, after which a claim has no owner.
    """

    def __init__(self, stale: float = STALE_SECONDS) -> None:
        self.stale = stale
        self._seen: dict[Path, _Seen] = {}

    def look(self, path: Path) -> Sight | None:
        """Read a claim; None if there is no claim."""
        sight, now = look(path), processes.clock()
        seen = self._seen.get(path)
        if sight is None:
            self._seen.pop(path, None)
        elif seen and seen.sight.signature == sight.signature and now - seen.last <= self.stale / 2:
            seen.last = now
        else:
            self._seen[path] = _Seen(sight, now, now)
        return sight

    def seen(self, path: Path) -> Sight | None:
        """Return the claim as the last look found it."""
        seen = self._seen.get(path)
        return None if seen is None else seen.sight

    def is_dead(self, path: Path) -> Signature | None:
        """Return the signature of a claim whose owner is gone; else None, also without a claim.

        `claims.claim` takes over from the owner of that signature, and from no later one.
        """
        sight = self.look(path)
        if sight is None:
            return None
        if sight.is_here():
            return sight.signature if sight.is_gone() else None
        seen = self._seen[path]
        return sight.signature if seen.last - seen.first >= self.stale else None


@dataclass
class _Seen:
    """A claim, and when an observer saw it first and last."""

    sight: Sight
    first: float
    last: float


def seems_alive(path: Path) -> bool:
    """Return whether a claim seems to have an owner, for people to read.

    One look cannot tell more of a process of another machine than when it touched its claim, and
    two clocks may differ. Nobody takes over on these grounds.
    """
    sight = look(path)
    if sight is None or sight.is_gone():
        return False
    return sight.is_here() or time.time() - sight.touched / 1e9 <= STALE_SECONDS
