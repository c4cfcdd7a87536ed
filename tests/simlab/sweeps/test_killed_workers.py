"""Workers that are killed at any operation while their drivers live, or that outlive drivers."""

from collections import Counter
from functools import partial

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st

from simlab.sweeps import driver, leftovers
from simlab.sweeps.attempts import Attempts
from simlab.sweeps.execute import CRASHED, STOPPED
from simlab.sweeps.failures import failure
from support.lab.exploration import (
    COMMON,
    DRIVERS,
    MANY,
    Explored,
    explored,
    length_of,
    while_they_work,
    world_of,
)
from support.lab.protocol import INHERITED
from support.lab.worldworkers import KILLED, ORPHANED, PUBLISHED, WorldOfWorkers

SOON, AT_WORK = st.integers(0, 30), st.integers(0, 8)
ENDS = st.sampled_from((CRASHED, STOPPED))  # as the system tells: SIGKILL, or SIGTERM
QUICK = settings(max_examples=25, phases=[Phase.generate], **COMMON)
PLANTED = settings(max_examples=200, phases=[Phase.generate], **COMMON)
# How often situations have to come about in a run of `QUICK`: else it would prove nothing.
LEAST = {KILLED: 20, PUBLISHED: 2, ORPHANED: 5, INHERITED: 15, "damaged": 1, "rows moved": 30}


class TwoDriversWithWorkers(Explored):
    """Two drivers of one study on two machines, each with a worker."""

    kind = WorldOfWorkers

    @while_they_work(who=DRIVERS, count=SOON)
    def work_while_the_driver_waits(self, who, count):
        self.world.step_worker(who, count)

    @while_they_work(who=DRIVERS, count=SOON, state=ENDS)
    def kill_a_worker(self, who, count, state):
        self.world.awake(who)
        self.world.begin_to_work(who)
        self.world.step_worker(who, count)
        self.world.kill_worker(who, state)

    @while_they_work(who=DRIVERS, state=ENDS)
    def kill_a_worker_that_published(self, who, state):
        self.world.awake(who)
        self.world.begin_to_publish(who)
        self.world.kill_worker(who, state)

    @while_they_work(who=DRIVERS, count=AT_WORK, outlives=AT_WORK)
    def kill_a_driver(self, who, count, outlives):
        self.world.awake(who)
        self.world.begin_to_work(who)
        self.world.step(who, count)
        self.world.kill(who, outlives)

    @while_they_work(who=DRIVERS)
    def freeze_a_worker(self, who):
        self.world.freeze_worker(who)

    @while_they_work(who=DRIVERS, count=SOON, others=st.integers(0, 60), state=ENDS)
    def rob_and_kill(self, who, count, others, state):
        """A driver and its worker stop until the other has taken over; the worker never goes on."""
        for one in (0, 1):
            self.world.awake(one)
        self.world.begin_to_work(who)
        self.world.step(who, count)
        self.world.rob(who, others)
        self.world.kill_worker(who, state)
        self.world.thaw(who)


world = partial(world_of, WorldOfWorkers)


def kill_at(point, state, others):
    """A worker is killed at a point, and the driver of another machine works before its own."""
    with world(-40.0, 1e6) as found:
        found.step(0, point)
        found.kill_worker(0, state)
        found.step(1, others)
        found.step(0, MANY)
        return found.events


def kill_from_any_point(every):
    events = Counter()
    for point in range(1, length_of(WorldOfWorkers), every):
        state = (CRASHED, STOPPED)[point % 2]
        events.update(kill_at(point, state, others=(7 * point) % 50))
    return events


def test_a_worker_may_die_before_any_operation_while_its_driver_lives():
    events = kill_from_any_point(every=3)
    assert events[KILLED] > 10
    assert events[PUBLISHED] > 0


@pytest.mark.slow
def test_a_worker_may_die_before_any_operation_and_another_driver_be_at_any():
    for point in range(1, length_of(WorldOfWorkers)):
        for state in (CRASHED, STOPPED):
            for others in range(point % 20, 60, 20):
                kill_at(point, state, others)


def test_no_job_is_lost_or_done_twice_whatever_worker_dies():
    events = explored(TwoDriversWithWorkers, QUICK, LEAST)
    assert {name: events[name] for name in LEAST if events[name] < LEAST[name]} == {}


# Faults that stood in the code once, or may come.


def record_without_claim(self, job, error, state=None, seconds=0.0, dead=None):
    """A driver records the end of its worker, and asks nobody whose job it is now."""
    record = failure(job, error, "", seconds)
    self.folder.fail(job.key, {**record, "state": state} if state else record)
    return self.folder.failure(job.key)


FAULTS = {
    "the end of a worker is recorded without a claim": (Attempts, "record", record_without_claim),
    "the claim of a worker that published stays": (
        leftovers.Leftovers,
        "add",
        lambda self, number: None,
    ),
    "a job whose worker died once is given up": (driver, "has_failed", bool),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_the_exploration_finds_a_fault_that_is_planted(fault, monkeypatch):
    monkeypatch.setattr(*FAULTS[fault])
    with pytest.raises(AssertionError):
        explored(TwoDriversWithWorkers, PLANTED)
    assert TwoDriversWithWorkers.events["violations"]
