"""One harness for grids at scale: fair timing, peak memory, the floor, and rows of results.

A suite is a module of this package with a `Job` class and a table of jobs; `main` is their command.

All contestants of a job take turns, round after round, so that a noisy minute of the machine hits
them alike; the matrix-product and copy rates that define the floor take their turn too.
"""

from __future__ import annotations

import argparse
import csv
import functools
import json
import os
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from bench.peak import ROOT, in_subprocess, peak_during

RESULTS = Path(__file__).parent / "results"
Function = Callable[[], object]

MB = 2**20
THREADS = 2
MM_SIZES = (2048, 4096)
COPY_BYTES = 256 * 2**20
# glibc gives large blocks back to the system as soon as they are freed, and the first touch of
# fresh blocks may take longer than a formula that goes over them once. These settings keep them.
KEEPING = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40)}


def in_float64(formula: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return a formula that converts first, as it has to where float32 misses the contract."""
    return lambda x: formula(x.double())


@dataclass(frozen=True)
class Timing:
    """Quartiles of the repeats, in seconds."""

    median: float
    quartile_1: float
    quartile_3: float
    repeats: int

    @classmethod
    def of(cls, seconds: list[float]) -> Timing:
        first, median, third = np.percentile(seconds, [25, 50, 75])
        return cls(float(median), float(first), float(third), len(seconds))


def time_once(function: Function) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def interleave(contestants: Mapping[str, Function], repeats: int) -> dict[str, Timing]:
    """Time all contestants in turn, ``repeats`` rounds after one round of warm-up.

    Every other round goes backwards, so that a contestant does not always follow the same one.
    """
    if repeats < 1:
        raise ValueError(f"repeats: wanted at least 1, got {repeats}")
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for function in contestants.values():
        function()
    for turn in range(repeats):
        names = list(contestants) if turn % 2 == 0 else list(contestants)[::-1]
        for name in names:
            seconds[name].append(time_once(contestants[name]))
    return {name: Timing.of(values) for name, values in seconds.items()}


def rate_contestants() -> dict[str, Function]:
    """Return functions that measure the machine: float32 matrix products, and a copy."""
    contestants: dict[str, Function] = {}
    for size in MM_SIZES:
        a, b, out = (torch.ones(size, size) for _ in range(3))
        contestants[f"mm {size}"] = lambda a=a, b=b, out=out: torch.mm(a, b, out=out)
    source = torch.ones(COPY_BYTES // 4)
    target = torch.empty_like(source)
    contestants["copy"] = lambda: target.copy_(source)
    return contestants


@dataclass(frozen=True)
class Rates:
    """The machine's rates during a run: float32 matrix products and copies."""

    flops_per_second: float
    copied_bytes_per_second: float

    @classmethod
    def of(cls, timings: Mapping[str, Timing]) -> Rates:
        products = [2 * size**3 / timings[f"mm {size}"].median for size in MM_SIZES]
        return cls(max(products), 2 * COPY_BYTES / timings["copy"].median)


def _output(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def _cpu_model() -> str:
    """Return the kernel's name for the CPU, and the family and model if a hypervisor hides it."""
    fields = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    name = fields.get("model name", "unknown")
    return f"{name} (family {fields.get('cpu family', '?')} model {fields.get('model', '?')})"


def append_row(path: Path | None, row: Mapping[str, Any]) -> None:
    """Print a row, and add it to a file of results, if there is one."""
    rounded = {k: f"{v:.3g}" if isinstance(v, float) else v for k, v in row.items()}
    print(rounded, flush=True)
    if path is not None:
        _add(path, [rounded])


def _add(path: Path, rows: list[dict[str, Any]]) -> None:
    """Add rows to a file of results, which must have their columns."""
    columns, new = list(rows[0]), not path.exists()
    if not new:
        with path.open(newline="") as file:
            found = next(csv.reader(file), [])
        if found != columns:
            raise ValueError(f"{path}: wanted the columns {columns}, found {found}")
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=columns, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(rows)


def machine() -> dict[str, str | int]:
    """Return the properties that times depend on, and ratios much less."""
    from simcore import build_info

    changed = " + changes" if _output("git", "status", "--porcelain", "csrc", "simcore") else ""
    return {
        "cpu": _cpu_model(),
        "isa": str(build_info()["cpu_isa"]),
        "cores": os.cpu_count() or 0,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "commit": (_output("git", "rev-parse", "--short=12", "HEAD") or "unknown") + changed,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


@dataclass(frozen=True)
class Row:
    """One contestant of one job. Ratios first: they carry over to other machines."""

    job: str
    contestant: str
    over_floor: float | None  # time / floor
    times_ours: float | None  # time / our time in the same run: ours is 1
    peak_mb: float  # beyond the inputs, 2^20 bytes
    max_error: float  # against float64, over a sample of layers
    median_s: float | None
    quartile_1_s: float | None
    quartile_3_s: float | None
    repeats: int
    floor_s: float | None
    floor_gflop: float
    mm_gflops: float | None
    copy_gbs: float | None
    inputs_mb: float


def append(rows: list[Row], suite: str) -> Path:
    """Add rows, each with the machine's description, to ``bench/results/<suite>.csv``."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{suite}.csv"
    described = [{**asdict(row), **machine()} for row in rows]
    rounded = [
        {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()} for row in described
    ]
    _add(path, rounded)
    return path


def table(rows: list[Row]) -> str:
    """Return the columns that a reader looks at, aligned."""
    columns = ("contestant", "over_floor", "times_ours", "peak_mb", "max_error", "median_s")
    cells = [columns] + [
        tuple("" if (v := getattr(row, c)) is None else f"{v:.3g}" if c != "contestant" else v
              for c in columns)
        for row in rows
    ]  # fmt: skip
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) for line in cells]
    return f"{rows[0].job}\n" + "\n".join(line.rstrip() for line in lines)


def parse_last_line(output: str) -> dict[str, float]:
    """Return the JSON object on a subprocess's last line; peers may print lines before."""
    return json.loads(output.strip().splitlines()[-1])


def drifting_layers(count: int, n: int, p: int) -> Tensor:
    """``[count, n, p]`` float32, every layer the one before plus half as much noise."""
    x = torch.randn(count, n, p, generator=torch.Generator().manual_seed(0))
    for i in range(1, count):
        x[i] = x[i - 1] + 0.5 * x[i]
    return x


@dataclass(frozen=True)
class Contestant:
    """A function of a job's input; suites add what the error of its result depends on."""

    run: Callable[[Tensor], Any]


class Job(ABC):
    """The task that contestants compete on; suites derive frozen dataclasses from `Job`.

    ``contestants`` is a function of the suite's module that returns objects with a method ``run``
    by name: "ours", and formulas; the names of compiled formulas begin with "compiled".
    ``timed=False`` measures memory and error only.
    """

    contestants: Callable[[], Mapping[str, Any]]
    timed: bool

    @abstractmethod
    def data(self) -> Tensor:
        """Return the input, the same on every call."""

    @abstractmethod
    def tiny(self) -> Job:
        """Return this job on an input that costs nothing."""

    @abstractmethod
    def scaled(self, factor: float) -> Job:
        """Return this job on a smaller input."""

    @abstractmethod
    def error(self, grid: np.ndarray, x: Tensor, contestant: Any) -> float:
        """Return the largest difference to float64, over a sample of layers."""

    @abstractmethod
    def floor_flops(self) -> float:
        """Return the fewest floating-point operations that give the result."""

    def floor_bytes(self) -> float:
        """Return the fewest bytes read and written, for jobs that memory may bound."""
        return 0.0


@dataclass(frozen=True)
class LayersJob(Job):
    """A job on `drifting_layers`."""

    layers: int
    n: int
    p: int

    def data(self) -> Tensor:
        return drifting_layers(self.layers, self.n, self.p)

    def tiny(self) -> Self:
        return replace(self, layers=2, n=64, p=8)

    def scaled(self, factor: float) -> Self:
        return replace(self, n=int(self.n * factor), p=int(self.p * factor))


def measure(job: Job, name: str, threads: int) -> dict[str, float]:
    """Return one contestant's peak memory beyond the inputs and error, in this very process."""
    torch.set_num_threads(threads)
    contestant = job.contestants()[name]
    # A first call starts libraries and threads before the meter runs. A compiler's memory is not
    # the formula's either; compiled formulas are warmed up with the shapes that are measured.
    contestant.run((job if name.startswith("compiled") else job.tiny()).data())
    x = job.data()
    found: list[object] = []
    peak = peak_during(lambda: found.append(contestant.run(x)))
    grid = torch.as_tensor(found[0]).double().numpy()
    return {"peak_bytes": peak, "max_error": job.error(grid, x, contestant)}


def _expression(suite: str, job: Job) -> str:
    """Return Python code that makes this job where the suite's module is imported."""
    values = {field.name: getattr(job, field.name) for field in fields(job)}  # type: ignore[arg-type]
    arguments = [
        f"{key}={suite}.{value.__name__}" if callable(value) else f"{key}={value!r}"
        for key, value in values.items()
    ]
    return f"{suite}.{type(job).__name__}({', '.join(arguments)})"


def measure_apart(suite: str, job: Job, name: str, threads: int) -> dict[str, float]:
    """Call `measure` in a process of its own, where nothing ran before."""
    code = (
        f"import json; from bench import harness, {suite};"
        f"print(json.dumps(harness.measure({_expression(suite, job)}, {name!r}, {threads})))"
    )
    return parse_last_line(in_subprocess(code, timeout=3600))


def run(suite: str, label: str, job: Job, repeats: int, threads: int = THREADS) -> list[Row]:
    """Time all contestants of a job in turn, and measure memory and error apart."""
    torch.set_num_threads(threads)
    contestants = job.contestants()
    apart = {name: measure_apart(suite, job, name, threads) for name in contestants}
    x = job.data()
    timings: dict[str, Timing] = {}
    rates = floor = None
    if job.timed:
        turns = {name: functools.partial(c.run, x) for name, c in contestants.items()}
        timings = interleave({**rate_contestants(), **turns}, repeats)
        rates = Rates.of(timings)
        floor = max(
            job.floor_flops() / rates.flops_per_second,
            job.floor_bytes() / rates.copied_bytes_per_second,
        )
    rows = []
    for name in contestants:
        timing = timings.get(name)
        rows.append(
            Row(
                job=label,
                contestant=name,
                over_floor=timing and timing.median / floor,
                times_ours=timing and timing.median / timings["ours"].median,
                peak_mb=apart[name]["peak_bytes"] / MB,
                max_error=apart[name]["max_error"],
                median_s=timing and timing.median,
                quartile_1_s=timing and timing.quartile_1,
                quartile_3_s=timing and timing.quartile_3,
                repeats=timing.repeats if timing else 0,
                floor_s=floor,
                floor_gflop=job.floor_flops() / 1e9,
                mm_gflops=rates and rates.flops_per_second / 1e9,
                copy_gbs=rates and rates.copied_bytes_per_second / 1e9,
                inputs_mb=x.nbytes / MB,
            )
        )
    return rows


def main(
    suites: Mapping[str, Mapping[str, Job]], description: str, arguments: list[str] | None = None
) -> None:
    """Run the command of one or more suites, ``{module name: jobs}``."""
    labels = [label for jobs in suites.values() for label in jobs]
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument(
        "--job", action="extend", nargs="+", choices=labels, help="one or more; default all"
    )
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[THREADS], help="each job with each of these"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="shrink the input, for a trial")
    parser.add_argument("--dry-run", action="store_true", help="print, but write no rows")
    parser.add_argument("--list", action="store_true", help="name the jobs and stop")
    parser.add_argument(
        "--keep-memory", action="store_true", help="no fresh memory: rows of jobs named '... kept'"
    )
    options = parser.parse_args(arguments)
    if options.keep_memory and not KEEPING.items() <= os.environ.items():
        # glibc reads these settings when a process starts.
        os.execve(sys.executable, sys.orig_argv, os.environ | KEEPING)
    for suite, jobs in suites.items():
        for label, job in jobs.items():
            if options.list:
                print(f"{label:12} {job}")
            elif label in (options.job or labels):
                name = f"{label} kept" if options.keep_memory else label
                for threads in options.threads:
                    rows = run(suite, name, job.scaled(options.scale), options.repeats, threads)
                    print(table(rows), flush=True)
                    if not options.dry_run and options.scale == 1:
                        print(append(rows, suite).relative_to(ROOT))
