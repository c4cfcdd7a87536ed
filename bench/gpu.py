"""Grids and couplings on a CUDA device: ours beside plain torch, errors, and the floor.

    python -m bench.gpu                       # writes bench/results/gpu-<device>.json
    python -m bench.gpu --job cka13 --out F   # one job, into folder F

The file is written anew after every row, and a second run of other jobs adds its rows.

Compiled and emulated, not yet run on a GPU: there are no results until one of these files exists.

Data: ``X_l = X_(l-1) + 0.5 noise``, float32. The floor of a job is a time: its fewest flops over
the measured rate of float16 matrix products, times the number of such products (3 or 1) that
the precision needs for one product, or its bytes over the measured copy rate, whichever is longer.
Both rates are measured in the same run.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bench import formulas, gpu_jobs
from simcore import build_info, cka_grid

RESULTS = Path(__file__).parent / "results"
PRODUCTS = {"highest": 3, "medium": 1}
MM_SIZE, COPY_BYTES = 8192, 2**30
REPEATS = 15
LONG_MS = 2000  # a longer run is measured once

Function = Callable[[], object]


def milliseconds(function: Function, repeats: int = REPEATS) -> dict[str, float]:
    """Return the quartiles of device time after two calls of warm-up."""
    for _ in range(2):
        function()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        function()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    first, median, third = np.percentile(times, [25, 50, 75])
    return {"ms": float(median), "ms_quartile_1": float(first), "ms_quartile_3": float(third)}


def rates() -> dict[str, float]:
    """Flops per second of matrix products, bytes per second (read and written) of a copy."""
    found = {}
    for name, dtype, mode in (
        ("float16", torch.float16, "highest"),
        ("tf32", torch.float32, "high"),
        ("float32", torch.float32, "highest"),
    ):
        torch.set_float32_matmul_precision(mode)
        a, b = (torch.randn(MM_SIZE, MM_SIZE, device="cuda", dtype=dtype) for _ in range(2))
        found[name] = 2e3 * MM_SIZE**3 / milliseconds(lambda a=a, b=b: a @ b)["ms"]
    torch.set_float32_matmul_precision("highest")
    source = torch.randn(COPY_BYTES // 4, device="cuda")
    target = torch.empty_like(source)
    found["copy"] = 2e3 * COPY_BYTES / milliseconds(lambda: target.copy_(source))["ms"]
    return found


def drifting_layers(count: int, n: int, p: int) -> Tensor:
    generator = torch.Generator("cuda").manual_seed(0)
    steps = torch.randn(count, n, p, device="cuda", generator=generator)
    steps[1:] *= 0.5
    return steps.cumsum(0)


def floor_ms(x: Tensor, precision: str, measured: dict[str, float]) -> float:
    count, n, p = x.shape
    flops = n * n * p * count + n * n * count * (count + 1) / 2
    by_products = PRODUCTS[precision] * flops / measured["float16"]
    return 1e3 * max(by_products, x.nbytes / measured["copy"])


def contestants(x: Tensor) -> dict[str, tuple[Function, dict[str, str]]]:
    """Return by name the function to time and its options."""
    found: dict[str, tuple[Function, dict[str, str]]] = {}
    for options in (
        {"precision": "highest"},
        {"precision": "medium"},
        {"precision": "highest", "estimator": "unbiased"},
        {"precision": "highest", "kernel": "rbf"},
    ):
        name = "ours " + " ".join(options.values())
        found[name] = (lambda options=options: cka_grid(x, **options), options)
    tiled = formulas.tiled if len(x) < 100 else formulas.tiled_small
    found["torch gram"] = (lambda: formulas.gram(x), {})
    found["torch tiled"] = (lambda: tiled(x), {})
    for name, function in (("gram", formulas.gram), ("tiled", tiled)):
        compiled = torch.compile(function, dynamic=False)
        found[f"compiled {name}"] = (lambda compiled=compiled: compiled(x), {})
    return found


Row = dict[str, object]


def reason(error: Exception) -> str:
    """Return the first line of an error, with its type."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def measure(job: str, count: int, measured: dict[str, float]) -> Iterator[Row]:
    """Yield a row per contestant; a contestant that fails gives its reason and stops no other."""
    x = drifting_layers(count, 1600, 768)
    reference = formulas.tiled(x.double()) if len(x) < 100 else formulas.tiled_small(x.double())
    for name, (function, options) in contestants(x).items():
        row: Row = {"job": job, "contestant": name}
        try:
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            grid = function()
            row["peak_bytes"] = torch.cuda.max_memory_allocated() - before
            if not {"estimator", "kernel"} & options.keys():
                row["error"] = float((grid.double() - reference).abs().max())
            row |= milliseconds(function)
        except Exception as error:  # whatever it is, the other contestants run
            row["failed"] = reason(error)
        if "precision" in options and "ms" in row:
            row["floor_ms"] = floor_ms(x, options["precision"], measured)
        yield row
        torch.cuda.empty_cache()


