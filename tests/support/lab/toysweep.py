"""A sweep of `toysteps`: its plan, a run in this process, and a driver in a process of its own.

``python -m support.lab.toysweep ROOT JSON`` is such a driver.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import typer

from simlab.commands.options import explain_interrupt
from simlab.errors import UserError
from simlab.sweeps import status
from simlab.sweeps.cluster import RayExecutor
from simlab.sweeps.driver import Driver
from simlab.sweeps.job import Died
from simlab.sweeps.outputs import SweepFolder, driving
from simlab.sweeps.plan import Plan
from simlab.sweeps.pool import Pool
from simlab.sweeps.rows import as_results
from simlab.sweeps.sweep import write_plan

STEPS = "support.lab.toysteps"


def toy_plan(root: Path, seeds: int = 4, **hints) -> Plan:
    """Per seed a checkpoint, representations, a grid and its blocks; a grid of all seeds."""
    hints = {"runs": str(root / "runs.txt"), **hints}
    plan, extracted = Plan(), []

    def add(kind: str, name: str, needs=(), **params) -> int:
        return plan.add(kind, {"name": name, **params}, needs, hints, name)

    for seed in range(seeds):
        made = add("finetune", f"ft{seed}", seed=seed)
        extracted.append(add("extract", f"rows{seed}", [made]))
        of_seed = add("grid", f"grid{seed}", extracted[-1:])
        add("blocks", f"blocks{seed}", [of_seed])
    add("grid", "joint", extracted)
    return plan


def run_toy(
    root: Path, plan: Plan, workers: int = 1, keep="all", start=None, locked: bool = True, **how
):
    """Run a plan with worker processes, or the executor of `start`; return what was done.

    Without `locked`, it is as where locks hold for each machine alone.
    """
    root.mkdir(parents=True, exist_ok=True)
    folder = SweepFolder(root, durable=False)
    with driving(folder) if locked else nullcontext():
        write_plan(folder, plan)
        with start(folder) if start else Pool(workers, folder.log, threads=1) as executor:
            return Driver(folder, plan, executor, keep=keep, steps=STEPS, **how).run()


def run_noting(root: Path, plan: Plan, make):
    """Run a plan with the executor of `make`; return what was done, and how processes died."""
    deaths = []

    def note(future) -> None:
        if isinstance(future.exception(), Died):
            deaths.append(future.exception())

    def start(folder):
        executor = make(folder.root)
        submit = executor.submit

        def noted(fn, order):
            future = submit(fn, order)
            future.add_done_callback(note)
            return future

        executor.submit = noted
        return executor

    return run_toy(root, plan, start=start), deaths


def driver_command(root: Path, **options) -> list[str]:
    """Return the command of a driver; `options` are those of `toy_plan` and `run_toy`."""
    return [sys.executable, "-m", "support.lab.toysweep", str(root), json.dumps(options)]


def start_driver(root: Path, before=(), stderr=None, **options) -> subprocess.Popen:
    """Start a driver of a toy sweep.

    `before` is a command that starts the driver, such as one that gives it a machine of its own.
    """
    return subprocess.Popen(
        [*before, *driver_command(root, **options)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,
        stderr=stderr,
        preexec_fn=_hear_signals,
    )


def _hear_signals() -> None:
    """Undo what `nohup`, or a shell for its background jobs, has set: ignored signals stay so."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def runs(root: Path, word: str) -> Counter:
    """How often each job began, or ended."""
    lines = [line.split() for line in (root / "runs.txt").read_text().splitlines()]
    return Counter(name for found, name, _ in lines if found == word)


def rows(root: Path, plan: Plan):
    """All rows in the order of the plan."""
    keys = [job.key for job in plan.jobs if job.is_rows]
    return as_results(SweepFolder(root).data.rows(keys))


def contents(root: Path):
    """The files of all objects, without the records that hold times."""
    files = (file for file in (root / "objects").rglob("*.npy"))
    return {str(file.relative_to(root)): file.read_bytes() for file in files}


def same_as(whole, root: Path, plan: Plan) -> bool:
    """Whether a folder has the rows and objects of a run without interruption."""
    table, objects = whole
    return rows(root, plan).equals(table) and contents(root) == objects


def main(root: str, options: str) -> int:
    """Run the driver, and return the exit code that the command would have."""
    status.WRITE_SECONDS = 0.2  # tests wait for it
    given = json.loads(options)
    names = ("workers", "keep", "max_disk", "locked")
    how = {name: given.pop(name) for name in names if name in given}
    if address := given.pop("address", None):
        how["start"] = lambda folder: RayExecutor(folder.root, address=address, threads=1)
    try:
        with explain_interrupt(Path(root)):
            outcome = run_toy(Path(root), toy_plan(Path(root), **given), **how)
    except typer.Exit as ended:
        return ended.exit_code
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 1 if outcome.failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
