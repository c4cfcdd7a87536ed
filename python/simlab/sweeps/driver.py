"""The driver: gives jobs to an engine, depth first, until nothing more can be done.

The driver holds no state that matters: it finds out what is done when it starts, and whatever it
knows besides, another driver finds in the folder. Several drivers may work on one folder; claims
keep them off the same job.
"""

from __future__ import annotations

import heapq
import json
import os
import shutil
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from simlab.errors import BusyError, UserError, WriteError
from simlab.store.console import note
from simlab.store.files import writing
from simlab.store.ownership import owned
from simlab.sweeps import claims, execute
from simlab.sweeps.disk import DiskUse
from simlab.sweeps.engine import Engine
from simlab.sweeps.execute import Answer, Order, has_failed
from simlab.sweeps.folder import SweepFolder
from simlab.sweeps.plan import FOLDERS, Plan
from simlab.sweeps.survey import survey

GATHER_SECONDS, GATHER_PARTS = 5.0, 1000
_POLL_SECONDS = 0.5
_REPORT_ROWS = 20


@dataclass
class Outcome:
    """What a driver did.

    Attributes
    ----------
    done
        Number of jobs that this driver did, by kind.
    failed
        Titles and errors of jobs that failed, now or before.
    waiting
        Number of jobs that wait for jobs that failed.
    """

    done: Counter[str] = field(default_factory=Counter)
    failed: list[tuple[str, str]] = field(default_factory=list)
    waiting: int = 0


