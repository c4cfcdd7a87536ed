"""How far a sweep is: jobs by state, rate and time left; drawn, printed, and written to a file.

The driver counts, and writes ``status.json`` every few seconds; `read_status` reads it in another
terminal.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from simlab.errors import UserError
from simlab.store.console import Meter, log_line, span
from simlab.store.files import write_json
from simlab.store.jobs import is_owned
from simlab.sweeps.outputs import LOCK, SweepFolder, read_record
from simlab.sweeps.plan import Plan

STATUS = "status.json"  # `simlab.report` reads it
WRITE_SECONDS = 5.0  # after which it is written anew
LONG_SECONDS = 10.0  # of a job whose end has a line of its own
_RECENT_SECONDS = 600.0
_MOST_NAMED = 3  # jobs of a line


@dataclass(frozen=True)
class Count:
    """The jobs of a kind by state; those that wait do so for a process or for another job."""

    done: int = 0
    running: int = 0
    failed: int = 0
    waiting: int = 0


@dataclass(frozen=True)
class Status:
    """The status of a sweep."""

    # The jobs of every kind. A job counts as done even if its output was deleted because nothing
    # needs it any more.
    kinds: Mapping[str, Count]
    per_hour: float  # jobs finished per hour by this run, in the last ten minutes
    # Expected time until all is done, from the mean times of finished jobs of each kind and the
    # number of jobs that run now; None if no job runs, or a waiting kind has no finished job.
    seconds_left: float | None
    last_error: str | None  # title and error of the job that failed last

    @property
    def total(self) -> Count:
        """Return the jobs of all kinds together."""
        counts = [tuple(asdict(count).values()) for count in self.kinds.values()]
        return Count(*map(sum, zip(*counts, strict=True)))

    def as_dict(self) -> dict[str, Any]:
        """Return the status as JSON values."""
        return {**asdict(self), "total": asdict(self.total)}


class Times:
    """The mean time of finished jobs of each kind."""

    def __init__(self, finished: Iterable[tuple[str, float]] = ()) -> None:
        self._jobs: Counter[str] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        for kind, seconds in finished:
            self.add(kind, seconds)

    def add(self, kind: str, seconds: float) -> None:
        """Count a job that has finished."""
        self._jobs[kind] += 1
        self._seconds[kind] += seconds

    def work(self, jobs: Mapping[str, int]) -> tuple[float, dict[str, int]]:
        """Return the seconds of work of so many jobs, and the number of jobs of unknown kinds."""
        unknown = {kind: count for kind, count in jobs.items() if count and not self._jobs[kind]}
        known = {kind: count for kind, count in jobs.items() if self._jobs[kind]}
        work = sum(n * self._seconds[kind] / self._jobs[kind] for kind, n in known.items())
        return work, unknown


class Progress:
    """The counts of a driver at work, which a thread draws."""

    def __init__(self, folder: SweepFolder, plan: Plan) -> None:
        self.folder, self.plan = folder, plan
        self.to_do: Counter[str] = Counter()  # jobs of each kind that are not done, failed ones too
        self.failures: dict[int, str] = {}  # errors, by the number of the job
        self.running: dict[int, float] = {}  # when each job began; a submitted one may still wait
        self.last_error: str | None = None
        self._times = Times(folder.finished())
        self._ends: deque[float] = deque()
        self._begun = self._written = time.monotonic()
        self.meter = Meter("sweep", len(plan), self.done, self.left, self.titles)

    def done(self) -> int:
        """Return how many jobs are done, or were done before."""
        return len(self.plan) - sum(list(self.to_do.values()))

    def left(self) -> float | None:
        """Return the seconds left; None if a kind has no mean time yet, or no job runs."""
        jobs = Counter(self.to_do) - self._kinds(self.failures)
        work, unknown = self._times.work(jobs)
        if not jobs:
            return 0.0
        return None if unknown or not self.running else work / len(self.running)

    def titles(self) -> str:
        """Return the jobs that run and how long the first ones have, in a few words."""
        running, now = sorted(self.running.copy().items()), time.monotonic()
        more = [f"and {len(running) - _MOST_NAMED:,} more"] if len(running) > _MOST_NAMED else []
        first = running[:_MOST_NAMED]
        return ", ".join([*(f"{self.name(n)} for {span(now - then)}" for n, then in first), *more])

    def finished(self, number: int, seconds: float) -> None:
        """Count a job that this run has done, and write a line if it took long."""
        self._times.add(self.plan.jobs[number].kind, seconds)
        self._ends.append(time.monotonic())
        if seconds > LONG_SECONDS:
            self.tell(number, f"took {span(seconds)}")

    def fails(self, number: int, error: str, seconds: float) -> None:
        """Count a job that failed, and write a line."""
        self.last_error = f"{self.name(number)}: {error}"
        self.tell(number, f"failed after {span(seconds)}: {error}")

    def tell(self, number: int, words: str) -> None:
        """Write a line about a job into a log."""
        line = f"{self.meter.counted()}: {self.name(number)} {words}"
        log_line("; ".join(filter(None, [line, self.meter.time_left()])))

    def status(self) -> Status:
        """Return the counts as they are."""
        failed, running = self._kinds(self.failures), self._kinds(self.running)
        kinds = {}
        for kind, count in self.plan.counts().items():
            states = count - self.to_do[kind], running[kind], failed[kind]
            kinds[kind] = Count(*states, count - sum(states))
        now = time.monotonic()
        while self._ends and self._ends[0] < now - _RECENT_SECONDS:
            self._ends.popleft()
        seconds = min(max(now - self._begun, 1.0), _RECENT_SECONDS)
        return Status(kinds, 3600 * len(self._ends) / seconds, self.left(), self.last_error)

    def write(self, at_once: bool = True) -> None:
        """Write the status to its file; unless `at_once`, only if it was not written just now."""
        if at_once or time.monotonic() - self._written > WRITE_SECONDS:
            named = [{"title": self.name(n), "error": e} for n, e in sorted(self.failures.items())]
            write_json(self.folder.root / STATUS, {**self.status().as_dict(), "failed": named})
            self._written = time.monotonic()

    def name(self, number: int) -> str:
        """Return the kind and the title of a job."""
        return f"{self.plan.jobs[number].kind} {self.plan.jobs[number].title}"

    def _kinds(self, numbers: Collection[int]) -> Counter[str]:
        return Counter(self.plan.jobs[number].kind for number in list(numbers))


def read_status(folder: str | Path) -> Status:
    """Return the status of the sweep in a folder, as its driver last wrote it.

    Parameters
    ----------
    folder
        Folder of a sweep (``--out`` of `simcore sweep`).
    """
    path = Path(folder) / STATUS
    if not path.is_file():
        raise UserError(f"{folder}: wanted the folder of a sweep, found no {STATUS} there")
    record = read_record(path, kinds=dict, per_hour=float)
    if record is None:
        raise UserError(
            f"{path}: wanted the status of a sweep, found a damaged file; the next run of the "
            "sweep writes it anew"
        )
    kinds = {kind: Count(**count) for kind, count in record["kinds"].items()}
    status = Status(kinds, record["per_hour"], record["seconds_left"], record["last_error"])
    if is_owned(path.parent / LOCK):  # by the driver
        return status
    for kind, count in kinds.items():
        kinds[kind] = replace(count, running=0, waiting=count.waiting + count.running)
    return replace(status, seconds_left=status.seconds_left and None)
