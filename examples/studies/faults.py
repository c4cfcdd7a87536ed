"""A hundred faults: what a sweep loses when processes die, freeze, or find damaged files.

    python examples/studies/faults.py --faults 100

A sweep of small models that it pretrains itself (fine-tuning, representations, grids, truncation,
skipping, injection) runs once without interruption. Then it runs again and again with two workers
and one fault after another, each while a job is at work: the driver or a worker is killed (SIGKILL,
SIGTERM), or frozen for seconds (SIGSTOP, SIGCONT). The same command continues it each time.
Finished folders get another byte in files of rows, of weights and of records, and the command runs
again, or runs with too few files that it may open. Last, two machines (namespaces of processes and
host names, where the system allows them) share a folder, and one dies or freezes for so long that
the other takes over.

Each fault is a row of ``examples/studies/results/faults.csv``: its kind, how many jobs were done
then, the exit code of the command and how many lines of errors and notes it printed, whether the
folder had the bits of the uninterrupted run in the end, and how many of its jobs were published
twice (empty where files were damaged, whose jobs have to be done again).
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from simlab import Sweep
from simlab.store.files import hash_file

TOML = """\
tasks = [{ name = "rt", train_size = 64, heldout_size = 48 }]

[[models]]
label = "tiny"
[models.pretrain]
texts = [{ name = "rt", train_size = 64, heldout_size = 48 }]
layers = 2
hidden = 32
heads = 2
vocabulary = 300
max_steps = 20
batch_size = 8

[finetune]
seeds = "1..4"
max_steps = 20
batch_size = 8
max_length = 24

[[grids]]
measure = ["cka", "svcca"]
between = ["within", "tuning"]

[[inject]]
pairs = 2
directions = "one"

