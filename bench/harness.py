"""One harness for grids at scale: fair timing, peak memory, the floor, and rows of results.

All contestants of a job take turns, round after round, so that a noisy minute of the machine hits
them alike; the matrix-product and copy rates that define the floor take their turn too.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from bench.peak import ROOT

RESULTS = Path(__file__).parent / "results"
Function = Callable[[], object]

MM_SIZES = (2048, 4096)
COPY_BYTES = 256 * 2**20


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

    Every other round goes backwards: whoever runs just after a heavy one is not always the same.
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
    """What measures the machine: float32 matrix products of several sizes, and a copy."""
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
    """The machine during a run: float32 matrix products and copies."""

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
    """The name the kernel gives; the family and model where a hypervisor hides the name."""
    fields = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    name = fields.get("model name", "unknown")
    return f"{name} (family {fields.get('cpu family', '?')} model {fields.get('model', '?')})"


def machine() -> dict[str, str | int]:
    """What a time depends on; a ratio much less so."""
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
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rounded[0]), lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(rounded)
    return path


def table(rows: list[Row]) -> str:
    """The columns that a reader looks at, aligned."""
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
    """The JSON object on the last line of a subprocess: peers may print before it."""
    return json.loads(output.strip().splitlines()[-1])
