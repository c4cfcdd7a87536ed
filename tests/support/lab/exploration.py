"""What the explorations of the protocol share: the machine, its settings, and a world for a walk.

`Explored` is a state machine of Hypothesis in which two drivers of one study work on two machines,
whose clocks differ. A subclass says which world they work in, and adds what may happen there.
"""

import tempfile
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as explore

from support.lab.protocol import World

MANY = 400  # more operations than a driver, with its worker, has
DRIVERS, MODELS = st.sampled_from((0, 1)), st.integers(0, 3)
SKEWS = st.sampled_from((0.0, -40.0, 1e6, -1e6))
COMMON: dict[str, Any] = {
    "stateful_step_count": 12,
    "deadline": None,
    "derandomize": True,
    "suppress_health_check": list(HealthCheck),
    "database": None,
}


def while_they_work(**arguments):
    """A rule for as long as a driver works: what happens to none would prove nothing."""
    return lambda act: precondition(lambda self: self.world.works)(rule(**arguments)(act))


class Explored(RuleBasedStateMachine):
    """Two drivers of one study on two machines, whose clocks differ."""

    kind: ClassVar[type[World]]
    events: ClassVar[Counter[str]]  # of all examples

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.events = Counter()

    @initialize(first=SKEWS, second=SKEWS)
    def begin(self, first, second):
        self.patch = pytest.MonkeyPatch()
        self.temporary = tempfile.TemporaryDirectory()
        root = Path(self.temporary.name)
        self.world = self.kind(root, (first, second), self.patch, models=2)

    @precondition(lambda self: not self.world.works)
    @rule()
    def go_on(self):
        self.world.go_on()

    @while_they_work(who=DRIVERS, count=st.integers(1, 40))
    def work(self, who, count):
        self.world.step(who, count)

    @while_they_work(who=DRIVERS)
    def freeze(self, who):
        self.world.freeze(who)

    @while_they_work(who=DRIVERS)
    def thaw(self, who):
        self.world.thaw(who)

    @while_they_work(seconds=st.sampled_from((1.0, 20.0, 1000.0)))
    def pass_time(self, seconds):
        self.world.pass_time(seconds)

    @while_they_work(number=MODELS)
    def damage(self, number):
        self.world.damage(number)

    @invariant()
    def nothing_forbidden_happens(self):
        assert getattr(self, "world", None) is None or self.world.violations == []

    def teardown(self):
        if not hasattr(self, "world"):
            return
        try:
            self.world.finish()
            assert self.world.violations == []
        finally:
            self.world.end()
            self.patch.undo()
            self.temporary.cleanup()
            self.events.update(self.world.events)
            self.events["damaged"] += self.world.damaged.total()
            self.events["violations"] += len(self.world.violations)


def explored(machine, how, least=MappingProxyType({}), most=3) -> Counter[str]:
    """Explore, and return how often each situation came about.

    An exploration is random, and proves nothing about a situation that it lacks: others follow, up
    to `most`, until each situation came about as often as `least` says.
    """
    machine.events.clear()
    for _ in range(most):
        explore(machine, settings=how)
        if all(machine.events[name] >= count for name, count in least.items()):
            break
    return machine.events


@contextmanager
def world_of(kind, *skews):
    """Two drivers on a folder; in the end, nothing forbidden has happened."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as root:
        found = kind(Path(root), skews, patch)
        try:
            yield found
            found.finish()
            assert found.violations == []
        finally:
            found.end()


def length_of(kind) -> int:
    """The number of operations of a driver that nobody disturbs."""
    with world_of(kind, 0.0, 0.0) as whole:
        count = 0
        while whole.drivers[0].lives:
            whole.step(0, 1)
            count += 1
    return count