class Driver:
    """Does the jobs of a plan in a folder.

    Parameters
    ----------
    keep, max_disk
        As in the file of the sweep.
    retry_failed
        Whether jobs that failed before are tried again.
    stale
        Seconds after which a claim that is not touched has no owner.
    steps
        Module with the steps.
    tell
        Function that is called with the number of jobs that were finished meanwhile.
    """

    def __init__(
        self,
        folder: SweepFolder,
        plan: Plan,
        engine: Engine,
        *,
        keep: str,
        max_disk: int | None = None,
        retry_failed: bool = False,
        stale: float = claims.STALE_SECONDS,
        steps: str = "simlab.sweeps.steps",
        tell: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.folder, self.plan, self.engine = folder, plan, engine
        self.retry_failed, self.tell = retry_failed, tell
        self.stale, self.steps = stale, steps
        self.outcome = Outcome()
        found = survey(folder, plan, keep)
        self.done, self.needed = found.done, found.needed
        self.users = plan.users()
        self.disk = DiskUse(folder, plan, keep, max_disk, self.done, self.needed, self.users)
        self._ready: list[int] = []
        self._running: set[int] = set()
        self._elsewhere: dict[int, float] = {}
        self._failed: set[int] = set()
        self._parts: list[Path] = []
        self._gathered = time.monotonic()
        self._refused: str | None = None
        name = f"{socket.gethostname()}-{os.getpid()}-{time.time_ns()}.jsonl"
        self._log = folder.log / name

    def to_do(self) -> int:
        """Return the number of jobs that have to be done."""
        return sum(self.needed)

    def run(self) -> Outcome:
        """Do all jobs that can be done.

        Raises
        ------
        WriteError
            The disk is full. What is finished stays, and the next driver continues.
        UserError
            The inputs and the output of a job do not fit into `max_disk`.
        """
        self._begin()
        while True:
            self._submit()
            if not (self._running or self._elsewhere):
                if self._refused is None and self.gather(everything=True):
                    continue
                break
            for answer in self.engine.collect(_POLL_SECONDS):
                self._take(answer)
            self._look_elsewhere()
            if (
                time.monotonic() - self._gathered > GATHER_SECONDS
                or len(self._parts) > GATHER_PARTS
            ):
                self.gather()
        if self._refused is not None:
            raise WriteError(self._refused)
        self._summarise()
        return self.outcome

    def gather(self, everything: bool = False) -> bool:
        """Move finished rows into the data set, unless another driver does it now.

        Parameters
        ----------
        everything
            Wait for the other driver, and then move all rows that are there.

        Returns
        -------
        bool
            Whether a damaged part was found, whose job is to be done again.
        """
        self._gathered = time.monotonic()
        parts, self._parts = self._parts, []
        if everything:
            kinds = [kind for kind in self.plan.counts() if kind not in FOLDERS]
            wanted = ((kind, key) for kind in kinds for key in self.folder.present(kind))
            known = (pair for pair in wanted if self.plan.number(pair[1]) is not None)
            parts = [self.folder.place(*pair) for pair in known]
        if not parts:
            return False
        try:
            with owned(self.folder.data.folder, lock=self.folder.root / ".results.lock"):
                damaged = self.folder.data.gather(parts)
        except BusyError:
            self._parts = parts
            return everything and self.gather(everything)  # `owned` has waited
        for part in damaged:
            number = self.plan.number(part.stem)
            note(f"{part}: wanted the rows of a job, found a damaged file; the job is done again")
            if number is not None:
                self._missing(number)
        return bool(damaged)

    def _begin(self) -> None:
        self.folder.create()
        for file in self.folder.data.drop_damaged():
            note(f"{file}: wanted a Parquet file, found a damaged one; its jobs are done again")
        self._set_aside()
        self._sweep_work()
        for key, record in self.folder.failed().items():
            number = self.plan.number(key)
            if number is None or self.done[number]:
                continue
            if self.retry_failed:
                self.folder.forgive(key)
            elif has_failed(record):
                self._failed.add(number)
        self.disk.drop_unneeded()
        for number, needed in enumerate(self.needed):
            if needed and self._is_ready(number):
                self._ready.append(number)
        heapq.heapify(self._ready)

    def _set_aside(self) -> None:
        """Take rows out of the data set that an earlier file of this sweep asked for."""
        from simlab.sweeps.parts import write_table

        data = self.folder.data
        others = [key for key in data.made() if self.plan.number(key) is None]
        if not others:
            return
        with owned(data.folder, lock=self.folder.root / ".results.lock"):
            for key, table, made in data.take_out(others):
                write_table(
                    table, self.folder.place(made.kind, key), key, made, self.folder.durable
                )
        note(f"rows of {len(others):,} jobs of an earlier file are set aside in {data.folder}")

    def _sweep_work(self) -> None:
        """Delete what killed processes left of outputs that nobody will continue."""
        # The list of folders is older than that of claims: who makes a folder has claimed its job.
        found = list(self.folder.work.iterdir())
        working = set(self.folder.claimed())
        for left in found:
            number = self.plan.number(left.name.partition("-")[0])
            wanted = number is not None and not self.done[number]
            if not wanted and left.name.partition("-")[0] not in working:
                shutil.rmtree(left, ignore_errors=True)

    def _is_ready(self, number: int) -> bool:
        if self.done[number] or number in self._failed or number in self._running:
            return False
        return all(self.done[needed] for needed in self.plan.jobs[number].needs)

    def _submit(self) -> None:
        """Give the first jobs that are ready to the engine, as many as it takes."""
        later = []
        while self._ready and self._refused is None and self.engine.free():
            number = heapq.heappop(self._ready)
            if number in self._elsewhere or not self._is_ready(number):
                continue
            if not self.disk.admits(number, self._running):
                later.append(number)
                continue
            self._start(number)
        if later and not self._running and not self._elsewhere:
            first = later.pop(0)
            dropped = list(self.disk.make_room(first))
            self._start(first)
            for number in dropped:
                self._missing(number)
        for number in later:
            heapq.heappush(self._ready, number)

    def _start(self, number: int) -> None:
        self._running.add(number)
        jobs = self.plan.jobs
        needs = tuple((jobs[n].kind, jobs[n].key) for n in jobs[number].needs)
        root, durable = str(self.folder.root), self.folder.durable
        self.engine.submit(Order(root, jobs[number], needs, durable, self.stale, self.steps))

    def _take(self, answer: Answer) -> None:
        number = self.plan.number(answer.key)
        assert number is not None
        self._running.discard(number)
        job = self.plan.jobs[number]
        if answer.state in (execute.MADE, execute.BEFORE):
            if answer.state == execute.MADE:
                self.outcome.done[job.kind] += 1
                self._write_log(answer, job.kind)
            self._finish(number)
        elif answer.state == execute.BUSY:
            self._elsewhere[number] = time.monotonic()
        elif answer.state == execute.DAMAGED:
            self._repair(number, answer)
        elif answer.state == execute.REFUSED:
            self._refuse(number, answer)
        elif answer.state == execute.CRASHED:
            self._crash(number, answer)
        else:
            self._failed.add(number)

    def _finish(self, number: int) -> None:
        job = self.plan.jobs[number]
        self.done[number], self.needed[number] = True, False
        self._failed.discard(number)
        self.folder.forgive(job.key)
        self.tell(1)
        if job.is_rows:
            self._parts.append(self.folder.place(job.kind, job.key))
        for user in self.users[number]:
            if self.needed[user] and self._is_ready(user):
                heapq.heappush(self._ready, user)
        self.disk.finished(number)

    def _missing(self, number: int) -> None:
        """Note that an output is not there any more: it is made again, with what it needs."""
        self.done[number], self.needed[number] = False, True
        self._failed.discard(number)
        for needed in self.plan.jobs[number].needs:
            if not self.done[needed] and not self.needed[needed]:
                self._missing(needed)
        if self._is_ready(number):
            heapq.heappush(self._ready, number)

    def _repair(self, number: int, answer: Answer) -> None:
        """Delete a damaged input, and do it again before the job."""
        note(f"{answer.message}; it is made again")
        if answer.damaged is None:
            return self._crash(number, answer)
        kind, key = answer.damaged
        source = self.plan.number(key)
        assert source is not None
        self.folder.delete(kind, key, damaged=True)
        self.disk.forget(source)
        self._missing(source)
        return None

    def _refuse(self, number: int, answer: Answer) -> None:
        """Make room after the disk was full, or stop."""
        if self.disk.drop_unneeded():
            heapq.heappush(self._ready, number)
        else:
            self._refused = answer.message

    def _crash(self, number: int, answer: Answer) -> None:
        """Try a job again whose process died, a few times."""
        job = self.plan.jobs[number]
        attempts = (self.folder.failure(job.key) or {}).get("attempts", 0) + 1
        record = execute.failure(job, answer.message, "", answer.seconds, attempts)
        record["state"] = execute.CRASHED
        self.folder.fail(job.key, record)
        if has_failed(record):
            self._failed.add(number)
        else:
            heapq.heappush(self._ready, number)

    def _look_elsewhere(self) -> None:
        """Look what became of the jobs that other drivers work on."""
        now = time.monotonic()
        for number, looked in list(self._elsewhere.items()):
            if now - looked < _POLL_SECONDS:
                continue
            self._elsewhere[number] = now
            job = self.plan.jobs[number]
            claim = self.folder.claims / job.key
            if execute.is_done(self.folder, job):
                del self._elsewhere[number]
                self._finish(number)
            elif not claim.exists() or claims.is_dead(claim, self.stale):
                del self._elsewhere[number]
                if has_failed(self.folder.failure(job.key)):
                    self._failed.add(number)
                else:
                    heapq.heappush(self._ready, number)

    def _write_log(self, answer: Answer, kind: str) -> None:
        line = {
            "key": answer.key,
            "kind": kind,
            "seconds": round(answer.seconds, 4),
            "at": round(time.time(), 2),
        }
        with writing(self._log), self._log.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")

    def _summarise(self) -> None:
        records = self.folder.failed()
        for number in sorted(self._failed):
            job = self.plan.jobs[number]
            error = records.get(job.key, {}).get("error", "")
            self.outcome.failed.append((f"{job.kind} {job.title}", error))
        self.outcome.waiting = self.to_do() - len(self._failed)


def failed_lines(failed: Sequence[tuple[str, str]]) -> list[str]:
    """Return the rows of a table of failed jobs, cut where there are many."""
    lines = [f"{title}: {error}" for title, error in failed[:_REPORT_ROWS]]
    if len(failed) > _REPORT_ROWS:
        lines.append(f"... and {len(failed) - _REPORT_ROWS:,} more")
    return lines


def require_sweep(folder: SweepFolder) -> None:
    """Raise UserError if a folder exists that is not one of a sweep."""
    if folder.root.exists() and not folder.root.is_dir():
        raise UserError(f"--out {folder.root}: wanted a folder, found a file; choose another --out")
