"""Grids and couplings on a CUDA device: kernels, composed forms and plain torch side by side.

    python -m bench.gpu                       # writes bench/results/gpu-<device>.json
    python -m bench.gpu --job cka13 --out F   # one job, into folder F
    python -m bench.gpu --eager               # without the contestants that torch compiles
    python -m bench.gpu --forms kernel torch  # without the composed forms

A contestant of ours runs twice where an operator of it has a kernel: with the kernels, and with the
composed forms (``form`` of a row). Kernels run first and the composed forms, which may take long,
last. A row after each composed form decides: a kernel stays where it is at least
`choice.LEAST_GAIN` times as fast. The file is written anew after every row, so that a run that is
ended has what it found, and a second run of other jobs or forms adds its rows.

Data: ``X_l = X_(l-1) + 0.5 noise``, float32. The floor of a job is a time: its fewest flops over
the measured rate of float16 matrix products, times the number of such products (3 or 1) that
the precision needs for one product, or its bytes over the measured copy rate, whichever is longer.
Both rates are measured in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bench import formulas, gpu_jobs
from simcore import build_info, cka_grid
from simcore._kernels import choice

RESULTS = Path(__file__).parent / "results"
PRODUCTS = {"highest": 3, "medium": 1}
MM_SIZE, COPY_BYTES = 8192, 2**30
REPEATS = 15
SMALLEST = 2**26  # bytes that a grid of few layers may take
LONG_MS = 2000  # a longer call is measured once, after one of warm-up
ORDER = ("kernel", "torch", "composed")
SETTINGS = {"kernel": "on", "composed": "off", "torch": "auto"}  # of SIMCORE_KERNELS, by form

Function = Callable[[], object]


def milliseconds(function: Function, repeats: int = REPEATS, warm_up: int = 2) -> dict[str, float]:
    """Return the quartiles of device time after some calls of warm-up."""
    for _ in range(warm_up):
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


STAGES = (  # of the kernels of a call, by their names: the first that fits
    (re.compile(r"simcore::cuda::(\w+)"), r"\1"),
    (re.compile(r"gemm|cutlass|nvjet"), "matrix products"),
    (re.compile(""), "other"),
)


def stage_of(kernel: str) -> str:
    """Return the name of a kernel of ours, or what a kernel of torch is for."""
    found = ((pattern.search(kernel), stage) for pattern, stage in STAGES)
    return next(match.expand(stage) for match, stage in found if match)


def device_times(function: Function) -> dict[str, object]:
    """Return the time of the kernels in one call, in all and by kernel."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        function()
        torch.cuda.synchronize()
    stages: Counter[str] = Counter()
    for event in profile.key_averages():
        if event.self_device_time_total:  # the others are calls on the host
            stages[stage_of(event.key)] += event.self_device_time_total / 1e3
    return {"device_ms": sum(stages.values()), "stages_ms": dict(stages)}


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
    torch.manual_seed(0)
    steps = torch.randn(count, n, p, device="cuda")
    steps[1:] *= 0.5
    return steps.cumsum(0)


def floor_ms(x: Tensor, precision: str, measured: dict[str, float]) -> float:
    count, n, p = x.shape
    flops = n * n * p * count + n * n * count * (count + 1) / 2
    by_products = PRODUCTS[precision] * flops / measured["float16"]
    return 1e3 * max(by_products, x.nbytes / measured["copy"])


def contestants(x: Tensor, eager: bool) -> dict[str, tuple[Function, dict[str, object]]]:
    """Return by name the function to time and its options."""
    found: dict[str, tuple[Function, dict[str, object]]] = {}
    # A memory little above the packed rows' makes groups of Gram tiles small.
    small_groups = {"precision": "highest", "max_memory": max(int(1.3 * x.nbytes), SMALLEST)}
    for name, options in (
        ("highest", {"precision": "highest"}),
        ("highest, small groups", small_groups),
        ("medium", {"precision": "medium"}),
        ("highest unbiased", {"precision": "highest", "estimator": "unbiased"}),
        ("highest rbf", {"precision": "highest", "kernel": "rbf"}),
    ):
        found[f"ours {name}"] = (lambda options=options: cka_grid(x, **options), options)
    tiled = formulas.tiled if len(x) < 100 else formulas.tiled_small
    found["torch gram"] = (lambda: formulas.gram(x), {})
    found["torch gram unbiased"] = (lambda: formulas.gram_unbiased(x), {"estimator": "unbiased"})
    found["torch gram rbf"] = (lambda: formulas.gram_rbf(x), {"kernel": "rbf"})
    found["torch tiled"] = (lambda: tiled(x), {})
    found["torch float16 pairs"] = (lambda: formulas.gram_pairs(x), {})
    if not eager:
        for name, function in (("gram", formulas.gram), ("tiled", tiled)):
            compiled = torch.compile(function, dynamic=False)
            found[f"compiled {name}"] = (lambda compiled=compiled: compiled(x), {})
    return found