[truncate]
[skip]
"""
OUT = Path("runs/faults")
RESULTS = Path(__file__).parent / "results" / "faults.csv"
COLUMNS = ("kind", "jobs done", "exit code", "lines", "equal bits", "jobs done twice")
INTERRUPTIONS = (
    *("kill driver", "kill worker", "kill all", "terminate driver"),
    *("freeze driver", "freeze worker", "freeze all"),
)
FAR = ("unshare", "--uts", "--pid", "--mount", "--mount-proc", "--fork", "--kill-child")
STALE = 10.0  # seconds after which a silent machine counts as gone, in the rounds of two machines
FEW_FILES = (5, 4)  # that a command may open
RUN = (
    "import sys; from simlab import Sweep; sweep, out = sys.argv[1:]\n"
    "report = Sweep.from_file(sweep).run(out, workers=1, threads=1, figures=False, stale=10)\n"
    "sys.exit(1 if report.failed else 0)"
)


@dataclass
class Fault:
    """A fault and what came of it; the columns of its row."""

    kind: str
    done: int
    code: int | None = None
    lines: int = 0
    equal: bool = False
    twice: int | None = None


@dataclass
class Study:
    """The sweep, its reference, and the faults so far."""

    draw: random.Random
    file: Path = OUT / "sweep.toml"
    faults: list[Fault] = field(default_factory=list)

    def __post_init__(self) -> None:
        OUT.mkdir(parents=True, exist_ok=True)
        self.file.write_text(TOML)
        self.sweep = Sweep.from_file(self.file)
        self.jobs = len(self.sweep.plan())
        run = Run(self, OUT / "whole")
        if run.end() != 0:
            raise SystemExit(f"the sweep without interruption failed: {run.output()}")
        self.reference = self.contents(OUT / "whole")

    def contents(self, folder: Path) -> tuple[object, dict[str, str]]:
        """Return all rows, and the hashes of weights, representations and their manifests."""
        names = ("*.safetensors", "manifest.json")
        files = sorted(file for name in names for file in (folder / "objects").rglob(name))
        return self.sweep.results(folder), {str(f.relative_to(folder)): hash_file(f) for f in files}

    def finish(self, folder: Path, faults: list[Fault], damaged: bool = False) -> None:
        """Run the sweep to its end, and complete the rows of the faults in its folder."""
        run = Run(self, folder)
        code = run.end()
        rows, files = self.contents(folder)
        equal = rows.equals(self.reference[0]) and files == self.reference[1]
        twice = sum(logged(folder).values()) - len(logged(folder))
        for fault in faults:
            fault.equal, fault.twice = equal and code == 0, None if damaged else twice
        self.faults += faults
        self.write()
        print(f"{folder.name}: {len(self.faults)} faults, code {code}, equal {equal}", flush=True)

    def write(self) -> None:
        """Write the rows of all faults."""
        with RESULTS.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(COLUMNS)
            for one in self.faults:
                writer.writerow(
                    [one.kind, one.done, one.code, one.lines, int(one.equal), one.twice]
                )


class Run:
    """A command that runs the sweep in a folder; `far` on a machine of its own."""

    def __init__(
        self, study: Study, folder: Path, files: int | None = None, far: bool | None = None
    ):
        self.folder = folder
        command = ["simcore", "sweep", str(study.file), "--out", str(folder), "--workers", "2"]
        command += ["--threads", "1", "--no-figures"]
        if far is not None:
            command = [sys.executable, "-c", RUN, str(study.file), str(folder)]
        if far:
            name = ["sh", "-c", 'hostname far; exec "$@"', "sh"]
            command = [*FAR, *name, *command]
        OUT.mkdir(parents=True, exist_ok=True)
        self.log = OUT / f"output-{time.time_ns()}.txt"

        def limit() -> None:
            if files is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                stdout=subprocess.DEVNULL,
                stderr=output,
                env={**os.environ, "COLUMNS": "1000"},
                start_new_session=True,
                preexec_fn=limit,
            )

    def end(self) -> int:
        """Wait for the end, and return the exit code."""
        return self.process.wait()

    def output(self) -> str:
        """Return what the command printed on stderr."""
        return self.log.read_text("utf-8", "replace")

    def lines(self) -> int:
        """Return how many lines were printed besides those that tell how far the sweep is."""
        lines = self.output().splitlines()
        return sum(bool(line.strip()) and " sweep " not in line[:30] for line in lines)

    def processes(self) -> list[int]:
        """Return the driver and its workers."""
        own = self.process.pid
        children = Path(f"/proc/{own}/task/{own}/children")
        with contextlib.suppress(OSError):
            return [own, *map(int, children.read_text().split())]
        return [own]


def logged(folder: Path) -> Counter[str]:
    """Return how often each job was published."""
    lines = [line for log in folder.glob("log/*.jsonl") for line in log.open()]
    keys = []
    for line in lines:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            keys.append(json.loads(line)["key"])
    return Counter(keys)


def workers_at_work(folder: Path) -> list[int]:
    """Return the processes that have claimed a job, and live."""
    found = []
    for claim in (folder / "claims").glob("[!.]*"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            pid = json.loads(claim.read_text())["pid"]
            if Path(f"/proc/{pid}").exists():
                found.append(pid)
    return found


def send(pids: list[int], number: signal.Signals) -> None:
    """Send a signal to processes, some of which may be gone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def interrupt(study: Study, count: int, number: int) -> None:
    """Kill and freeze processes while they work, `count` times, until the sweep has ended."""
    folder, faults = OUT / f"round-{number}", []
    shutil.rmtree(folder, ignore_errors=True)
    run = Run(study, folder)
    while len(faults) < count and (code := run.process.poll()) != 0:
        if code is not None:
            run = Run(study, folder)
        # Some jobs are done between two faults, so that the faults fall on all kinds of job.
        wanted = len(logged(folder)) + study.draw.randint(0, 8)
        while run.process.poll() is None and (
            len(logged(folder)) < wanted or not workers_at_work(folder)
        ):
            time.sleep(0.02)
        time.sleep(study.draw.uniform(0, 1))
        at_work = workers_at_work(folder)
        if run.process.poll() is not None or not at_work:
            continue
        faults.append(one_fault(study, run, at_work, len(logged(folder))))
        print(f"  {faults[-1].kind} after {faults[-1].done} jobs", flush=True)
    if run.process.poll() is None:
        run.end()
    for fault in faults:  # of a worker, or a freeze: the command went on
        if fault.code is None:
            fault.code, fault.lines = run.end(), run.lines()
    study.finish(folder, faults)


def one_fault(study: Study, run: Run, at_work: list[int], done: int) -> Fault:
    """Kill or freeze the driver, a worker, or all of them."""
    kind = study.draw.choice(INTERRUPTIONS)
    act, _, who = kind.partition(" ")
    victims = {"driver": [run.process.pid], "worker": [study.draw.choice(at_work)]}
    pids = victims.get(who, run.processes())
    fault = Fault(kind, done)
    if act == "freeze":
        send(pids, signal.SIGSTOP)
        time.sleep(study.draw.uniform(0.5, 3))
        send(pids, signal.SIGCONT)
    else:
        send(pids, signal.SIGTERM if act == "terminate" else signal.SIGKILL)
        if who != "worker":
            fault.code, fault.lines = run.end(), run.lines()
    return fault


