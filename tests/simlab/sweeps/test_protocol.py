"""The protocol of claims, explored: drivers that stop, continue and die between any operations."""

import os
from contextlib import contextmanager
from functools import partial

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st

from simlab.sweeps import claims, processes
from simlab.sweeps.watch import Watch
from support.lab.actors import Actor
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
from support.lab.protocol import EPOCH, INHERITED, ROBBED, World
from support.lab.worldpatches import CLOCKS_BEGIN

SOON = st.integers(0, 12)  # operations after a driver came to a situation
QUICK = settings(max_examples=80, **COMMON)
# A fault that was planted is found or not: nobody needs the shortest way to it. How many examples
# that takes is another number after every change of what a driver does.
PLANTED = settings(max_examples=600, phases=[Phase.generate], **COMMON)
# How often situations have to come about in a run of `QUICK`: else it would prove nothing.
LEAST = {
    ROBBED: 5,
    INHERITED: 10,
    "lost at work": 5,
    "killed as an owner": 10,
    "killed while it moves rows": 1,
    "rows moved": 50,
    "damaged": 10,
    "made again": 5,
}


class TwoDrivers(Explored):
    """Two drivers of one study on two machines, whose clocks differ."""

    kind = World

    @while_they_work(who=DRIVERS, count=SOON)
    def kill_at_work(self, who, count):
        self.world.awake(who)
        self.world.begin_to_work(who)
        self.world.step(who, count)
        self.world.kill(who)

    @while_they_work(who=DRIVERS, count=SOON)
    def kill_while_it_moves_rows(self, who, count):
        self.world.awake(who)
        self.world.begin_to_move_rows(who)
        self.world.step(who, count)
        self.world.kill(who)

    @while_they_work(who=DRIVERS, count=SOON, others=st.integers(0, 60))
    def rob(self, who, count, others):
        """A driver stops after its job began, until the other has taken over."""
        for one in (0, 1):
            self.world.awake(one)
        self.world.begin_to_work(who)
        self.world.step(who, count)
        self.world.rob(who, others)

    @while_they_work(who=DRIVERS)
    def damage_when_published(self, who):
        self.world.awake(who)
        self.world.damage_when_published(who)


world = partial(world_of, World)
lengths = partial(length_of, World)


def stop_at(point, others, skews=(1e6, -1e6)):
    """A driver stands still at one point; it continues when the other is at another point."""
    with world(*skews) as found:
        found.step(0, point)
        found.rob(0, others)
        found.thaw(0)
        found.step(0, MANY)


def kill_at(point, others):
    """A driver is killed at one point; another one of its machine continues beside the second."""
    with world(-40.0, 0.0) as found:
        found.step(0, point)
        found.kill(0)
        found.step(1, others)
        found.step(0, MANY)


def suspend_both_at(point):
    """Both drivers stand still for long, one of them at work; the other one continues first."""
    with world(0.0, 0.0) as found:
        found.step(0, point)
        found.begin_to_work(1)
        for _ in range(3):
            found.pass_time(1.0)
            found.step(1, 20)
        found.freeze(0)
        found.freeze(1)
        found.pass_time(1000.0)
        found.thaw(1)
        found.step(1, 100)
        found.thaw(0)


