"""A model of drivers on one folder: the real code, and a world that stops and kills it anywhere.

Each driver is an actor (`actors`) on a machine of its own, whose clocks are wrong by years. It runs
`simlab.sweeps.driver.Driver` with an engine that does orders in the same thread, on real files. The
world knows more than any driver: who lives, who stands still, and what was published. It notes what
must never happen in `World.violations`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from simlab.store.results import ResultRow
from simlab.sweeps import claims, driver, processes
from simlab.sweeps.driver import Driver
from simlab.sweeps.folder import SweepFolder
from simlab.sweeps.gathering import Gatherer
from simlab.sweeps.plan import Plan
from simlab.sweeps.watch import Watch
from support.lab.actors import Actor, this_actor
from support.lab.inline import InlineEngine

STALE = 60.0
_EPOCH = 1_800_000_000.0
_MOST_STEPS = 30_000
_MOST_TO_WORK = 150
_LOOK, _LOOKS = 15.0, 12  # seconds between the looks of a driver, and its operations meanwhile


@dataclass
class Machine:
    """A machine: its name, and by how many seconds its two clocks are wrong."""

    name: str
    skew: float


@dataclass
class Process:
    """A driver, as the world sees it."""

    machine: Machine
    pid: int
    actor: Actor | None = None
    frozen: bool = False
    claims: dict[Path, claims.Claim] = field(default_factory=dict)
    given_up: list[claims.Claim] = field(default_factory=list)
    beat: float = 0.0
    awake: float = 0.0
    seen: dict[int, float] = field(default_factory=dict)
    at_work: str | None = None
    waited: int = 0

    @property
    def lives(self) -> bool:
        return self.actor is not None and not self.actor.ended


class World:
    """A folder, two machines, and the drivers on them.

    Parameters
    ----------
    skews
        By how many seconds the clocks of each machine are wrong.
    """

    def __init__(self, root: Path, skews: tuple[float, float], patch: pytest.MonkeyPatch) -> None:
        self.root, self.now = root, 0.0
        self.machines = [Machine(name, skew) for name, skew in zip("ab", skews, strict=True)]
        self.folder = SweepFolder(root, durable=False)
        self.folder.create()
        self.plan = Plan()
        trained = self.plan.add("finetune", {"name": "trained"}, [], {}, "trained")
        for name in ("rows", "other rows"):
            self.plan.add("grid", {"name": name}, [trained], {}, name)
        self.violations: list[str] = []
        self.published: Counter[str] = Counter()
        self.damaged: Counter[str] = Counter()
        self._damaged_now: set[str] = set()
        self.events: Counter[str] = Counter()
        self._beating: Process | None = None
        self.processes: dict[Actor, Process] = {}
        self.drivers: list[Process] = []
        self._patch(patch)
        for machine in self.machines:
            self.drivers.append(self.start(machine))

    def start(self, machine: Machine) -> Process:
        """Start a driver."""
        process = Process(machine, pid=1000 + len(self.processes), beat=self.now)

        def run() -> None:
            how = {"keep": "all", "watch": Watch(STALE), "steps": __name__}
            Driver(self.folder, self.plan, _Engine(), **how).run()

        process.actor = Actor(run, str(self.root), self._before)
        self.processes[process.actor] = process
        return process

    # What the test does.

    def step(self, who: int, count: int, until: Callable[[], bool] = lambda: False) -> None:
        """Let a driver do some operations."""
        process = self.drivers[who]
        if not process.frozen and process.actor is not None:
            process.actor.step(count, until)

    def begin_to_work(self, who: int) -> None:
        """Let a driver go on until it works on a job, or waits."""
        process = self.drivers[who]
        waited = process.waited
        self.step(
            who, _MOST_TO_WORK, lambda: process.at_work is not None or process.waited > waited
        )

    def rob(self, who: int, count: int) -> None:
        """Let a driver stand still, until the other one has had the time to take over."""
        self.freeze(who)
        self.begin_to_work(1 - who)
        for _ in range(int(STALE // _LOOK) + 2):
            self.pass_time(_LOOK)
            self.step(1 - who, _LOOKS)
        self.step(1 - who, count)

    def freeze(self, who: int) -> None:
        """Stop a driver with all its threads."""
        self.drivers[who].frozen = True

    def thaw(self, who: int) -> None:
        """Let a driver continue; it may have stopped just before it touched its claims."""
        process = self.drivers[who]
        if process.frozen:
            process.frozen = False
            for path in process.claims:
                self._touch(process, path)

    def kill(self, who: int) -> None:
        """Kill a driver, and start another one on its machine."""
        process = self.drivers[who]
        assert process.actor is not None
        process.actor.kill()
        self.events["killed at work"] += process.at_work is not None
        process.at_work = None
        self.drivers[who] = self.start(process.machine)

    def pass_time(self, seconds: float) -> None:
        """Let time pass; who does not stand still touches its claims."""
        self.now += seconds
        awake = [process for process in self.drivers if process.lives and not process.frozen]
        for process in awake:
            process.awake += seconds
        for process in awake:
            process.beat = self.now
            process.seen = {other.pid: other.awake for other in self.drivers}
            for path, held in list(process.claims.items()):
                if held.is_held():
                    self._touch(process, path)
            for held in list(process.given_up):
                process.given_up.remove(held)
                self._beating = process
                held.release(patience=-1)
                self._beating = None

    def damage(self) -> None:
        """Change a byte of a published object."""
        key = self.plan.jobs[0].key
        file = self.folder.place("finetune", key) / "numbers"
        if file.is_file() and key not in self._damaged_now:
            file.write_bytes(b"other bytes")
            self.damaged[key] += 1
            self._damaged_now.add(key)

    def finish(self) -> None:
        """Let all drivers run to their ends, and check what they leave."""
        for who in range(len(self.drivers)):
            self.thaw(who)
        for _ in range(_MOST_STEPS // 20):
            if not any(process.lives for process in self.drivers):
                break
            for who in range(len(self.drivers)):
                self.step(who, 20)
            self.pass_time(2.0)
        else:
            self.violations.append("drivers do not end")
        self._check_end()

    def end(self) -> None:
        """End all drivers."""
        for process in self.processes.values():
            if process.actor is not None:
                process.actor.kill()

    # What the world checks.

    def _check_end(self) -> None:
        for process in self.drivers:
            assert process.actor is not None
            if process.actor.error is not None:
                raise process.actor.error
        lines = Counter(line["key"] for line in self.folder.finished())
        for job in self.plan.jobs:
            if lines[job.key] != self.published[job.key]:
                self.violations.append(
                    f"{job.title}: {self.published[job.key]} outputs, {lines[job.key]} lines"
                )
            if self.published[job.key] > 1 + self.damaged[job.key]:
                self.violations.append(f"{job.title}: published {self.published[job.key]} times")
        for name in ("claims", "work", "failures"):
            left = os.listdir(self.root / name)
            if left:
                self.violations.append(f"left in {name}: {left}")
        for job in self.plan.jobs:
            if not self.folder.place(job.kind, job.key).exists():
                self.violations.append(f"{job.title}: no output")

    def _before(self, event: str, args: tuple[Any, ...]) -> None:
        """Look at an operation that is about to happen."""
        if event == "os.remove" and Path(args[0]).parent == self.folder.claims:
            self._before_removal(Path(args[0]))
        if event != "os.rename":
            return
        source, target = Path(args[0]), Path(args[1])
        if target.parent == self.folder.failures:
            self._require_owner(target.stem, f"the failure {target}")
        place = self._key_of(target)
        if place is not None and place != self._key_of(source):
            self._before_publication(place, target)
        gone = self._key_of(source)
        if gone is not None and gone != place and source.exists():
            if gone not in self._damaged_now:
                self.violations.append(f"{source} is deleted and was not damaged")
            self._damaged_now.discard(gone)

    def _before_publication(self, key: str, place: Path) -> None:
        self._require_owner(key, str(place))
        if place.exists():
            self.violations.append(f"{place} is published twice")
        self.published[key] += 1

    def _require_owner(self, key: str, what: str) -> None:
        """Note a violation if the process that acts does not own a key."""
        process = self._this()
        token = self._token(self.folder.claims / key)
        if token is None or token not in {held.token for held in process.claims.values()}:
            self.violations.append(f"{what} is written by a process that is not the owner")

    def _before_removal(self, path: Path) -> None:
        token = self._token(path)
        for other in self.drivers:
            held = other.claims.get(path)
            if other is self._this() or held is None or held.token != token:
                continue
            if other.lives and self.now - other.beat < STALE:
                self.violations.append("a claim is removed whose owner touched it in time")

    def _token(self, path: Path) -> str | None:
        """Return the token in a claim."""
        actor = this_actor()
        if actor is not None:
            actor.quiet = True
        found = claims.look(path)
        if actor is not None:
            actor.quiet = False
        return None if found is None else found.owner.get("token")

    def _key_of(self, path: Path) -> str | None:
        """Return the key whose output stands at a path."""
        if "objects" not in path.parts or path.name.startswith("."):
            return None
        key = path.name.partition(".")[0]
        return key if self.plan.number(key) is not None and path.suffix != ".gone" else None

    def claimed(self, process: Process, held: claims.Claim) -> None:
        """Note that a process made a claim; check that it robbed nobody who lives."""
        for other in self.drivers:
            if other is process or held.path not in other.claims:
                continue
            # Time in which the observer stood still itself is no silence of the owner.
            silence = process.awake - other.seen.get(process.pid, 0.0)
            if other.lives and silence < STALE:
                self.violations.append("a process lost a claim that it touched in time")
            if other.lives:
                self.events["take-over from a process that lives"] += 1
        process.claims[held.path] = held
        self._touch(process, held.path)

    def _touch(self, process: Process, path: Path) -> None:
        """Touch a claim; some file systems take the time from the machine that does so."""
        when = _EPOCH + self.now + process.machine.skew
        assert process.actor is not None
        process.actor.quiet = True
        with contextlib.suppress(FileNotFoundError):
            os.utime(path, (when, when))
        process.actor.quiet = False

    def _this(self) -> Process:
        """Return the process whose code runs now."""
        actor = this_actor()
        if actor is not None:
            return self.processes[actor]
        assert self._beating is not None
        return self._beating

    def _patch(self, patch: pytest.MonkeyPatch) -> None:
        """Give each actor a machine, a number, a start and a clock of its own."""
        patch.setattr(processes, "place", lambda: [self._this().machine.name])
        patch.setattr(processes, "own_pid", lambda: self._this().pid)
        patch.setattr(processes, "own_start", str)
        patch.setattr(processes, "started", self._started)
        patch.setattr(processes, "machine", lambda: self._this().machine.name)
        patch.setattr(processes, "clock", lambda: self.now + self._this().machine.skew + 1e9)
        patch.setattr(claims, "_BEATING", _Beats(self))
        patch.setattr(claims, "_POLL_SECONDS", 0.0)
        patch.setattr(driver, "note", lambda _: None)
        # The lock of the data set is another one, and the parts stay where they are.
        for name in ("gather", "gather_all", "set_aside", "set_aside_damaged"):
            patch.setattr(Gatherer, name, lambda _: ())
        patch.setattr(sys.modules[__name__], "_worlds", [self])

    def _started(self, pid: int) -> str | None:
        found = [process for process in self.processes.values() if process.pid == pid]
        return str(pid) if not found or found[0].lives else None


_worlds: list[World] = []


class _Beats:
    """In place of the thread that touches the claims of a process: `World.pass_time` does."""

    def __init__(self, world: World) -> None:
        self.world = world

    def add(self, held: claims.Claim) -> None:
        self.world.claimed(self.world._this(), held)

    def discard(self, held: claims.Claim) -> None:
        self.world._this().claims.pop(held.path, None)

    def release_later(self, held: claims.Claim) -> None:
        self.world._this().given_up.append(held)


class _Engine(InlineEngine):
    """Lets the driver stop where it waits."""

    def collect(self, seconds: float):
        actor = this_actor()
        assert actor is not None
        _worlds[-1].processes[actor].waited += 1
        actor.pause()
        return super().collect(seconds)


def _at_work(step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def work(order: Any) -> Any:
        actor = this_actor()
        assert actor is not None
        process = _worlds[-1].processes[actor]
        process.at_work = order.params["name"]
        try:
            actor.pause()
            return step(order)
        finally:
            process.at_work = None

    return work


@_at_work
def train(work: Any) -> None:
    """Make a folder in two parts, the first of which a later owner continues."""
    if work.out.exists():  # the last owner ended before it published
        return
    partial = work.out.with_name("partial")
    partial.mkdir(exist_ok=True)
    for part in ("numbers", "others"):
        (partial / part).write_bytes(b"numbers")
    partial.rename(work.out)


@_at_work
def grid(work: Any) -> list[ResultRow]:
    """Return a row."""
    value = float((work.inputs[0] / "numbers").read_bytes() == b"numbers")
    return [ResultRow(comparison="c", measure="m", model_x="x", value=value, n=1, task="t")]


STEPS = {"finetune": train, "grid": grid}
RESUMABLE = ("finetune",)