def flip(file: Path, place: float) -> None:
    """Change bits of one byte, at a share of the length of a file."""
    content = bytearray(file.read_bytes())
    content[int(place * len(content))] ^= 0x55
    file.write_bytes(content)


def damages(folder: Path, draw: random.Random) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the ways in which a finished folder is damaged, each on a file of its own."""
    objects = sorted(file.parent for file in (folder / "objects/extract").glob("*/*/object.json"))
    first, second, third = draw.sample(objects, 3)
    (rows,) = sorted((folder / "results").glob("*.parquet"))[-1:]
    tuned = draw.choice(sorted((folder / "objects/finetune").glob("*/*")))
    whole = (folder / "fingerprints.json").exists()
    yield "byte of rows", lambda: flip(rows, draw.random())
    yield "byte of weights", lambda: flip(tuned / "model.safetensors", draw.random())
    yield "byte of representations", lambda: flip(next(first.glob("*.safetensors")), draw.random())
    yield "record of an object: {}", lambda: (second / "object.json").write_text("{}")
    yield "record of an object: cut", lambda: os.truncate(third / "object.json", 30)
    yield "claim: other JSON", lambda: (folder / "claims" / ("0" * 64)).write_text('"abc"')
    yield "failure: other JSON", lambda: (folder / f"failures/{'0' * 64}.json").write_text("[]")
    yield "log: other JSON", lambda: (folder / "log" / "other.jsonl").write_text('{"a": 1}\n')
    yield "plan: other JSON", lambda: (folder / "plan.json").write_text("[]")
    yield "sweep.json: cut", lambda: os.truncate(folder / "sweep.json", 10)
    if whole:
        yield "fingerprints: other JSON", lambda: (folder / "fingerprints.json").write_text("[]")


def damage(study: Study, number: int) -> None:
    """Damage a copy of the finished folder in every way at once, and continue it."""
    folder, faults = OUT / f"damage-{number}", []
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(OUT / "whole", folder)
    # Damaged rows are wanted again, and so are the objects that they are computed from.
    for kind, act in damages(folder, study.draw):
        act()
        faults.append(Fault(kind, study.jobs))
    run = Run(study, folder)
    code = run.end()
    for fault in faults:
        fault.code, fault.lines = code, run.lines()
    study.finish(folder, faults, damaged=True)


def too_few_files(study: Study, number: int) -> None:
    """Run the command on a finished folder with too few files that it may open."""
    folder = OUT / f"files-{number}"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(OUT / "whole", folder)
    limit = FEW_FILES[number]
    fault = Fault(f"{limit} open files", study.jobs)
    run = Run(study, folder, files=limit)
    fault.code, fault.lines = run.end(), run.lines()
    study.finish(folder, [fault])


def two_machines(study: Study, number: int, act: str) -> None:
    """Let two machines share a folder; kill or freeze all processes of the near one."""
    folder = OUT / f"machines-{number}"
    shutil.rmtree(folder, ignore_errors=True)
    near, far = Run(study, folder, far=False), Run(study, folder, far=True)
    while not workers_at_work(folder) and near.process.poll() is None:
        time.sleep(0.05)
    time.sleep(study.draw.uniform(1, 4))
    fault = Fault(f"{act} one machine of two", len(logged(folder)))
    pids = near.processes()
    if act == "kill":
        send(pids, signal.SIGKILL)
    else:
        send(pids, signal.SIGSTOP)
        time.sleep(1.5 * STALE)
        send(pids, signal.SIGCONT)
    code = near.end()
    fault.code, fault.lines = (far.end() or (0 if act == "kill" else code)), far.lines()
    study.finish(folder, [fault])


def main() -> None:
    """Run the study, and write its rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=120.0, help="no new round after these")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    until = time.monotonic() + 60 * options.minutes
    study = Study(random.Random(options.seed))
    rounds = 0

    def goes_on() -> bool:
        return len(study.faults) < options.faults and time.monotonic() < until

    machines = subprocess.run([*FAR, "true"], capture_output=True, check=False).returncode == 0
    if not machines:
        print("this system gives no namespaces: no faults of two machines")
    while goes_on():
        damage(study, rounds)
        if goes_on():
            too_few_files(study, rounds % 2)
        if goes_on() and machines:
            two_machines(study, rounds, "kill" if rounds % 2 else "freeze")
        for part in range(2):
            if goes_on():
                most = options.faults - len(study.faults)
                interrupt(study, min(8, most), 2 * rounds + part)
        rounds += 1
    print(Counter(fault.kind for fault in study.faults))
    print(f"{sum(fault.equal for fault in study.faults)} of {len(study.faults)} equal")


if __name__ == "__main__":
    main()
