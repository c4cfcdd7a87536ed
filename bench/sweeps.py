"""The scale of sweeps, by simulation: ``python -m bench.sweeps``.

The plan is that of 12 tasks x 300 models x 13 layers with all measures: 3,600 fine-tunings, 7,200
extractions, truncation and skipping of every fine-tuned model, and nine grids within each. Measured
are the planning (time, peak memory), writing and reading the status of a folder where half of it is
done, gathering that half's rows, the overhead of a job that does nothing, which share of a grid's
time goes into bases, and how much representations stored as float16 and weights of half precision
change measures. Rows go to ``bench/results/sweeps.csv``. But for the last three, steps here make
files of the right number and shape, without models.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path

from bench.harness import machine
from bench.peak import ROOT, peak_during
from simlab.results.results import GRID, ResultRow
from simlab.sweeps.driver import Driver
from simlab.sweeps.job import DONE, Answer, Work
from simlab.sweeps.outputs import SweepFolder
from simlab.sweeps.plan import FOLDERS, Job, Plan
from simlab.sweeps.pool import Pool
from simlab.sweeps.rows import write_part
from simlab.sweeps.spec import make_spec
from simlab.sweeps.status import Progress, read_status
from simlab.sweeps.sweep import make_plan

RESULTS = ROOT / "bench" / "results" / "sweeps.csv"
TASKS = (
    *("cola", "mnli", "mrpc", "qnli", "qqp", "rte"),
    *("sst2", "stsb", "boolq", "yelp", "hellaswag", "cosmosqa"),
)
MEASURES = (
    *("cka", "cca", "svcca", "pwcca", "linreg"),
    *("procrustes", "rsa", "neuronsim", "mixedsim"),
)
LAYERS = 13
ROWS = {"grid": LAYERS**2, "truncate": LAYERS, "skip": 91}  # of a job
EMPTY_JOBS = 1_000


def content(models: int, tasks: int = len(TASKS)) -> dict[str, object]:
    """Return the file of the simulated study."""
    return {
        "models": [f"google/multiberts-seed_{{0..{models - 1}}}"],
        "tasks": list(TASKS[:tasks]),
        "finetune": {"seeds": 1},
        "truncate": True,
        "skip": True,
        "grids": {"measure": list(MEASURES), "between": "within", "stages": "ft"},
    }


def measure_planning(models: int, restarts: bool) -> dict[str, float]:
    """Return jobs, seconds and peak bytes of planning, in this very process."""
    given = content(models)
    if restarts:  # as many jobs again: grids before fine-tuning, and with it
        given["grids"] = {"measure": list(MEASURES), "between": ["within", "tuning"]}
    found: list[Plan] = []
    started, before = time.perf_counter(), time.process_time()
    peak = peak_during(lambda: found.append(make_plan(make_spec(given))))
    seconds, work = time.perf_counter() - started, time.process_time() - before
    return {"jobs": len(found[0]), "seconds": seconds, "work": work, "bytes": peak}


def _planning_apart(models: int, restarts: bool) -> dict[str, float]:
    code = (
        "import json; from bench.sweeps import measure_planning; "
        f"print(json.dumps(measure_planning({models}, {restarts})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return json.loads(done.stdout)


def planning(models: int) -> Iterator[tuple[str, float, str]]:
    """Yield time and memory of plans; median of five."""
    for restarts in (False, True):
        runs = sorted((_planning_apart(models, restarts) for _ in range(5)), key=_seconds)
        jobs = f"{runs[2]['jobs']:,.0f} jobs"
        yield f"planning time, {jobs}", runs[2]["seconds"], "s"
        yield f"processor time of planning, {jobs}", runs[2]["work"], "s"
        yield f"planning memory, {jobs}", runs[2]["bytes"] / 1e6, "MB"


def _seconds(run: dict[str, float]) -> float:
    return run["seconds"]


def half_done(root: Path, models: int) -> Iterator[tuple[str, float, str]]:
    """Simulate a folder where every second model is done; yield times of gathering and status."""
    plan = make_plan(make_spec(content(models)))
    folder = SweepFolder(root, durable=False)
    folder.create()
    parts = []
    for number, job in enumerate(plan.jobs):
        if number % 30 < 15:
            parts += _pretend(folder, job)
            folder.log_finished(job.kind, job.key, 1.0)
    started = time.perf_counter()
    folder.data.gather(parts)
    seconds = time.perf_counter() - started
    sizes = [file.stat().st_size for file in folder.data.files()]
    jobs = f"{len(parts):,} jobs"
    yield f"gathering rows, {jobs}, each", 1000 * seconds / len(parts), "ms"
    yield f"files of results, {jobs}", len(sizes), "files"
    yield "smallest full file of results", min(sizes[:-1], default=0) / 1e6, "MB"
    yield f"all results, {jobs}", sum(sizes) / 1e6, "MB"
    progress = Progress(folder, plan)
    progress.to_do.update(job.kind for job in plan.jobs[: len(plan) // 2])
    times = []
    for _ in range(5):
        started = time.process_time()
        progress.write()
        read_status(root)
        times.append(time.process_time() - started)
    yield f"processor time of the status, {len(plan):,} jobs", sorted(times)[2], "s"


def _pretend(folder: SweepFolder, job: Job) -> list[Path]:
    """Make the files of a job that is done, and return its part if it has one."""
    place = folder.place(job.kind, job.key)
    if job.kind in FOLDERS:
        place.mkdir(parents=True)
        record = {"key": job.key, "bytes": 440_000_000, "files": {}}
        (place / "object.json").write_text(json.dumps(record))
        return []
    write_part(place, job.key, rows(job), durable=False)
    return [place]


def rows(job: Job) -> Iterator[ResultRow]:
    """Yield as many rows as a job of this kind has, with values that do not compress."""
    label = job.title.split()[0]
    for row in range(ROWS.get(job.kind, 1)):
        yield ResultRow(
            experiment=GRID,
            comparison="FT-FT",
            measure=job.params.get("measure", "accuracy"),
            kind="cls",
            label_x=label,
            label_y=label,
            seed_x=1,
            seed_y=1,
            layer_x=row // LAYERS,
            layer_y=row % LAYERS,
            value=hash((job.key, row)) % 2**52 / 2**52,
            n=1000,
            task=job.params.get("task", "") if isinstance(job.params.get("task"), str) else "",
        )


def nothing(work: Work) -> list[ResultRow]:
    """Return one row at once: a job that takes no time."""
    number = work.params["number"]
    return [
        ResultRow(
            experiment="e", measure="m", label_x="x", layer_x=number, value=0.5, n=1, task="t"
        )
    ]


STEPS: dict[str, Callable[[Work], list[ResultRow]]] = {"scores": nothing}


def overhead(root: Path, jobs: int, durable: bool) -> tuple[float, float]:
    """Return the seconds of `jobs` jobs after the first, and the processor's time of all."""
    plan = Plan()
    for number in range(jobs):
        plan.add("scores", {"number": number}, title=str(number))
    folder = SweepFolder(root, durable)
    pool = Pool(1, folder.log, threads=1)
    marks: list[float] = []
    before = _processor_seconds()
    driver = Driver(folder, plan, pool, keep="all", steps="bench.sweeps")
    finished = driver.progress.finished

    def note(number: int, seconds: float) -> None:
        marks.append(time.perf_counter())
        finished(number, seconds)

    driver.progress.finished = note  # type: ignore[method-assign]
    try:
        driver.run()
        ended = time.perf_counter()  # all rows are gathered
    finally:
        pool.shutdown()
    return ended - marks[0], _processor_seconds() - before


