"""A model of drivers on one folder: the real code, and a world that stops and kills it anywhere.

Each driver is an actor (`actors`) on a machine of its own, whose clocks are wrong by years. It runs
`simlab.sweeps.driver.Driver` with an engine that does orders in the same thread, on real files. The
world knows more than any driver: who lives, who stands still, and what was published. It notes what
must never happen in `World.violations`, and counts the situations that came about in
`World.events`.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simlab.sweeps import claims, gathering
from simlab.sweeps.driver import Driver
from simlab.sweeps.engine import Engine
from simlab.sweeps.execute import MOST_ATTEMPTS
from simlab.sweeps.folder import SweepFolder
from simlab.sweeps.plan import Plan
from simlab.sweeps.watch import Watch
from support.lab import worldsteps
from support.lab.actors import Actor, this_actor
from support.lab.worldpatches import give_each_its_own
from support.lab.worldprocesses import Machine, Process

STALE = 60.0
EPOCH = 1_800_000_000.0  # of the times of files
_MOST_STEPS = 30_000
_MOST_TO_WORK = 150
_LOOK = 15.0  # seconds between the looks of a driver
# Situations that are counted.
ROBBED, INHERITED = "take-over from a process that lives", "take-over from a process that died"


class World:
    """A folder, two machines, and the drivers on them.

    Parameters
    ----------
    skews
        By how many seconds the clocks of each machine are wrong.
    models
        How many models are trained; two grids read each.
    """

    def __init__(
        self, root: Path, skews: tuple[float, float], patch: pytest.MonkeyPatch, models: int = 1
    ) -> None:
        self.root, self.now = root, 0.0
        self.machines = [Machine(name, skew) for name, skew in zip("ab", skews, strict=True)]
        self.folder = SweepFolder(root, durable=False)
        self.folder.create()
        self.plan = Plan()
        for _ in range(models):
            self._add_model()
        self.violations: list[str] = []
        self.published: Counter[str] = Counter()
        self.damaged: Counter[str] = Counter()
        self._damaged_now: set[str] = set()
        self.events: Counter[str] = Counter()
        self._beating: Process | None = None
        self.processes: dict[Actor, Process] = {}
        self.drivers: list[Process] = []
        give_each_its_own(self, patch)
        for machine in self.machines:
            self.drivers.append(self.start(machine))

    def _add_model(self) -> None:
        number = self.plan.counts().get("finetune", 0)
        name = f"trained {number}"
        trained = self.plan.add("finetune", {"name": name}, [], {}, name)
        for name in (f"rows {number}", f"other rows {number}"):
            self.plan.add("grid", {"name": name}, [trained], {}, name)

    def start(self, machine: Machine) -> Process:
        """Start a driver."""
        process = self._new_process(machine)

        def run() -> None:
            how = {"keep": "all", "watch": Watch(STALE), "steps": worldsteps.__name__}
            engine = self.engine(process)
            Driver(self.folder, self.plan, engine, **how).run()
            engine.close()

        return self.begin(process, run)

    def _new_process(self, machine: Machine) -> Process:
        return Process(machine, pid=1000 + len(self.processes), beat=self.now)

    def begin(self, process: Process, run: Callable[[], None]) -> Process:
        """Let a process begin, before the first operation of `run`."""
        process.actor = Actor(run, str(self.root), self._before)
        self.processes[process.actor] = process
        return process

    def engine(self, process: Process) -> Engine:
        """Return the engine of a driver."""
        return worldsteps.InDriver()

    @property
    def everyone(self) -> list[Process]:
        """Return the processes that were not killed."""
        return self.drivers

    # What the test does.

    @property
    def works(self) -> bool:
        """Return whether a driver has not ended."""
        return any(process.lives for process in self.drivers)

    def go_on(self) -> None:
        """Run the sweep again with another model, when all drivers have ended."""
        assert not self.works
        self._add_model()
        for who in (0, 1):
            self.awake(who)

    def awake(self, who: int) -> None:
        """Let a driver continue; start another one on its machine if it has ended."""
        self.thaw(who)
        process = self.drivers[who]
        if not process.lives:
            self._require_no_error(process)
            self.drivers[who] = self.start(process.machine)

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
        robbed, other = self.events[ROBBED], self.drivers[1 - who]
        for _ in range(int(STALE // _LOOK) + 2):
            self.pass_time(_LOOK)
            waited = other.waited
            self.step(
                1 - who,
                _MOST_TO_WORK,
                lambda now=waited: other.waited > now or self.events[ROBBED] > robbed,
            )
            if self.events[ROBBED] > robbed:
                break
        self.step(1 - who, count)

    def freeze(self, who: int) -> None:
        """Stop a driver with all its threads."""
        self.drivers[who].frozen = True

    def thaw(self, who: int) -> None:
        """Let a driver continue."""
        self._thaw(self.drivers[who])

    def _thaw(self, process: Process) -> None:
        """Let a process continue, which may have stopped just before it touched its claims."""
        if process.frozen:
            process.frozen = False
            for path in process.claims:
                self._touch(process, path)

    def kill(self, who: int) -> None:
        """Kill a driver, and start another one on its machine."""
        process = self.drivers[who]
        assert process.actor is not None
        self.events["killed as an owner"] += bool(process.claims.keys() & self._job_claims())
        self.events["killed while it moves rows"] += self._moves_rows(process.actor)
        process.actor.kill()
        self.drivers[who] = self.start(process.machine)

    def pass_time(self, seconds: float) -> None:
        """Let time pass; who does not stand still touches its claims."""
        self.now += seconds
        awake = [process for process in self.everyone if process.lives and not process.frozen]
        for process in awake:
            process.awake += seconds
        for process in awake:
            process.beat = self.now
            process.seen = {other.pid: other.awake for other in self.everyone}
            for path, held in list(process.claims.items()):
                if held.is_held():
                    self._touch(process, path)
            for held in list(process.given_up):
                process.given_up.remove(held)
                self._beating = process
                held.release(patience=-1)
                self._beating = None

    def begin_to_move_rows(self, who: int) -> None:
        """Let a driver go on until it moves rows into the data set, for which it is time."""
        actor = self.drivers[who].actor
        assert actor is not None
        self.pass_time(gathering.GATHER_SECONDS + 1)
        self.step(who, _MOST_TO_WORK, lambda: self._moves_rows(actor))

    def damage(self, number: int = 0) -> None:
        """Change a byte of a published object."""
        objects = [job for job in self.plan.jobs if job.kind == "finetune"]
        job = objects[number % len(objects)]
        file = self.folder.place(job.kind, job.key) / "numbers"
        # A driver gives up an input that is damaged again and again.
        often = self.damaged[job.key] == MOST_ATTEMPTS - 1
        if file.is_file() and job.key not in self._damaged_now and not often:
            file.write_bytes(b"other bytes")
            self.damaged[job.key] += 1
            self._damaged_now.add(job.key)

    def damage_when_published(self, who: int) -> None:
        """Let a driver go on until an object is published, and damage it before it is read."""
        keys = [job.key for job in self.plan.jobs if job.kind == "finetune"]
        before = {key: self.published[key] for key in keys}
        self.step(
            who, _MOST_TO_WORK, lambda: any(self.published[key] > before[key] for key in keys)
        )
        self.step(who, 1)
        for number, key in enumerate(keys):
            if self.published[key] > before[key]:
                self.damage(number)

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
            self._require_no_error(process)
        lines = Counter(line["key"] for line in self.folder.finished())
        for job in self.plan.jobs:
            # The line of an output that was made again is not missed if its owner was killed.
            fewest = self.published[job.key] - self.damaged[job.key]
            if not fewest <= lines[job.key] <= self.published[job.key]:
                self.violations.append(
                    f"{job.title}: {self.published[job.key]} outputs, {lines[job.key]} lines"
                )
            if self.published[job.key] > 1 + self.damaged[job.key]:
                self.violations.append(f"{job.title}: published {self.published[job.key]} times")
        for name in ("claims", "work", "failures"):
            left = os.listdir(self.root / name)
            if left:
                self.violations.append(f"left in {name}: {left}")
        made = self.folder.data.made(checked=True)
        for job in self.plan.jobs:
            there = (
                job.key in made if job.is_rows else self.folder.place(job.kind, job.key).exists()
            )
            if not there:
                self.violations.append(f"{job.title}: no output")
        keys = [job.key for job in self.plan.jobs if job.is_rows]
        values = self.folder.data.rows(keys)["value"].to_pylist()
        if values != [1.0] * len(keys):
            self.violations.append(f"rows: {values}")

    def _require_no_error(self, process: Process) -> None:
        assert process.actor is not None
        if process.actor.error is not None:
            raise process.actor.error

    def _job_claims(self) -> set[Path]:
        return {self.folder.claims / job.key for job in self.plan.jobs}

    def _moves_rows(self, actor: Actor) -> bool:
        """Return whether the next operation of an actor is one on the data set, which it locks."""
        event, args = actor.upcoming
        target = Path(str(args[-1] if event == "os.rename" else args[0] if args else ""))
        is_part = event == "os.remove" and self._key_of(target) is not None  # its rows are moved
        is_file = event in ("os.rename", "os.remove") and target.parent == self.folder.data.folder
        return is_file or is_part

    def _before(self, event: str, args: tuple[Any, ...]) -> None:
        """Look at an operation that is about to happen."""
        if event == "os.remove" and Path(args[0]).parent == self.folder.claims:
            self._before_removal(Path(args[0]))
        if event != "os.rename":
            return
        source, target = Path(args[0]), Path(args[1])
        self.events["rows moved"] += target.parent == self.folder.data.folder
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
        self.events["made again"] += self.published[key] > 1

    def _require_owner(self, key: str, what: str) -> None:
        """Note a violation if the process that acts does not own a key."""
        token = self._token(self.folder.claims / key)
        if token is None or token not in {held.token for held in self._this().claims.values()}:
            self.violations.append(f"{what} is written by a process that is not the owner")

    def _before_removal(self, path: Path) -> None:
        token = self._token(path)
        for other in self.everyone:
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
        for other in self.processes.values():
            if other is process or held.path not in other.claims.keys() - other.lost:
                continue
            # Time in which the observer stood still itself is no silence of the owner.
            observer = process.observer or process
            silence = observer.awake - other.seen.get(observer.pid, 0.0)
            if other.lives and silence < STALE:
                self.violations.append("a process lost a claim that it touched in time")
            self.events[ROBBED if other.lives else INHERITED] += 1
            other.lost.add(held.path)
            if not other.lives:
                del other.claims[held.path]
        process.claims[held.path] = held
        process.lost.discard(held.path)
        self._touch(process, held.path)

    def _touch(self, process: Process, path: Path) -> None:
        """Touch a claim; some file systems take the time from the machine that does so."""
        when = EPOCH + self.now + process.machine.skew
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

    def _started(self, pid: int) -> str | None:
        found = [process for process in self.processes.values() if process.pid == pid]
        return str(pid) if not found or found[0].lives else None
