"""The driver: gives jobs to an engine, depth first, until nothing more can be done.

The driver holds no state that matters: it finds out what is done when it starts, and whatever it
holds besides, another driver finds in the folder. Several drivers may work on one folder; claims
keep them off the same job.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from simlab.errors import ReadError, WriteError
from simlab.store.console import note
from simlab.sweeps import execute
from simlab.sweeps.attempts import Attempts
from simlab.sweeps.claims import Signature
from simlab.sweeps.disk import DiskUse
from simlab.sweeps.elsewhere import Elsewhere
from simlab.sweeps.engine import Engine
from simlab.sweeps.execute import MOST_ATTEMPTS, Answer, Order, has_failed
from simlab.sweeps.fetching import Fetching
from simlab.sweeps.folder import SweepFolder
from simlab.sweeps.gathering import Gatherer
from simlab.sweeps.leftovers import Leftovers
from simlab.sweeps.parts import forget_states
from simlab.sweeps.plan import FOLDERS, Plan
from simlab.sweeps.records import FailureRecord
from simlab.sweeps.survey import survey
from simlab.sweeps.watch import Watch

_ENDED = (execute.CRASHED, execute.STOPPED)  # answers of an engine whose process ended
_POLL_SECONDS = 0.5


@dataclass
class Outcome:
    """The counts of a driver's work.

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
    watch
        Sees which claims have no owner any more.
    steps
        Module with the steps.
    check
        Function that raises an error if this driver may not go on (`drivers`).
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
        watch: Watch | None = None,
        steps: str = "simlab.sweeps.steps",
        check: Callable[[], None] = lambda: None,
        tell: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.folder, self.plan, self.engine = folder, plan, engine
        self.retry_failed, self.tell = retry_failed, tell
        self.check, self.steps = check, steps
        self.outcome = Outcome()
        outputs = survey(folder, plan, keep)
        self.done, self.needed = outputs.done, outputs.needed
        self.users = plan.users()
        self._failed: dict[int, str] = {}
        self.revisions = Fetching(folder.root, plan, self.needed, self._failed)
        jobs = (self.done, self.needed, self.users)
        self.disk = DiskUse(folder, plan, keep, max_disk, *jobs, self.revisions)
        watch = watch or Watch()
        self.rows = Gatherer(folder, plan)
        self.leftovers = Leftovers(folder, plan, watch, self.done, self.needed)
        self.elsewhere = Elsewhere(folder.claims, watch)
        self._ready: list[int] = []
        self._running: set[int] = set()
        self._dead: dict[int, Signature | None] = {}  # claims whose owners are gone
        self._ended: dict[int, Answer] = {}  # of processes whose claims are not known to be dead
        self._outputs: Counter[int] = Counter()  # how often each job was finished
        self._read: dict[int, list[int]] = {}  # these numbers of its inputs, when a job began
        self.attempts = Attempts(folder)
        self._refused: Exception | None = None

    def to_do(self) -> int:
        """Return the number of jobs that have to be done."""
        return sum(self.needed)

    def run(self) -> Outcome:
        """Do all jobs that can be done.

        Raises
        ------
        WriteError
            The disk is full. Finished jobs stay, and the next driver continues.
        ReadError
            The system refused to read a file of a job, a few times. Finished jobs stay.
        UserError
            The inputs and the output of a job do not fit into `max_disk`.
        """
        self._begin()
        while True:
            self.check()
            self._refused = self.revisions.collect(self._running) or self._refused
            self._submit()
            if not (self._running or self.elsewhere or self.revisions.is_busy):
                if self._refused is None and (self._look_at_failures() or self._gather_all()):
                    continue
                break
            if not self._running:
                self.revisions.wait(_POLL_SECONDS)
            for answer in self.engine.collect(_POLL_SECONDS):
                self._take(answer)
            self._look_elsewhere()
            self.leftovers.look()
            if self.rows.is_due():
                self._gather()
        if self._refused is not None:
            raise self._refused
        self._summarise()
        return self.outcome

    def _gather_all(self) -> bool:
        """Move all rows into the data set; return whether some are to be made again."""
        self._note_damage(self.rows.gather_all())
        return self._find_lost()

    def _gather(self) -> None:
        damaged = self.rows.gather()
        self._note_damage(damaged)
        if damaged:
            self._find_lost()

    def _set_aside_damaged(self) -> None:
        """Set damaged files of the data set aside; their jobs count as not done any more."""
        self._note_damage(self.rows.set_aside_damaged())
        self._find_lost()

    def _note_damage(self, files: Iterable[Path]) -> None:
        for file in files:
            note(
                f"{file}: wanted rows, found a damaged file; it is set aside in "
                f"{self.folder.data.aside}, and its jobs are done again"
            )

    def _find_lost(self) -> bool:
        """Find rows that were done and are not there any more; return whether there are any."""
        stored = self.folder.made_rows([kind for kind in self.plan.counts() if kind not in FOLDERS])
        rows = (n for n, job in enumerate(self.plan.jobs) if job.is_rows and self.done[n])
        lost = [number for number in rows if self.plan.jobs[number].key not in stored]
        for number in lost:
            self._missing(number)
        return bool(lost)

    def _begin(self) -> None:
        self.folder.create()
        forget_states()
        self._set_aside_damaged()
        self.rows.set_aside()
        self.leftovers.clean()
        for key, record in self.folder.failed().items():
            number = self.plan.number(key)
            if number is None or self.done[number]:
                continue
            if self.retry_failed or record.get("state") in execute.OF_ONE_RUN:
                self.folder.forgive(key)
            elif has_failed(record):
                self._failed[number] = record["error"]
        self.disk.drop_unneeded()
        self.revisions.begin()
        for number, needed in enumerate(self.needed):
            if needed and self._is_ready(number):
                self._ready.append(number)
        heapq.heapify(self._ready)

    def _is_ready(self, number: int) -> bool:
        if self.done[number] or number in self._failed or number in self._running:
            return False
        return all(self.done[needed] for needed in self.plan.jobs[number].needs)

    def _submit(self) -> None:
        """Give the first jobs that are ready to the engine, as many as it takes."""
        blocked = []
        while self._ready and self._refused is None and self.engine.free():
            number = heapq.heappop(self._ready)
            if self.plan.jobs[number].key in self.elsewhere or not self._is_ready(number):
                continue
            if self.disk.admits(number, self._running) and self.revisions.has(number):
                self._start(number)
            else:
                blocked.append(number)
        if self._refused is None:
            ready = (n for n in (*blocked, *self._ready) if self._is_ready(n))
            self.disk.fetch_ahead(ready, self._running)
            if blocked and not (self._running or self.elsewhere or self.revisions.is_busy):
                first = min(blocked, key=lambda number: (not self.revisions.has(number), number))
                dropped = list(self.disk.make_room(first))
                if self.revisions.has(first):
                    blocked.remove(first)
                    self._start(first)
                for number in dropped:
                    self._missing(number)
        for number in blocked:
            heapq.heappush(self._ready, number)

    def _start(self, number: int) -> None:
        self._running.add(number)
        jobs = self.plan.jobs
        needs = tuple((jobs[n].kind, jobs[n].key) for n in jobs[number].needs)
        root, durable = str(self.folder.root), self.folder.durable
        dead = self._dead.pop(number, None)
        self._read[number] = self._inputs_now(number)
        self.engine.submit(Order(root, jobs[number], needs, durable, dead, self.steps))

    def _take(self, answer: Answer) -> None:
        number = self.plan.number(answer.key)
        assert number is not None
        self._running.discard(number)
        job = self.plan.jobs[number]
        if answer.note:
            note(answer.note)
        if answer.state in (execute.MADE, execute.BEFORE):
            self.outcome.done[job.kind] += int(answer.state == execute.MADE)
            self._finish(number)
        elif answer.state == execute.BUSY and answer.damaged is None:
            self.elsewhere.add(job.key)
        elif answer.state in (execute.DAMAGED, execute.BUSY):
            self._repair(number, answer)
        elif answer.state == execute.REFUSED:
            self._refuse(number, answer)
        elif answer.state == execute.UNREAD:
            self._read_again(number, answer)
        elif answer.state in _ENDED and execute.is_done(self.folder, job):  # it had published
            self.leftovers.add(number)  # before `_finish` claims the job to forgive a failure
            self._finish(number)
        elif answer.state == execute.STOPPED and self.attempts.stop(job.key):
            heapq.heappush(self._ready, number)
        elif answer.state in _ENDED:
            self._record_end(number, answer)
        else:
            self._failed[number] = answer.message
            self.revisions.drop_unneeded(self._running)

    def _finish(self, number: int) -> None:
        job = self.plan.jobs[number]
        self.done[number], self.needed[number] = True, False
        self._outputs[number] += 1
        self._failed.pop(number, None)
        self.folder.forgive(job.key)
        self.tell(1)
        if job.is_rows:
            self.rows.add(self.folder.place(job.kind, job.key))
        for user in self.users[number]:
            if self.needed[user] and self._is_ready(user):
                heapq.heappush(self._ready, user)
        self.disk.finished(number)
        self.revisions.drop_unneeded(self._running)

    def _missing(self, number: int) -> None:
        """Note that an output is not there any more: it is made again, with what it needs."""
        self.done[number], self.needed[number] = False, True
        self._failed.pop(number, None)
        for needed in self.plan.jobs[number].needs:
            if not self.done[needed] and not self.needed[needed]:
                self._missing(needed)
        if self._is_ready(number):
            heapq.heappush(self._ready, number)

    def _inputs_now(self, number: int) -> list[int]:
        """Return a number for each input of a job, which changes when the input is made again."""
        return [self._outputs[needed] for needed in self.plan.jobs[number].needs]

    def _repair(self, number: int, answer: Answer) -> None:
        """Have an input made again that was damaged, a few times, and then the job.

        The first answer that tells of the damage counts, also the answer of a worker which found
        the input claimed by another one that mends it.
        """
        if answer.damaged is None:
            self._record_end(number, replace(answer, state=execute.CRASHED))
            return
        if self._inputs_now(number) != self._read[number]:  # what it read was made again since
            heapq.heappush(self._ready, number)
            return
        kind, key = answer.damaged
        source = self.plan.number(key)
        assert source is not None
        made_before = self.done[source]  # else another answer told of the damage
        if kind not in FOLDERS:
            forget_states()
            self._set_aside_damaged()
        dropped = self.folder.gone(kind, key).exists()  # deleted to make room
        if not self.attempts.damage(key, counts=made_before and not dropped):
            error = f"{answer.message}; it was made again {MOST_ATTEMPTS} times"
            self._note_failure(number, self.attempts.record(self.plan.jobs[number], error))
            return
        if made_before:
            note(f"{answer.message}; it is made again")
        self.disk.forget(source)
        if answer.state == execute.BUSY:
            self.elsewhere.add(key)
        self._missing(source)

    def _refuse(self, number: int, answer: Answer) -> None:
        """Make room after the disk was full, or stop."""
        if self.disk.drop_unneeded():
            heapq.heappush(self._ready, number)
        else:
            self._refused = WriteError(answer.message)

    def _read_again(self, number: int, answer: Answer) -> None:
        """Try a job again that could not read a file, a few times, or stop."""
        if self.attempts.unread(answer.key):
            heapq.heappush(self._ready, number)
        else:
            self._refused = ReadError(answer.message)

    def _record_end(self, number: int, answer: Answer, dead: Signature | None = None) -> None:
        """Record that the process of a job died, or was told to end too often."""
        record = self.attempts.ended(self.plan.jobs[number], answer, dead)
        if record is None:
            self._ended[number] = answer
        self._note_failure(number, record)

    def _note_failure(self, number: int, record: FailureRecord | None) -> None:
        """Leave a job that has failed, try it again, or watch it if another process claimed it."""
        if record is None:
            self.elsewhere.add(self.plan.jobs[number].key)
        elif has_failed(record):
            self._failed[number] = record["error"]
        else:
            heapq.heappush(self._ready, number)

    def _look_elsewhere(self) -> None:
        """Look what became of the jobs that other processes work on."""
        for key, dead in self.elsewhere.look():
            number = self.plan.number(key)
            assert number is not None
            self._look_at(number, dead)
        self.elsewhere.tell_once(alone=not self._running)

    def _look_at(self, number: int, dead: Signature | None = None) -> None:
        """Take a job that no other process works on: done, failed, or to be tried again."""
        job, ended = self.plan.jobs[number], self._ended.pop(number, None)
        record = self.folder.failure(job.key)
        if execute.is_done(self.folder, job):
            if dead is not None:
                self.leftovers.settle(number, dead)
            self._finish(number)
        elif record is not None and has_failed(record):
            self._failed[number] = record["error"]
        elif ended is not None and dead is not None:  # nobody took over from the process that died
            self._record_end(number, ended, dead)
        else:
            self._failed.pop(number, None)
            self._dead[number] = dead
            heapq.heappush(self._ready, number)

    def _look_at_failures(self) -> bool:
        """Look whether another driver did the failed jobs meanwhile, or tries them again."""
        before = len(self._failed)
        for number in list(self._failed):
            self._look_at(number)
        return len(self._failed) < before

    def _summarise(self) -> None:
        for number in sorted(self._failed):
            job = self.plan.jobs[number]
            self.outcome.failed.append((f"{job.kind} {job.title}", self._failed[number]))
        self.outcome.waiting = self.to_do() - len(self._failed)