def damage_at(point, others):
    """An object is damaged when one driver is at a point; both find out."""
    with world(0.0, 0.0) as found:
        found.step(0, point)
        found.damage()
        found.step(1, others)
        found.step(0, 10)
        found.step(1, 25)
        found.step(0, MANY)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of claims, which no thread touches, and whose locks nobody waits for."""
    monkeypatch.setattr(claims, "BEAT_SECONDS", 1e6)
    monkeypatch.setattr(claims, "_BEATING", claims._Beating())
    monkeypatch.setattr(claims, "_TAKING_SECONDS", -1.0)
    found = tmp_path / "claims"
    found.mkdir()
    return found


@contextmanager
def taking_over(folder, dead):
    """An actor that takes over a claim; the list of what it got."""
    got = []
    actor = Actor(lambda: got.append(claims.claim(folder, "job", dead)), str(folder))
    try:
        yield actor, got
    finally:
        actor.kill()


def give_back_from_any_point(folder):
    """Another takes over, if it can; the owner continues; a third finds one owner or none."""
    for point in range(1, MANY):
        mine = claims.claim(folder, "job")
        dead = claims.look(mine.path).signature
        owner = Actor(mine.release, str(folder))
        owner.step(point)
        is_past = owner.ended
        second = claims.claim(folder, "job", dead)
        owner.step(MANY)
        assert owner.error is None
        third = claims.claim(folder, "job")
        working = second or third
        assert None in (second, third), "two processes own one claim"
        assert working.is_held()
        working.release()
        if is_past:
            break
    assert point > 3


def take_over_from_any_point(folder):
    """Two observers take over from a dead owner; one of them stops, and then goes on."""
    path = folder / "job"
    for point in range(1, MANY):
        path.unlink(missing_ok=True)
        path.touch()
        dead = claims.look(path).signature
        with taking_over(folder, dead) as (first, got):
            first.step(point)
            is_past = first.ended
            second = claims.claim(folder, "job", dead)
            first.step(MANY)
        assert None in (*got, second), "two processes took over from one owner"
        if is_past:
            break
    assert point > 3


def test_an_observer_may_stop_before_any_operation_by_which_it_takes_over(folder):
    take_over_from_any_point(folder)


def test_an_owner_may_stop_before_any_operation_that_gives_its_claim_back(folder):
    give_back_from_any_point(folder)


def test_an_owner_that_touches_its_claim_before_it_is_locked_keeps_it(folder):
    mine = claims.claim(folder, "job")
    with taking_over(folder, claims.look(mine.path).signature) as (taker, got):
        taker.stop_before("fcntl.flock")
        os.utime(mine.path, (1, 1))
        taker.step(MANY)
    assert got == [None]
    assert mine.is_held()


def test_a_lock_of_a_file_that_lost_its_name_lets_nobody_take_over(folder):
    """Two owners die before they write their tokens, and the times of files are coarse."""
    path = folder / "job"

    def die_before_writing():
        path.unlink(missing_ok=True)
        path.touch()
        os.utime(path, (1, 1))

    die_before_writing()
    dead = claims.look(path).signature
    with taking_over(folder, dead) as (first, got):
        first.stop_before("fcntl.flock")
        die_before_writing()  # who took over from the first one
        first.stop_before("os.remove", path)
        second = claims.claim(folder, "job", dead)
        first.step(MANY)
    assert second is None
    assert got[0].is_held()


def test_a_damaged_object_that_another_driver_made_again_stays():
    """A driver stops between the look at an input and the deletion."""
    with world(0.0, 0.0) as found:
        key = found.plan.jobs[0].key
        path = found.folder.claims / key
        slow, quick = (process.actor for process in found.drivers)
        slow.stop_before("os.remove", path)
        found.damage()
        slow.step()
        slow.stop_before("open", path)  # to claim the object that it found damaged
        quick.step(MANY, lambda: found.published[key] == 2 and not path.exists())
        assert found.published[key] == 2
        slow.step(MANY)


def test_who_robbed_a_driver_may_die_and_be_robbed_in_turn():
    """The first driver does not know yet that it lost its claim; nobody robs it a second time."""
    with world(0.0, 0.0) as found:
        found.begin_to_work(1)
        found.rob(1, 0)
        found.kill(0)
        found.awake(0)
        found.damage_when_published(0)


def test_drivers_that_are_suspended_together_do_not_rob_each_other():
    for point in range(0, lengths(), 6):
        suspend_both_at(point)


def test_an_object_may_be_damaged_before_any_operation():
    for point in range(0, lengths(), 3):
        damage_at(point, others=(7 * point) % 97)


def test_a_driver_may_stop_before_any_operation():
    for point in range(1, lengths(), 2):
        stop_at(point, others=point % 30)


def test_a_driver_may_die_before_any_operation():
    for point in range(0, lengths(), 3):
        kill_at(point, others=point % 50)


@pytest.mark.slow
def test_a_driver_may_stop_or_die_before_any_operation_and_continue_before_any():
    for point in range(0, lengths(), 2):
        for others in range(point % 10, 60, 10):
            stop_at(point, others)
            kill_at(point, others)
            damage_at(point, others)
        suspend_both_at(point)


def test_no_output_is_published_twice_and_none_deleted_that_is_whole():
    events = explored(TwoDrivers, QUICK, LEAST)
    assert {name: events[name] for name in LEAST if events[name] < LEAST[name]} == {}


# Faults that the protocol excludes, as they stood in the code once or may come.


def dead_by_the_clock(watch, path):
    """A claim is stale if its time is long ago by the clock of the observer."""
    found = watch.look(path)
    if found is None or found.is_here():
        return found.signature if found is not None and found.is_gone() else None
    now = processes.clock() - CLOCKS_BEGIN + EPOCH
    return found.signature if now - found.touched / 1e9 > watch.stale else None


@contextmanager
def not_checked(held, patience=0.0):
    """An owner publishes what it made, and asks nobody."""
    yield


def check_then_unlink(held, patience=0.0):
    """An owner gives its claim back in two operations, without the lock of the claim."""
    claims._BEATING.discard(held)
    if held.is_held():
        held.path.unlink(missing_ok=True)


def claim_without_signature(folder, key, dead=None):
    """A process takes over from whoever owns the claim now."""
    path = folder / key
    held = claims._create(path)
    found = None if held else claims.look(path)
    if found is None or not (found.is_gone() or dead):
        return held
    path.unlink(missing_ok=True)
    return claims._create(path)


FAULTS = {
    "claims dated by a clock": (Watch, "is_dead", dead_by_the_clock),
    "no check at publication": (claims.Claim, "locked", not_checked),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_the_exploration_finds_a_fault_that_is_planted(fault, monkeypatch):
    monkeypatch.setattr(*FAULTS[fault])
    with pytest.raises(AssertionError):
        explored(TwoDrivers, PLANTED)
    assert TwoDrivers.events["violations"]


def test_a_walk_through_a_release_finds_that_it_has_two_operations(folder, monkeypatch):
    monkeypatch.setattr(claims.Claim, "release", check_then_unlink)
    with pytest.raises(AssertionError, match="two processes own one claim"):
        give_back_from_any_point(folder)


def test_a_walk_through_a_take_over_finds_that_it_compares_no_signature(folder, monkeypatch):
    """Two observers have to meet in one window: an exploration takes some thousand examples."""
    monkeypatch.setattr(claims, "claim", claim_without_signature)
    with pytest.raises(AssertionError, match="two processes took over from one owner"):
        take_over_from_any_point(folder)
