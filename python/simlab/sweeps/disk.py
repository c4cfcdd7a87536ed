"""The disk space of objects: what may start, and what may go.

An object goes when no job needs it any more, unless the file of the sweep keeps its kind. With
`max_disk`, a job that makes an object starts only if all jobs before it could still be done one
after the other, in the order of the plan, beside what it makes. So the jobs never fill the disk
with objects that wait for each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import NoReturn

from simlab.errors import UserError
from simlab.sweeps.outputs import DamagedError, SweepFolder
from simlab.sweeps.plan import FOLDERS, KEPT, Plan


class DiskUse:
    """The disk space of the objects of a sweep, at most `most` bytes; lists are the driver's."""

    def __init__(
        self,
        folder: SweepFolder,
        plan: Plan,
        keep: str,
        most: int | None,
        done: list[bool],
        needed: list[bool],
        failed: Collection[int],
        drop: Callable[[int], None],
    ) -> None:
        self.folder, self.plan, self.keep, self.most = folder, plan, keep, most
        self.done, self.needed, self.users = done, needed, plan.users()
        self.failed, self.drop = failed, drop
        self.bytes: dict[int, int] = {}
        self._shares: dict[str, float] = {}  # largest share of a guess that an object took, by kind
        self._largest: dict[str, int] = {}

    def measure(self, number: int) -> None:
        """Count an object; raise UserError if one that was made is larger than ``max_disk``."""
        job = self.plan.jobs[number]
        if job.kind not in FOLDERS or self.most is None:
            return
        try:
            size = self.bytes[number] = self.folder.record(job.kind, job.key)["bytes"]
        except DamagedError:
            return
        if size > self.most and self.needed[number]:
            raise UserError(
                f"sweep, key max_disk: wanted at least {size:,} bytes, which {job.kind} "
                f"{job.title} takes alone, found {self.most:,}"
            )
        if guess := job.hints.get("bytes", 0):
            self._shares[job.kind] = max(size / guess, self._shares.get(job.kind, 0.0))
        self._largest[job.kind] = max(size, self._largest.get(job.kind, 0))

    def drop_unneeded(self, numbers: Collection[int] | None = None) -> int:
        """Drop objects that nothing needs and nobody keeps; return how many went."""
        unneeded = []
        for number in range(len(self.plan)) if numbers is None else numbers:
            kind = self.plan.jobs[number].kind
            may_go = self.done[number] and kind in FOLDERS and kind not in KEPT[self.keep]
            if may_go and not any(self.needed[user] for user in self.users[number]):
                unneeded.append(number)
        for number in unneeded:
            self.drop(number)
        return len(unneeded)

    def admits(self, number: int, running: Collection[int]) -> bool:
        """Return whether there is room for a job beside all that can be done before it."""
        if self.most is None or self.plan.jobs[number].is_rows:
            return True
        held = {n: self._size(n) for n in (*self.bytes, *running, number)}
        used = sum(held.values())
        if used > self.most:  # nothing can go, and a guess may be too large
            return not self.bytes and not running
        lost: set[int] = set()  # jobs that failed, or wait for one that did
        for one in range(number):
            if not self.needed[one] or one in running:
                continue
            if one in self.failed or not lost.isdisjoint(self.plan.jobs[one].needs):
                lost.add(one)
                continue
            held[one] = self._size(one)
            used += held[one]
            if used > self.most:
                return False
            for other in (*self.plan.jobs[one].needs, one):
                if not self._stays(other, one, running):
                    used -= held.pop(other, 0)
        return True

    def _stays(self, number: int, after: int, running: Collection[int]) -> bool:
        """Return whether an object stays when the jobs up to `after` are done."""
        if self.plan.jobs[number].kind in KEPT[self.keep]:
            return True
        return any(self.needed[u] and (u > after or u in running) for u in self.users[number])

    def refuse(self, number: int) -> NoReturn:
        """Raise UserError because a job does not fit, and no other job runs."""
        job = self.plan.jobs[number]
        raise UserError(
            f"sweep, key max_disk: wanted room for {self._size(number):,} bytes of {job.kind} "
            f"{job.title}, found {sum(self.bytes.values()):,} of {self.most:,} bytes in use by "
            f"objects that jobs still need, or that keep = {self.keep!r} keeps"
        )

    def _size(self, number: int) -> int:
        """Return the bytes of an object, or a guess: of the plan, or the largest of the kind."""
        job = self.plan.jobs[number]
        if number in self.bytes or job.is_rows:
            return self.bytes.get(number, 0)
        guess = math.ceil(job.hints.get("bytes", 0) * self._shares.get(job.kind, 1.0))
        return guess or self._largest.get(job.kind, 0)
