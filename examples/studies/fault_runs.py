"""The runs of `faults.py`: its sweep, commands that run it, and how each run ended."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import random
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from simlab import Sweep
from simlab.store.files import hash_file
from simlab.sweeps.outputs import SweepFolder

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
seeds = "1..3"
max_steps = 20
batch_size = 8
max_length = 24

[[grids]]
measure = ["cka", "svcca"]
between = ["within", "tuning"]

[[inject]]
pairs = 1
directions = "one"

[truncate]
[skip]
"""
OUT = Path("runs/faults")
RESULTS = Path(__file__).parent / "results" / "faults.csv"
COLUMNS = (
    *("kind", "jobs done", "exit code", "lines"),
    *("equal bits", "jobs made again", "jobs done twice", "jobs lost"),
)
LONGEST = 600.0  # seconds that a command takes
FAR = ("--uts", "--pid", "--mount", "--mount-proc", "--fork", "--kill-child")


@dataclass
class Fault:
    """A fault and what came of it; the columns of its row."""

    kind: str
    done: int
    code: int | None = None
    lines: int = 0
    equal: bool = False
    again: int = 0
    twice: int = 0
    lost: int = 0
    bites: bool = False  # whether the command has to fail
    wanted: int | None = 0  # jobs that are made again; None if that depends on the moment

    def is_right(self) -> bool:
        """Return whether the run ended as it should."""
        failed = not self.bites or self.code not in (0, None)
        again = self.wanted is None or self.again == self.wanted
        return self.equal and failed and again and not (self.twice or self.lost)


@dataclass
class Study:
    """The sweep, its reference, and the faults so far."""

    draw: random.Random
    file: Path = OUT / "sweep.toml"
    faults: list[Fault] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        shutil.rmtree(OUT, ignore_errors=True)
        OUT.mkdir(parents=True)
        self.file.write_text(TOML)
        self.sweep = Sweep.from_file(self.file)
        run = Run(self, OUT / "whole")
        if run.end() != 0:
            raise SystemExit(f"the sweep without interruption failed: {run.output()}")
        self.plan = self.sweep.plan(OUT / "whole")
        self.jobs = {job.key: job.is_rows for job in self.plan.jobs}
        self.reference = self.contents(OUT / "whole")
        self._without_rows()

    def _without_rows(self) -> None:
        """Make a copy of the folder in which all objects are done, and no rows."""
        half = shutil.copytree(OUT / "whole", OUT / "half", symlinks=True)
        for file in half.glob("results/*.parquet"):
            file.unlink()
        for log in half.glob("log/*.jsonl"):
            lines = log.read_text().splitlines(keepends=True)
            kept = (n for n in lines if n.strip() and not self.jobs[json.loads(n)["key"]])
            log.write_text("".join(kept))

    def contents(self, folder: Path) -> tuple[object, dict[str, str]]:
        """Return all rows, and the hashes of weights, representations and their manifests."""
        names = ("*.safetensors", "manifest.json")
        files = sorted(file for name in names for file in (folder / "objects").rglob(name))
        return self.sweep.results(folder), {str(f.relative_to(folder)): hash_file(f) for f in files}

    def finish(
        self, folder: Path, code: int | None, faults: Sequence[Fault], damaged: Sequence[str] = ()
    ) -> None:
        """Run the sweep to its end, and complete the rows of the faults in its folder.

        Parameters
        ----------
        code
            The exit code of the last command in the folder.
        damaged
            Keys of the jobs whose outputs were damaged.
        """
        if code != 0:  # jobs that failed for want of files are told to begin again
            code = Run(self, folder, more=("--retry-failed",)).end()
        rows, files = self.contents(folder)
        equal = rows.equals(self.reference[0]) and files == self.reference[1]
        done = logged(folder)
        more = {key: count - 1 for key, count in done.items() if count > 1}
        for fault in faults:
            fault.equal = equal and code == 0
            fault.again = sum(more.get(key, 0) for key in damaged)
            fault.twice = sum(more.values()) - fault.again
            fault.lost = len(self.jobs.keys() - SweepFolder(folder).stored(self.plan))
        with self.lock:
            self.faults += faults
            self.write()
        right = all(fault.is_right() for fault in faults)
        print(f"{folder.name}: {len(self.faults)} faults, code {code}, right {right}", flush=True)
        if right:
            shutil.rmtree(folder)

    def write(self) -> None:
        """Write the rows of all faults."""
        with RESULTS.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(COLUMNS)
            for one in self.faults:
                told = (one.kind, one.done, one.code, one.lines)
                writer.writerow([*told, int(one.equal), one.again, one.twice, one.lost])


class Run:
    """A command that runs the sweep in a folder.

    Parameters
    ----------
    more
        Options of the command.
    before
        A command that starts this one.
    """

    def __init__(
        self, study: Study, folder: Path, more: Sequence[str] = (), before: Sequence[str] = ()
    ) -> None:
        command = ["simcore", "sweep", str(study.file), "--out", str(folder), "--workers", "2"]
        command += ["--threads", "1", "--no-figures", *more]
        self.folder = folder
        self.log = OUT / f"output-{time.time_ns()}.txt"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [*before, *command],
                stdout=subprocess.DEVNULL,
                stderr=output,
                env={**os.environ, "COLUMNS": "1000"},
                start_new_session=True,
            )

    def end(self) -> int:
        """Wait for the end, and return the exit code."""
        return self.process.wait(LONGEST)

    def output(self) -> str:
        """Return what the command printed on stderr."""
        return self.log.read_text("utf-8", "replace")

    def lines(self) -> int:
        """Return how many lines were printed besides those that tell how far the sweep is."""
        lines = self.output().splitlines()
        return sum(bool(line.strip()) and " sweep " not in line[:30] for line in lines)

    def workers(self) -> list[int]:
        """Return the workers, while jobs are at work."""
        at_work = any(not path.name.startswith(".") for path in (self.folder / "work").glob("*"))
        return self.processes()[1:] if at_work else []

    def processes(self) -> list[int]:
        """Return the driver and its workers."""
        own, found = self.process.pid, []
        for children in Path(f"/proc/{own}/task").glob("*/children"):  # of each thread
            with contextlib.suppress(OSError):
                found += map(int, children.read_text().split())
        return [own, *found]


def namespaces(*command: str) -> list[str]:
    """Return a command that runs in namespaces of its own."""
    user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    return ["unshare", *user, *command]


def logged(folder: Path) -> Counter[str]:
    """Return how often each job was published."""
    lines = [line for log in folder.glob("log/*.jsonl") for line in log.open()]
    keys = []
    for line in lines:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            keys.append(json.loads(line)["key"])
    return Counter(keys)