def _processor_seconds() -> float:
    """Return the processor's time of this process and of its children that have ended."""
    return sum(os.times()[:4])


class _Instant(Executor):
    """An executor that answers at once: what is left is the driver's own time."""

    def submit(self, fn: object, /, *args: object, **kwargs: object) -> Future[Answer]:
        future: Future[Answer] = Future()
        future.set_result(Answer(DONE))
        return future


def driver_alone(root: Path, models: int) -> Iterator[tuple[str, float, str]]:
    """Yield the processor time that the driver takes for a job of the simulated plan."""
    plan = make_plan(make_spec(content(models)))
    driver = Driver(SweepFolder(root, durable=False), plan, _Instant(), keep="all")
    for part in ("_gather", "_find_lost"):
        setattr(driver, part, lambda: None)  # there are no rows
    before = time.process_time()
    driver.run()
    work = 1000 * (time.process_time() - before) / len(plan)
    yield f"driver's processor time of a job, {len(plan):,} jobs", work, "ms"


def overheads(folder: Path) -> Iterator[tuple[str, float, str]]:
    """Yield the overhead of a job, not synced and synced; median of three runs."""
    for durable in (False, True):
        walls, works = [], []
        for _ in range(3):
            few, many = (_overhead_apart(folder, jobs, durable) for jobs in (2, EMPTY_JOBS))
            walls.append(1000 * many[0] / (EMPTY_JOBS - 1))
            works.append(1000 * (many[1] - few[1]) / (EMPTY_JOBS - 2))
        how = "with" if durable else "without"
        yield f"overhead of a job, {how} fsync", sorted(walls)[1], "ms"
        yield f"processor time of a job, {how} fsync", sorted(works)[1], "ms"