Row = dict[str, object]


def reason(error: Exception) -> str:
    """Return the first line of an error, with its type."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def forms_of(contestant: str, operators: Sequence[str]) -> tuple[str, ...]:
    """Return the forms in which a contestant runs; ours with a kernel runs in both of them."""
    if not contestant.startswith("ours"):
        return ("torch",)
    return ("kernel", "composed") if operators else ("composed",)


def in_order(
    contestants: Iterable[str], operators: Sequence[str], forms: Sequence[str] = ORDER
) -> list[tuple[str, str]]:
    """Return contestants with those of their forms: kernels first, composed forms last."""
    runs = [(name, form) for name in contestants for form in forms_of(name, operators)]
    return sorted((run for run in runs if run[1] in forms), key=lambda run: ORDER.index(run[1]))


@contextmanager
def taking(form: str) -> Iterator[None]:
    """Let operators take their kernels, unchecked, or their composed forms."""
    before = os.environ.get(choice.VARIABLE)
    os.environ[choice.VARIABLE] = SETTINGS[form]
    try:
        yield
    finally:
        del os.environ[choice.VARIABLE]
        if before is not None:
            os.environ[choice.VARIABLE] = before


def timed(function: Function) -> tuple[Row, object]:
    """Return times and peak memory of a function, and its result; a long one is not profiled."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    results: list[object] = []
    first = milliseconds(lambda: results.append(function()), repeats=1, warm_up=0)["ms"]
    peak = torch.cuda.max_memory_allocated() - before
    if first < LONG_MS:
        times: Row = {**milliseconds(function), **device_times(function)}
    else:
        times = {"ms": milliseconds(function, repeats=1, warm_up=0)["ms"]}
    return {"peak_bytes": peak, **times}, results[0]


def attempt(job: str, contestant: str, form: str, function: Function) -> tuple[Row, object]:
    """Return the row of a contestant, which has the reason where it fails, and its result."""
    row: Row = {"job": job, "contestant": contestant, "form": form}
    result = None
    try:
        with taking(form):
            times, result = timed(function)
        row |= times
    except Exception as error:  # whatever it is, the other contestants run
        row["failed"] = reason(error)
    torch.cuda.empty_cache()
    return row, result


@dataclass(frozen=True)
class Wanted:
    """Which contestants run, in which forms."""

    eager: bool = False
    forms: Sequence[str] = ORDER


def measure(job: str, count: int, measured: dict[str, float], wanted: Wanted) -> Iterator[Row]:
    """Yield a row per contestant; a contestant that fails gives its reason and stops no other."""
    x = drifting_layers(count, 1600, 768)
    reference = formulas.tiled(x.double()) if len(x) < 100 else formulas.tiled_small(x.double())
    found = contestants(x, wanted.eager)
    for name, form in in_order(found, ("gram_terms",), wanted.forms):
        function, options = found[name]
        row, grid = attempt(job, name, form, function)
        if not {"estimator", "kernel"} & options.keys() and isinstance(grid, Tensor):
            row["error"] = float((grid.double() - reference).abs().max())
        if "precision" in options and "ms" in row:
            row["floor_ms"] = floor_ms(x, str(options["precision"]), measured)
        yield row


def measure_job(job: gpu_jobs.Job, measured: dict[str, float], wanted: Wanted) -> Iterator[Row]:
    """Yield a row per contestant of the other jobs; only short ones run REPEATS times."""
    for name, form in in_order(job.contestants, job.operators, wanted.forms):
        if wanted.eager and name.startswith("compiled"):
            continue
        row, _ = attempt(job.name, name, form, job.contestants[name])
        row |= job.notes
        if job.floor_bytes:
            row["floor_ms"] = 1e3 * job.floor_bytes / measured["copy"]
        yield row