def measure_job(job: gpu_jobs.Job, measured: dict[str, float]) -> Iterator[Row]:
    """Yield a row per contestant of the other jobs; only short ones run REPEATS times."""
    for name, function in job.contestants.items():
        row: Row = {"job": job.name, "contestant": name, **job.notes}
        try:
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            once = milliseconds(function, repeats=1)["ms"]
            row["peak_bytes"] = torch.cuda.max_memory_allocated() - before
            row |= milliseconds(function) if once < LONG_MS else {"ms": once}
            if job.name == "inn":
                row["matrix_product_share"] = gpu_jobs.matrix_product_share(function)
        except Exception as error:  # whatever it is, the other contestants run
            row["failed"] = reason(error)
        if job.floor_bytes:
            row["floor_ms"] = 1e3 * job.floor_bytes / measured["copy"]
        yield row
        torch.cuda.empty_cache()


def output_of(*command: str) -> str:
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


CKA_JOBS = {"cka13": 13, "cka325": 325}  # numbers of layers
ALL_JOBS = (*CKA_JOBS, *gpu_jobs.JOBS)


class Record:
    """The file of this device: what is known about it, and the rows so far."""

    def __init__(self, folder: Path, about: dict[str, object]) -> None:
        name = re.sub(r"[^a-z0-9]+", "-", str(about["device"]).lower()).strip("-")
        self.path = folder / f"gpu-{name}.json"
        self.about = about
        before = json.loads(self.path.read_text())["rows"] if self.path.exists() else []
        self.rows: list[Row] = before

    def start(self, job: str) -> None:
        """Drop the rows of an earlier run of `job`."""
        self.rows = [row for row in self.rows if row["job"] != job]

    def add(self, row: Row) -> None:
        """Add a row, print it, and write the file by renaming a complete one."""
        self.rows.append(row)
        print(json.dumps(row), flush=True)
        partial = self.path.with_suffix(".partial")
        partial.write_text(json.dumps({**self.about, "rows": self.rows}, indent=1) + "\n")
        partial.replace(self.path)


def run(jobs: Sequence[str], record: Record, measured: dict[str, float]) -> bool:
    """Run `jobs`; return whether all could be set up and no contestant of ours failed."""
    good = True
    for job in jobs:
        record.start(job)
        try:
            rows = (
                measure(job, CKA_JOBS[job], measured)
                if job in CKA_JOBS
                else measure_job(gpu_jobs.JOBS[job]("cuda"), measured)
            )
            for row in rows:
                record.add({**row, "job": job})
                good &= "failed" not in row or not str(row["contestant"]).startswith("ours")
        except Exception as error:  # a job whose data do not fit stops no other
            record.add({"job": job, "contestant": "", "failed": reason(error)})
            good = False
    return good


def about_device(measured: dict[str, float]) -> dict[str, object]:
    """Return what the file says of the device, the build and the measured rates."""
    properties = torch.cuda.get_device_properties(0)
    return {
        "device": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "driver": output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "torch": torch.__version__,
        "commit": output_of("git", "rev-parse", "--short=12", "HEAD"),
        "build": build_info(),
        "rates": measured,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the wanted jobs, and write their rows to one file for this device."""
    parser = argparse.ArgumentParser(prog="bench.gpu")
    parser.add_argument("--job", action="extend", nargs="+", choices=ALL_JOBS, default=[])
    parser.add_argument("--all-but", action="extend", nargs="+", choices=ALL_JOBS, default=[])
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available() or not build_info()["cuda"]:
        print("bench.gpu: needs a CUDA device and a simcore with CUDA kernels", file=sys.stderr)
        return 2
    warnings.simplefilter("ignore")  # torch.compile warns of its own choices
    measured = rates()
    record = Record(options.out, about_device(measured))
    jobs = [job for job in options.job or ALL_JOBS if job not in options.all_but]
    good = run(jobs, record, measured)
    print(f"wrote {record.path}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