def _overhead_apart(folder: Path, jobs: int, durable: bool) -> tuple[float, float]:
    place = Path(tempfile.mkdtemp(dir=folder))
    try:
        return overhead(place, jobs, durable)
    finally:
        shutil.rmtree(place)


def float16(folder: Path) -> Iterator[tuple[str, float, str]]:
    """Yield how much representations stored as float16 change measures: MiniLM, 1,000 examples."""
    import numpy as np

    import simcore
    from simlab import extract, load_representations

    measures = {
        "cka biased": lambda x: simcore.cka_grid(x, estimator="biased"),
        "cka unbiased": lambda x: simcore.cka_grid(x, estimator="unbiased"),
        "svcca": lambda x: simcore.svcca_grid(x, truncation=0.99),
        "procrustes": simcore.procrustes_grid,
    }
    for kind in ("cls", "mean"):
        layers = []
        for dtype in ("float32", "float16"):
            step = extract("minilm", "rt", folder / f"{kind}-{dtype}", kind=kind, dtype=dtype)
            layers.append(load_representations(step.path).layers[1:])  # CLS of layer 0 is constant
        for name, measure in measures.items():
            change = np.abs(measure(layers[0]) - measure(layers[1])).max()
            yield f"float16: largest change of {name}, {kind} of MiniLM on rt", change, ""


def precisions(folder: Path) -> Iterator[tuple[str, float, str]]:
    """Yield how much weights of half precision change CKA: MiniLM, 500 sentences, all layers."""
    import numpy as np

    import simcore
    from simlab import extract, load_representations

    for kind in ("mean", "word-last"):
        layers = {}
        for weights in ("float32", "bfloat16", "float16"):
            out = folder / f"{kind}-of-{weights}"
            step = extract("minilm", "rt", out, kind=kind, weights=weights, limit=500)
            layers[weights] = load_representations(step.path).layers
        for estimator in ("biased", "unbiased"):
            whole = simcore.cka_grid(layers["float32"], estimator=estimator)
            for weights in ("bfloat16", "float16"):
                grid = simcore.cka_grid(layers[weights], estimator=estimator)
                change = np.abs(whole - grid).max()
                about = f"cka {estimator}, {kind} of MiniLM on rt"
                yield f"weights of {weights}: largest change of {about}", change, ""


def decomposing(folder: Path) -> Iterator[tuple[str, float, str]]:
    """Yield the share of a grid's processor time that goes into bases; median of three.

    Rows are those of MiniLM for 1,600 examples; other models are copies with 5 % of noise. A tile
    has five models on each side, a pair is two models.
    """
    import torch

    import simcore
    from simlab import TaskOptions, extract, load_representations

    torch.set_num_threads(1)
    options = TaskOptions(train_size=64, heldout_size=1_600)
    step = extract("minilm", "rt", folder / "decomposed", kind="mean", task_options=options)
    layers = [torch.from_numpy(layer.copy()) for layer in load_representations(step.path).layers]
    noise = torch.Generator().manual_seed(0)
    measures = {
        "svcca": lambda x, y: simcore.svcca_grid(x, y, truncation=0.99),
        "cca": simcore.cca_grid,
        "pwcca": simcore.pwcca_grid,
    }
    for side, what in ((5, "tile"), (1, "pair")):
        both = [
            [
                layer + 0.05 * layer.std() * torch.randn(layer.shape, generator=noise)
                for _ in range(side)
                for layer in layers
            ]
            for _ in "xy"
        ]
        for name, measure in measures.items():
            shares = []
            for _ in range(3):
                bases, first = _timed(lambda both=both: [simcore.bases(x) for x in both])
                _, rest = _timed(lambda measure=measure, bases=bases: measure(*bases))
                shares.append(100 * first / (first + rest))
            quantity = f"bases, share of the processor's time of a {what}, {name}"
            yield quantity, sorted(shares)[1], "%"


def _timed(call: Callable[[], object]) -> tuple[object, float]:
    started = time.process_time()
    return call(), time.process_time() - started


def main() -> None:
    """Measure everything and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=300)
    parser.add_argument("--dry-run", action="store_true", help="print, but write no rows")
    options = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for part in (
            float16(Path(folder)),
            precisions(Path(folder)),
            decomposing(Path(folder)),
            planning(options.models),
            driver_alone(Path(folder) / "driver", options.models),
            overheads(Path(folder)),
            half_done(Path(folder) / "half", options.models),
        ):
            for quantity, value, unit in part:
                print(f"{quantity}: {value:.4g} {unit}", flush=True)
                found.append({"quantity": quantity, "value": f"{value:.4g}", "unit": unit})
    if options.dry_run:
        return
    lines = [{**row, **machine()} for row in found]
    with RESULTS.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    print(RESULTS.relative_to(ROOT))


if __name__ == "__main__":
    main()
