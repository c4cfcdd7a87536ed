"""A world in which drivers give their jobs to workers: processes of their own, which are killed.

A worker stops before each operation on files as its driver does, and goes on beside
it. It may be killed while its driver lives, and outlives its driver by some operations: it ends
when its pipe has closed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from simlab.sweeps.execute import CRASHED, MOST_ATTEMPTS, Answer, Order, execute
from support.lab.actors import this_actor
from support.lab.protocol import World
from support.lab.worldprocesses import Process
from support.lab.worldsteps import count_lost

KILLED, PUBLISHED = "worker killed as an owner", "worker killed behind its publication"
ORPHANED = "worker outlived its driver as an owner"
_MOST_TO_WORK = 150


class OneWorker:
    """The engine of a driver: one worker, which does orders until it is killed."""

    def __init__(self, world: WorldOfWorkers, driver: Process) -> None:
        self.world, self.driver = world, driver
        self.worker: Process | None = None
        self.order: Order | None = None
        self.answers: list[Answer] = []
        self.end = ""  # of a worker that was killed: the state that the system tells
        self._given: list[Order] = []

    @property
    def works(self) -> bool:
        """Return whether a worker lives and has an order."""
        return self.order is not None and not self.answers and self.worker is not None

    def free(self) -> int:
        return int(self.order is None)

    def submit(self, order: Order) -> None:
        self.order, self._given = order, [order]
        if self.worker is None:
            self.worker = self.world.start_worker(self.driver, self._work)

    def collect(self, seconds: float) -> Sequence[Answer]:
        actor = this_actor()
        assert actor is not None
        self.driver.waited += not self.works
        actor.pause()
        if self.order is None or self.works:
            return []
        killed = Answer(self.order.job.key, self.end, message="the worker was killed")
        answers, self.answers, self.order = self.answers or [killed], [], None
        count_lost(self.world, answers)
        return answers

    def close(self) -> None:
        """End the worker, as the end of its driver does."""
        worker, self.worker = self.worker, None
        if worker is not None and worker.actor is not None:
            worker.actor.kill()

    def _work(self) -> None:
        actor = this_actor()
        assert actor is not None
        while True:
            while not self._given:
                actor.pause()
            self.answers.append(execute(self._given.pop()))


class WorldOfWorkers(World):
    """Two drivers, each with a worker; the parameters are those of `World`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._engines: dict[int, OneWorker] = {}  # by the numbers of the drivers
        self.kills: Counter[str] = Counter()
        super().__init__(*args, **options)

    def engine(self, process: Process) -> OneWorker:
        found = self._engines[process.pid] = OneWorker(self, process)
        return found

    def start_worker(self, driver: Process, run: Callable[[], None]) -> Process:
        """Start a worker of a driver."""
        worker = self._new_process(driver.machine)
        worker.observer, worker.awake, worker.frozen = driver, driver.awake, driver.frozen
        return self.begin(worker, run)

    def worker(self, who: int) -> Process | None:
        """Return the worker of a driver, if one lives."""
        engine = self._engines.get(self.drivers[who].pid)
        return None if engine is None else engine.worker

    @property
    def everyone(self) -> list[Process]:
        workers = [engine.worker for engine in self._engines.values()]
        return [*self.drivers, *(worker for worker in workers if worker is not None)]

    def step(self, who: int, count: int, until: Callable[[], bool] = lambda: False) -> None:
        """Let a driver and its worker do some operations, one after the other in turn."""
        for _ in range(count):
            if until():
                return
            super().step(who, 1)
            self.step_worker(who, 1)

    def step_worker(self, who: int, count: int) -> None:
        """Let the worker of a driver do some operations."""
        worker = self.worker(who)
        if worker is not None and worker.actor is not None and not worker.frozen:
            worker.actor.step(count)
            if worker.actor.error is not None:
                raise worker.actor.error

    def begin_to_work(self, who: int) -> None:
        """Let a driver go on until its worker works on a job, or until it waits for another."""
        driver = self.drivers[who]
        waited = driver.waited

        def works() -> bool:
            worker = self.worker(who)
            return worker is not None and worker.at_work is not None

        self.step(who, _MOST_TO_WORK, lambda: works() or driver.waited > waited)

    def begin_to_publish(self, who: int) -> None:
        """Let a driver go on until its worker has published and holds its claim, or it waits."""
        waited, driver = self.drivers[who].waited, self.drivers[who]

        def published() -> bool:
            key = self._key_at_work(who)
            return key is not None and self._is_published(key)

        self.step(who, _MOST_TO_WORK, lambda: published() or driver.waited > waited)

    def _key_at_work(self, who: int) -> str | None:
        """Return the key of the job that the worker of a driver has claimed."""
        worker, engine = self.worker(who), self._engines.get(self.drivers[who].pid)
        if worker is None or engine is None or engine.order is None:
            return None
        key = engine.order.job.key
        return key if self.folder.claims / key in worker.claims else None

    def kill_worker(self, who: int, state: str = CRASHED) -> None:
        """Kill the worker of a driver, which lives and hears of it.

        A job whose worker crashed three times would be given up.
        """
        worker, engine = self.worker(who), self._engines.get(self.drivers[who].pid)
        if worker is None or worker.actor is None or engine is None or engine.order is None:
            return
        key = engine.order.job.key
        if state == CRASHED and self.kills[key] == MOST_ATTEMPTS - 1:
            return
        self.kills[key] += state == CRASHED
        owns = self._key_at_work(who) is not None
        self.events[KILLED] += owns
        self.events[PUBLISHED] += owns and self._is_published(key)
        engine.end = state
        engine.close()

    def kill(self, who: int, outlives: int = 0) -> None:
        """Kill a driver, whose worker does some operations before it ends; start another driver."""
        engine, worker = self._engines.get(self.drivers[who].pid), self.worker(who)
        super().kill(who)
        if engine is not None and worker is not None and worker.actor is not None:
            worker.actor.step(outlives)
            self.events[ORPHANED] += bool(worker.claims)
            engine.close()

    def freeze(self, who: int) -> None:
        super().freeze(who)
        self.freeze_worker(who)

    def freeze_worker(self, who: int) -> None:
        """Stop a worker alone."""
        worker = self.worker(who)
        if worker is not None:
            worker.frozen = True

    def thaw(self, who: int) -> None:
        super().thaw(who)
        worker = self.worker(who)
        if worker is not None:
            self._thaw(worker)

    def _is_published(self, key: str) -> bool:
        job = next(job for job in self.plan.jobs if job.key == key)
        return self.folder.place(job.kind, key).exists()
