"""The status of a sweep, read from its folder: by another terminal, while drivers work."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from simlab.sweeps.execute import has_failed
from simlab.sweeps.folder import SweepFolder
from simlab.sweeps.plan import KINDS
from simlab.sweeps.survey import read_plan, survey
from simlab.sweeps.watch import seems_alive

_RECENT_SECONDS = 600.0


@dataclass(frozen=True)
class Count:
    """The jobs of a kind by state; those that wait do so for a worker or for another job."""

    done: int = 0
    running: int = 0
    failed: int = 0
    waiting: int = 0


@dataclass(frozen=True)
class Status:
    """The status of a sweep.

    Attributes
    ----------
    kinds
        The jobs of every kind. A job counts as done even if its output was deleted because
        nothing needs it any more.
    per_hour
        Jobs finished per hour, over the last ten minutes in which any was.
    seconds_left
        Expected time until all is done, from the mean times of finished jobs of each kind and the
        number of jobs that run now; None if no job runs, or a waiting kind has no finished job.
    last_error
        Title and error of the job that failed last.
    """

    kinds: Mapping[str, Count]
    per_hour: float
    seconds_left: float | None
    last_error: str | None

    @property
    def total(self) -> Count:
        """Return the jobs of all kinds together."""
        fields = zip(*(tuple(asdict(count).values()) for count in self.kinds.values()), strict=True)
        return Count(*(sum(values) for values in fields))

    def as_dict(self) -> dict[str, Any]:
        """Return the status as JSON values."""
        return {**asdict(self), "total": asdict(self.total)}


def read_status(folder: str | Path) -> Status:
    """Return the status of the sweep in a folder.

    Parameters
    ----------
    folder
        Folder of a sweep (``--out`` of `simcore sweep`).

    Raises
    ------
    UserError
        No sweep ran there.
    """
    place = SweepFolder(Path(folder))
    plan, keep = read_plan(place)
    work = survey(place, plan, keep)
    failures = {
        key: record
        for key, record in place.failed().items()
        if has_failed(record) and plan.number(key) is not None  # the file may have changed
    }
    running = {key for key in place.claimed() if seems_alive(place.claims / key)}
    counts = {kind: dict.fromkeys(("done", "running", "failed", "waiting"), 0) for kind in KINDS}
    waiting: dict[str, int] = defaultdict(int)
    for job, needed in zip(plan.jobs, work.needed, strict=True):
        state = "done"
        if needed:
            state = "running" if job.key in running else "waiting"
            state = "failed" if state == "waiting" and job.key in failures else state
            if state != "failed":
                waiting[job.kind] += 1
        counts[job.kind][state] += 1
    shown = {kind: Count(**counts[kind]) for kind in plan.counts()}
    per_hour, left = _speed(place, waiting, sum(count.running for count in shown.values()))
    last = max(failures.values(), key=lambda record: record["when"], default=None)
    error = None if last is None else f"{last['kind']} {last['title']}: {last['error']}"
    return Status(shown, per_hour, left, error)


def _speed(
    folder: SweepFolder, waiting: Mapping[str, int], running: int
) -> tuple[float, float | None]:
    """Return the jobs per hour, and the seconds left."""
    times: dict[str, list[float]] = defaultdict(list)
    ends = []
    for line in folder.finished():
        times[line["kind"]].append(line["seconds"])
        ends.append(line["at"])
    if not ends:
        return 0.0, None
    last = max(ends)
    recent = [end for end in ends if end > last - _RECENT_SECONDS]
    until = time.time() if running else last
    span = max(until - min(recent), 1.0)
    per_hour = 3600 * len(recent) / span
    if not running or not waiting.keys() <= times.keys():
        return per_hour, 0.0 if not waiting else None
    work = sum(count * sum(times[k]) / len(times[k]) for k, count in waiting.items())
    return per_hour, work / running
