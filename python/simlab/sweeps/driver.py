"""The driver: gives jobs to an executor, depth first, until nothing more can be done.

One driver at a time works on a folder (`outputs.driving`). It finds what is done when it starts,
and holds nothing that the next one needs: one that is killed leaves outputs that are whole, and
folders in ``work/``.
"""

from __future__ import annotations

import contextlib
import heapq
import queue
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import asdict, dataclass
from pathlib import Path

from simlab.errors import ReadError, UserError, WriteError
from simlab.store.console import log_line, metered, note
from simlab.sweeps import job as jobs
from simlab.sweeps.disk import DiskUse
from simlab.sweeps.job import Answer, Died, Order
from simlab.sweeps.outputs import DamagedError, Names, SweepFolder, discard
from simlab.sweeps.plan import RESUMABLE, Plan
from simlab.sweeps.rows import forget_states, names_in
from simlab.sweeps.status import Progress

MOST_ATTEMPTS = 3  # of a job whose process dies, that cannot read, or whose input is damaged
MOST_ENDS = 10  # of processes of a job that a queue or a person ends
GATHER_SECONDS, GATHER_PARTS = 5.0, 1000
BUSY_SECONDS = 3600.0  # to wait for a process that no driver waits for
_WHY = {True: "outside", False: "died"}  # whether the end of a process passes
_MOST = {"outside": MOST_ENDS, "damaged": MOST_ATTEMPTS + 1, "read": MOST_ATTEMPTS + 1}
_POLL_SECONDS, _LOOK_SECONDS = 0.5, 0.2
_LONGEST_PAUSE = 60.0


@dataclass(frozen=True)
class Report:
    """The outcome of a run."""

    jobs: int  # number of all jobs of the sweep
    done: Mapping[str, int]  # number of jobs that this run did, by kind
    # Title and error of each job that failed, in this run or before.
    failed: tuple[tuple[str, str], ...]
    waiting: int  # number of jobs that wait for one that failed
    figures: tuple[Path, ...] = ()  # the files drawn


