"""The disk space of checkpoints and representations: what may go, and what may start.

An object goes when no job needs it any more, unless the file of the sweep keeps its kind. With
`max_disk`, a job that makes an object starts only if there is room for it; when nothing else can
go on, an object that is needed later goes, and is made again when it is needed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator

from simlab.errors import UserError
from simlab.sweeps.fetching import Fetching
from simlab.sweeps.folder import DamagedError, SweepFolder
from simlab.sweeps.plan import FOLDERS, Plan
from simlab.sweeps.survey import KEPT

_MOST_TIMES = 3  # that an object goes while jobs still need it


class DiskUse:
    """The disk space of the objects of a sweep.

    Parameters
    ----------
    keep, most
        ``keep`` and ``max_disk`` of the file; `most` may be None.
    done, needed, users
        Lists of the driver, by the number of the job; they change while it works.
    revisions
        Models that the sweep downloads when their jobs come; they count as well.
    """

    def __init__(
        self,
        folder: SweepFolder,
        plan: Plan,
        keep: str,
        most: int | None,
        done: list[bool],
        needed: list[bool],
        users: list[list[int]],
        revisions: Fetching,
    ) -> None:
        self.folder, self.plan, self.keep, self.most = folder, plan, keep, most
        self.kept = KEPT.get(keep, ())
        self.done, self.needed, self.users = done, needed, users
        self.revisions = revisions
        self.bytes: dict[int, int] = {}
        self._known: dict[str, list[tuple[int, int]]] = {kind: [] for kind in FOLDERS}
        self._dropped: dict[int, int] = {}
        if most is not None:
            for number, job in enumerate(plan.jobs):
                if job.kind in FOLDERS and done[number]:
                    self._measure(number)

    def finished(self, number: int) -> None:
        """Count the output of a job that is done, and drop inputs that nothing needs any more.

        Raises
        ------
        UserError
            The output alone is larger than ``max_disk``.
        """
        job = self.plan.jobs[number]
        if job.kind in FOLDERS and self.most is not None:
            self._measure(number)
            if self.bytes.get(number, 0) > self.most:
                raise UserError(
                    f"sweep, key max_disk: wanted at least {self.bytes[number]:,} bytes, which "
                    f"{job.kind} {job.title} takes alone, found {self.most:,}"
                )
        for needed in dict.fromkeys((*job.needs, number)):
            if self.plan.jobs[needed].kind in FOLDERS and self._may_go(needed):
                self._drop(needed)

    def forget(self, number: int) -> None:
        """Note that an object is not there any more."""
        self.bytes.pop(number, None)

    def drop_unneeded(self) -> int:
        """Drop all objects that nothing needs and nobody keeps; return how many went."""
        unneeded = [
            number
            for number, job in enumerate(self.plan.jobs)
            if job.kind in FOLDERS and self.done[number] and self._may_go(number)
        ]
        for number in unneeded:
            self._drop(number)
        return len(unneeded)

    def admits(self, number: int, running: Collection[int]) -> bool:
        """Return whether there is room for the output of a job, and for the model that it loads."""
        downloaded = self.revisions.wanted_bytes(number)
        if self.most is None or (self.plan.jobs[number].is_rows and not downloaded):
            return True
        coming = [n for n in (*running, number) if not self.plan.jobs[n].is_rows]
        if not (self.bytes or self.revisions.bytes_besides(number)) and len(coming) <= 1:
            return True  # there is nothing that could go, and the estimate may be too large
        expected = sum(map(self._estimate, coming)) + downloaded
        return self._in_use() + expected <= self.most

    def fetch_ahead(self, ready: Iterable[int], running: Collection[int]) -> None:
        """Begin to download the revision of the first job that is ready and lacks it."""
        first = min((n for n in ready if not self.revisions.has(n)), default=None)
        if first is not None and self.admits(first, running):
            self.revisions.fetch(first, running, self.most)

    def make_room(self, number: int) -> Iterator[int]:
        """Drop objects that are needed later until a job is admitted; yield their numbers.

        Revisions go first that wait for other jobs. Then the job's revision is downloaded.

        Raises
        ------
        UserError
            The job does not fit beside its own inputs and what is kept, or objects have gone and
            come back too often.
        """
        own = self.plan.jobs[number].needs
        if not (self.admits(number, ()) and self.revisions.has(number)):
            self.revisions.drop_idle(number, ())
        while not self.admits(number, ()):
            others = [n for n in self.bytes if n not in own and self._can_go(n)]
            if not others:
                raise UserError(
                    f"sweep, key max_disk: wanted room for {self._estimate(number):,} bytes of "
                    f"{self.plan.jobs[number].kind} {self.plan.jobs[number].title}, found "
                    f"{self._in_use():,} of {self.most:,} bytes in use by objects that have to "
                    f"stay: inputs of the job, its model, what keep = {self.keep!r} keeps, and "
                    f"what has gone {_MOST_TIMES} times already"
                )
            last = max(others, key=self._next_use)
            self._dropped[last] = self._dropped.get(last, 0) + 1
            self._drop(last)
            yield last
        if not self.revisions.has(number):
            self.revisions.fetch(number, (), self.most)

    def _in_use(self) -> int:
        return sum(self.bytes.values()) + self.revisions.bytes

    def _can_go(self, number: int) -> bool:
        stays = self.plan.jobs[number].kind in self.kept
        return not stays and self._dropped.get(number, 0) < _MOST_TIMES

    def _next_use(self, number: int) -> int:
        return min((u for u in self.users[number] if self.needed[u]), default=len(self.plan.jobs))

    def _may_go(self, number: int) -> bool:
        if self.plan.jobs[number].kind in self.kept or not self.done[number]:
            return False
        return not any(self.needed[user] for user in self.users[number])

    def _drop(self, number: int) -> None:
        job = self.plan.jobs[number]
        try:
            self.folder.delete(job.kind, job.key)
        except DamagedError:
            self.folder.delete(job.kind, job.key, damaged=True)
        self.done[number] = False
        self.forget(number)

    def _measure(self, number: int) -> None:
        job = self.plan.jobs[number]
        try:
            size = self.folder.record(job.kind, job.key)["bytes"]
        except DamagedError:
            return
        self.bytes[number] = size
        self._known[job.kind].append((size, job.hints.get("bytes", 0)))

    def _estimate(self, number: int) -> int:
        """Return the bytes that a job will write.

        They are those that the plan guesses, times the largest share by which the guess was wrong
        for a job of this kind. Without a guess they are as for the largest object of the kind.
        """
        job = self.plan.jobs[number]
        guess, known = job.hints.get("bytes", 0), self._known[job.kind]
        if guess:
            return math.ceil(guess * max((size / one for size, one in known if one), default=1))
        return max((size for size, _ in known), default=0)