DEFINITIONS = ("unbiased", "rbf")  # last words of contestants; all others have one definition


def definition(contestant: object) -> str:
    """Return which of the definitions of CKA a contestant computes."""
    last = str(contestant).rpartition(" ")[2]
    return last if last in DEFINITIONS else ""


def decision(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield, after the composed form of a contestant with a kernel, whether the kernel stays.

    ``rows`` are all of the job so far, those of an earlier run too. ``torch_ms`` is the time of the
    fastest contestant in plain torch that has a result of the same definition, or None.
    """
    name, times = (
        rows[-1]["contestant"],
        {(r["contestant"], r.get("form")): r.get("ms") for r in rows},
    )
    if rows[-1]["form"] != "composed" or (name, "kernel") not in times:
        return
    plain = [
        row["ms"]
        for row in rows
        if row.get("form") == "torch"
        and "ms" in row
        and definition(row["contestant"]) == definition(name)
    ]
    kernel, composed = times[name, "kernel"], times[name, "composed"]
    gain = composed / kernel if kernel and composed else None
    yield {
        "job": rows[-1]["job"],
        "contestant": f"decision, {name}",
        "kernel_ms": kernel,
        "composed_ms": composed,
        "torch_ms": min(plain) if plain else None,
        "gain": gain,
        "kernel_stays": kernel is not None and (gain is None or gain >= choice.LEAST_GAIN),
    }


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

    def of(self, job: str) -> list[Row]:
        """Return the rows of `job` so far."""
        return [row for row in self.rows if row["job"] == job]

    def start(self, job: str, forms: Sequence[str] = ORDER) -> None:
        """Drop the rows of an earlier run of `job` in any of these forms, and what they decided."""
        again = (*forms, None)
        self.rows = [r for r in self.rows if r["job"] != job or r.get("form") not in again]

    def add(self, row: Row) -> None:
        """Add a row, print it, and write the file by renaming a complete one."""
        self.rows.append(row)
        print(json.dumps(row), flush=True)
        partial = self.path.with_suffix(".partial")
        partial.write_text(json.dumps({**self.about, "rows": self.rows}, indent=1) + "\n")
        partial.replace(self.path)


def run(
    jobs: Sequence[str], record: Record, measured: dict[str, float], wanted: Wanted = Wanted()
) -> bool:
    """Run `jobs`; return whether all could be set up and no contestant of ours failed."""
    good = True
    for job in jobs:
        record.start(job, wanted.forms)
        try:
            rows = (
                measure(job, CKA_JOBS[job], measured, wanted)
                if job in CKA_JOBS
                else measure_job(gpu_jobs.JOBS[job]("cuda"), measured, wanted)
            )
            for row in rows:
                record.add({**row, "job": job})
                for decided in decision(record.of(job)):
                    record.add(decided)
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
        "commit": os.environ.get("SIMCORE_COMMIT")
        or output_of("git", "rev-parse", "--short=12", "HEAD"),
        "build": build_info(),
        "rates": measured,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the wanted jobs, and write their rows to one file for this device."""
    parser = argparse.ArgumentParser(prog="bench.gpu")
    parser.add_argument("--job", action="extend", nargs="+", choices=ALL_JOBS, default=[])
    parser.add_argument("--all-but", action="extend", nargs="+", choices=ALL_JOBS, default=[])
    parser.add_argument("--forms", nargs="+", choices=ORDER, default=ORDER)
    parser.add_argument("--eager", action="store_true", help="leave out what torch compiles")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available() or not build_info()["cuda"]:
        print("bench.gpu: needs a CUDA device and a simcore with CUDA kernels", file=sys.stderr)
        return 2
    warnings.simplefilter("ignore")  # torch.compile warns of its own choices
    measured = rates()
    record = Record(options.out, about_device(measured))
    jobs = [job for job in options.job or ALL_JOBS if job not in options.all_but]
    good = run(jobs, record, measured, Wanted(options.eager, options.forms))
    print(f"wrote {record.path}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