class Driver:
    """Does the jobs of a plan in a folder."""

    def __init__(
        self,
        folder: SweepFolder,
        plan: Plan,
        executor: Executor,
        *,
        keep: str,
        max_disk: int | None = None,
        retry_failed: bool = False,
        meanwhile: Callable[[], object] | None = None,
        steps: str = "simlab.sweeps.steps",
    ) -> None:
        self.folder, self.plan, self.executor = folder, plan, executor
        self.keep, self.retry_failed, self.steps = keep, retry_failed, steps
        self._meanwhile = meanwhile
        self._did, self.progress = Counter[str](), Progress(folder, plan)
        self.names, self.failed = Names(folder, plan), self.progress.failures
        self.done, self.needed = [False] * len(plan), [False] * len(plan)
        shared = (self.done, self.needed, self.failed)
        self.disk = DiskUse(folder, plan, keep, max_disk, *shared, self._drop)
        self._ready: list[int] = []
        self._running: dict[int, Future[Answer]] = {}
        self._answers: queue.SimpleQueue[tuple[int, Future[Answer]]] = queue.SimpleQueue()
        self._later: list[tuple[float, int]] = []  # jobs of which a process is busy, and until when
        self._busy: dict[int, float] = {}  # since when
        self._attempts: Counter[tuple[object, ...]] = Counter()
        self._parts: list[Path] = []  # that are not gathered
        self._gathered, self._looked = time.monotonic(), 0.0
        self._refused: Exception | None = None

    def run(self) -> Report:
        """Do all jobs that can be done."""
        self._begin()
        done, to_do = self.progress.done(), sum(self.needed)
        log_line(f"{self.progress.meter.counted()}: {done:,} done before, {to_do:,} to do")
        with metered(self.progress.meter):
            while self._goes_on():
                self._submit()
                self._wait()
                if time.monotonic() - self._gathered > GATHER_SECONDS:
                    self._gather()
                    if self._meanwhile is not None:
                        self.progress.write()
                        self._meanwhile()
                self.progress.write(at_once=False)
        if self._refused is not None:
            raise self._refused
        self.progress.write()
        failed = tuple((self.progress.name(n), error) for n, error in sorted(self.failed.items()))
        return Report(len(self.plan), dict(self._did), failed, sum(self.needed) - len(failed))

    def _begin(self) -> None:
        """Find what is done, and clean up behind a driver that was killed."""
        self.folder.create()
        forget_states()
        self.folder.data.set_aside_damaged()
        if moved := self.folder.data.keep_only({job.key for job in self.plan.jobs}):
            aside = self.folder.root / "aside"
            note(f"rows of {moved:,} jobs of an earlier file are moved to {aside}")
        stored = self.folder.stored(self.plan)
        gathered = self.folder.data.jobs()
        self.done[:] = [job.key in stored for job in self.plan.jobs]
        self.needed[:] = self.plan.needed(self.done, self.keep)
        for number, job in enumerate(self.plan.jobs):
            self.progress.to_do[job.kind] += self.needed[number]
            if job.is_rows and self.done[number] and job.key not in gathered:
                self._parts.append(self.folder.place(job.kind, job.key))
            if self.done[number]:
                self.disk.measure(number)
        self._clean()
        for key, record in self.folder.failed().items():
            number = self.plan.number(key)
            if number is None or not self.needed[number]:
                continue
            if self.retry_failed or record.get("passing"):
                self.folder.forgive(key)
            else:
                self.failed[number] = record["error"]
        self.disk.drop_unneeded()
        self.names.begin(stored)
        for number in range(len(self.plan)):
            self._make_ready(number)
        self.progress.write()

    def _clean(self) -> None:
        """Delete what killed processes left in ``work/``, but for trainings that continue."""
        trainings = [number for number, job in enumerate(self.plan.jobs) if job.kind in RESUMABLE]
        going_on = {self.plan.jobs[number].key for number in trainings if self.needed[number]}
        for name in names_in(self.folder.work):
            if name.strip(".").removesuffix(".lock") not in going_on:
                discard(self.folder.work / name)

    def _goes_on(self) -> bool:
        """Return whether there is anything to wait for or to begin; gather all rows at the end."""
        if self._running or self._refused is not None:
            return bool(self._running)
        if self._later:
            return True
        while self._ready and not self._is_ready(self._ready[0]):
            heapq.heappop(self._ready)
        if not self._ready:
            self._gather()
        return bool(self._ready)

    def _submit(self) -> None:
        """Give the first jobs that are ready to the executor, as many as it takes."""
        while self._later and self._later[0][0] <= time.monotonic():
            self._make_ready(heapq.heappop(self._later)[1])
        blocked: list[int] = []
        slots = getattr(self.executor, "slots", 1)
        while self._ready and self._refused is None and len(self._running) < slots:
            number = heapq.heappop(self._ready)
            if not self._is_ready(number):
                continue
            is_full = bool(blocked) and not self.plan.jobs[number].is_rows
            if is_full or not self.disk.admits(number, self._running):
                blocked.append(number)
            else:
                self._start(number)
        if blocked and not self._running and not self._later and self._refused is None:
            self.disk.refuse(blocked[0])
        for number in blocked:
            heapq.heappush(self._ready, number)

    def _start(self, number: int) -> None:
        job = self.plan.jobs[number]
        needs = tuple((self.plan.jobs[n].kind, self.plan.jobs[n].key) for n in job.needs)
        order = Order(str(self.folder.root), job, needs, self.folder.durable, self.steps)
        future = self._running[number] = self.executor.submit(jobs.do, order)
        future.add_done_callback(lambda ended: self._answers.put((number, ended)))

    def _wait(self) -> None:
        """Take the answers that have come; wait for the first one a little."""
        now = time.monotonic()
        if now - self._looked > _LOOK_SECONDS:  # a call may wait long in the queue of a cluster
            self._looked, before = now, self.progress.running
            names = {name.partition("-")[0] for name in names_in(self.folder.work)}
            running = [n for n in self._running if self.plan.jobs[n].key in names]
            self.progress.running = {number: before.get(number, now) for number in running}
        with contextlib.suppress(queue.Empty):
            number, future = self._answers.get(timeout=_POLL_SECONDS)
            while True:
                self._take(number, future)
                number, future = self._answers.get_nowait()

    def _take(self, number: int, future: Future[Answer]) -> None:
        del self._running[number]
        job = self.plan.jobs[number]
        try:
            answer = future.result()
        except Died as died:
            state = jobs.DONE if self.folder.has(job.kind, job.key) else jobs.DIED
            answer = Answer(state, message=str(died), passing=died.outside)
        if answer.state == jobs.DONE:
            self._finish(number, answer)
        elif answer.state == jobs.DIED and self._is_tried_again(_WHY[answer.passing], number):
            self.progress.tell(number, f"is tried again: {answer.message}")
            self._make_ready(number)
        elif answer.state == jobs.BUSY:
            self._pause(number, answer)
        elif answer.state == jobs.DAMAGED:
            self._repair(number, answer)
        elif answer.state == jobs.REFUSED and not self.disk.drop_unneeded():
            self._refused = WriteError(answer.message)
        elif answer.state == jobs.UNREAD and not self._is_tried_again("unread", number):
            self._refused = ReadError(answer.message)
        elif answer.state in (jobs.REFUSED, jobs.UNREAD):
            self._make_ready(number)
        else:
            self._fail(number, answer)

    def _finish(self, number: int, answer: Answer) -> None:
        job = self.plan.jobs[number]
        self.disk.measure(number)
        self.done[number] = True
        self._set_needed(number, False)
        self._busy.pop(number, None)
        self._did[job.kind] += 1
        self.folder.log_finished(job.kind, job.key, answer.seconds)
        self.folder.forgive(job.key)
        if job.is_rows:
            self._parts.append(self.folder.place(job.kind, job.key))
            if len(self._parts) > GATHER_PARTS:
                self._gather()
        else:
            self.names.add(job.key)
        for user in self.disk.users[number]:
            self._make_ready(user)
        self.disk.drop_unneeded(dict.fromkeys((*job.needs, number)))
        self.progress.finished(number, answer.seconds)

    def _pause(self, number: int, answer: Answer) -> None:
        """Come back later to a job on which a process works that no driver waits for."""
        now = time.monotonic()
        since = self._busy.setdefault(number, now)
        if now == since:
            note(f"waits: {answer.message}")
        if now - since > BUSY_SECONDS:
            self._fail(number, Answer(jobs.FAILED, message=answer.message, passing=True))
        else:
            pause = min(_LONGEST_PAUSE, max(_POLL_SECONDS, now - since))
            heapq.heappush(self._later, (now + pause, number))

    def _repair(self, number: int, answer: Answer) -> None:
        """Have an input made again that is damaged, a few times, and then the job."""
        assert answer.damaged is not None
        source = self.plan.number(answer.damaged[1])
        assert source is not None
        try:
            forget_states()
            if self.done[source]:
                self.folder.read(*answer.damaged)
            tried = "read", number  # it was made again since the job began, or will be
        except DamagedError:
            tried = "damaged", source
        if not self._is_tried_again(*tried):
            error = f"{answer.message}; it was made again {MOST_ATTEMPTS} times"
            self._fail(number, Answer(jobs.FAILED, message=error))
            return
        if tried[0] == "damaged":
            note(f"{answer.message}; it is made again")
            if self.plan.jobs[source].is_rows:
                self._find_lost()
            self._drop(source)
            self._is_missing(source)
        self._make_ready(number)

    def _is_tried_again(self, why: str, number: int) -> bool:
        """Count an attempt; a job that is not at fault has more of them."""
        self._attempts[why, number] += 1
        return self._attempts[why, number] < _MOST.get(why, MOST_ATTEMPTS)

    def _fail(self, number: int, answer: Answer) -> None:
        job = self.plan.jobs[number]
        self.failed[number] = answer.message
        how = {"error": answer.message, "traceback": answer.trace, "passing": answer.passing}
        where = {"machine": answer.machine, "seconds": round(answer.seconds, 3)}
        record = {**asdict(job), **how, **where, "when": time.time()}
        self.folder.fail(job.key, record)
        self.progress.fails(number, answer.message, answer.seconds)

    def _is_ready(self, number: int) -> bool:
        if not self.needed[number] or number in self.failed or number in self._running:
            return False
        return all(self.done[needed] for needed in self.plan.jobs[number].needs)

    def _make_ready(self, number: int) -> None:
        """Add a job to those that can be done, if it can."""
        if self._is_ready(number):
            heapq.heappush(self._ready, number)

    def _set_needed(self, number: int, needed: bool) -> None:
        self.progress.to_do[self.plan.jobs[number].kind] += needed - self.needed[number]
        self.needed[number] = needed

    def _is_missing(self, number: int) -> None:
        """Note that an output is not there any more: it is made again, with what it needs."""
        self.done[number] = False
        self._set_needed(number, True)
        self.failed.pop(number, None)
        for needed in self.plan.jobs[number].needs:
            if not self.done[needed] and not self.needed[needed]:
                self._is_missing(needed)
        self._make_ready(number)

    def _drop(self, number: int) -> None:
        job, self.done[number] = self.plan.jobs[number], False
        self.folder.drop(job.kind, job.key)
        self.names.remove(job.key)
        self.disk.bytes.pop(number, None)

    def _gather(self) -> None:
        """Move finished rows into the data set."""
        self._gathered = time.monotonic()
        self.folder.require_owner()
        parts, self._parts = self._parts, []
        self.folder.data.gather(parts)
        self._find_lost()

    def _find_lost(self) -> None:
        """Find rows that were done and are not there any more."""
        self.folder.data.set_aside_damaged()
        stored = self.folder.data.jobs() | {part.stem for part in self._parts}
        for number, job in enumerate(self.plan.jobs):
            if job.is_rows and self.done[number] and job.key not in stored:
                if not self._is_tried_again("damaged", number):
                    raise UserError(
                        f"{self.folder.data.folder}: wanted rows that stay, found those of "
                        f"{job.kind} {job.title} damaged {MOST_ATTEMPTS} times"
                    )
                self._is_missing(number)
