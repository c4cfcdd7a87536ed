"""The progress of a running sweep: a bar with the jobs that run, or lines in a log."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from simlab.store.console import Meter, log_line, metered, span
from simlab.sweeps.driver import Driver, Outcome
from simlab.sweeps.engine import Engine
from simlab.sweeps.execute import CRASHED, FAILED, MADE, STOPPED, Answer, Order
from simlab.sweeps.plan import Plan
from simlab.sweeps.survey import Needed

LONG_SECONDS = 10.0  # of a job whose end has a line of its own
_MOST_NAMED = 3  # jobs of a line


class WatchedEngine:
    """An engine that remembers which jobs run, and writes a line at the end of a long one.

    Parameters
    ----------
    engine
        The engine that runs the jobs.
    plan
        All jobs of the sweep.
    finished
        Lines of logs of finished jobs, with kind and seconds.

    Attributes
    ----------
    needed
        Which jobs have to be done: the list that the driver changes, also while a thread draws.
    """

    def __init__(self, engine: Engine, plan: Plan, finished: Iterable[Mapping[str, Any]]) -> None:
        self.engine, self.plan = engine, plan
        self.needed = Needed(plan, [True] * len(plan))
        self._ended: list[str] = []
        self._running: dict[str, tuple[str, str, float]] = {}
        self._taken: dict[str, tuple[int, float]] = {}  # jobs of each kind, and their seconds
        for line in finished:
            self._add(line["kind"], line["seconds"])
        self.meter = Meter("sweep", len(plan), self.done, self.left, self.running)

    def done(self) -> int:
        """Return how many jobs are done, or were done before."""
        return len(self.plan) - sum(list(self.needed.counts.values()))

    def running(self) -> str:
        """Return the jobs that run and how long the first one has, in a few words."""
        jobs = list(self._running.values())
        if not jobs:
            return ""
        more = [f"and {len(jobs) - _MOST_NAMED:,} more"] if len(jobs) > _MOST_NAMED else []
        titles = [
            f"{kind} {title} for {span(time.monotonic() - begun)}"
            for kind, title, begun in jobs[:_MOST_NAMED]
        ]
        return ", ".join([*titles, *more])

    def left(self) -> float | None:
        """Return the seconds left by the mean time of each kind; None if a kind has none yet."""
        work = 0.0
        for kind, waiting in list(self.needed.counts.items()):
            if waiting:
                jobs, seconds = self._taken.get(kind, (0, 0.0))
                if not jobs:
                    return None
                work += waiting * seconds / jobs
        return work / max(1, len(self._running))

    def free(self) -> int:
        """Return how many orders `submit` takes now."""
        return self.engine.free()

    def submit(self, order: Order) -> None:
        """Start an order."""
        job = order.job
        self._running[job.key] = (job.kind, job.title, time.monotonic())
        self.engine.submit(order)

    def collect(self, seconds: float) -> Sequence[Answer]:
        """Return the answers that have come.

        Their lines are written by the next call, when the driver has counted the jobs.
        """
        self._write_lines()
        answers = self.engine.collect(seconds)
        for answer in answers:
            kind, title, _ = self._running.pop(answer.key, ("", "", 0.0))
            if answer.state == MADE:
                self._add(kind, answer.seconds)
            self._note(answer, f"{kind} {title}")
        return answers

    def close(self) -> None:
        """End all processes that the engine started."""
        self._write_lines()
        self.engine.close()

    def run(self, driver: Driver) -> Outcome:
        """Run the driver of this engine, and show how far it is."""
        self.needed = driver.needed
        done = self.done()
        log_line(f"{self.meter.counted()}: {done:,} done before, {len(self.plan) - done:,} to do")
        with metered(self.meter):
            return driver.run()

    def _add(self, kind: str, seconds: float) -> None:
        jobs, before = self._taken.get(kind, (0, 0.0))
        self._taken[kind] = jobs + 1, before + seconds

    def _note(self, answer: Answer, job: str) -> None:
        """Keep the line of a job that took long or did not succeed."""
        if answer.state in (FAILED, CRASHED):
            self._ended.append(f"{job} failed after {span(answer.seconds)}: {answer.message}")
        elif answer.state == STOPPED:
            self._ended.append(f"{job} is tried again: {answer.message}")
        elif answer.state == MADE and answer.seconds > LONG_SECONDS:
            self._ended.append(f"{job} took {span(answer.seconds)}")

    def _write_lines(self) -> None:
        ended, self._ended = self._ended, []
        for words in ended:
            left = self.meter.time_left()
            log_line("; ".join(filter(None, [f"{self.meter.counted()}: {words}", left])))
