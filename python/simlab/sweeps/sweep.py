"""A sweep from Python: a study in one file, run and continued by one call."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.bounds import Count, FromZero, bounded
from simlab.errors import UserError, argument
from simlab.store.console import note
from simlab.store.files import hash_json, read_json, write_json
from simlab.store.planned import PLAN
from simlab.sweeps import claims
from simlab.sweeps.contents import PRINTS
from simlab.sweeps.driver import Driver
from simlab.sweeps.drivers import driving, study_of
from simlab.sweeps.engine import LOCAL, Engine, EngineChoice
from simlab.sweeps.estimates import Estimate, estimate
from simlab.sweeps.execute import has_failed
from simlab.sweeps.fingerprints import Fingerprints
from simlab.sweeps.folder import SweepFolder
from simlab.sweeps.missing import fetch_missing
from simlab.sweeps.names import link_objects
from simlab.sweeps.plan import Plan
from simlab.sweeps.planner import make_plan
from simlab.sweeps.progress import WatchedEngine
from simlab.sweeps.records import FigureRecord, read_record
from simlab.sweeps.spec import Spec, make_spec, read_spec
from simlab.sweeps.status import Status, read_status
from simlab.sweeps.survey import survey, write_plan
from simlab.sweeps.watch import Watch

if TYPE_CHECKING:
    import pandas as pd

SWEEP, DRAWN = "sweep.json", "figures.json"
STATUS = "status.json"  # `simlab.report` reads it
STATUS_SECONDS = 30.0  # after which it is written anew while a sweep runs
_MOST_NAMES = 3  # of files in a message
FIGURES = 2  # raised when figures of the same rows look different


@dataclass(frozen=True)
class Report:
    """The outcome of a run.

    Attributes
    ----------
    jobs
        Number of all jobs of the sweep.
    done
        Number of jobs that this run did, by kind.
    failed
        Title and error of each job that failed, in this run or before.
    waiting
        Number of jobs that wait for one that failed.
    figures
        The files drawn.
    """

    jobs: int
    done: Mapping[str, int]
    failed: tuple[tuple[str, str], ...]
    waiting: int
    figures: tuple[Path, ...]


class Sweep:
    """A study: models, tasks, fine-tuning, grids and experiments, from one file.

    Parameters
    ----------
    content
        What a sweep file says (`docs/guides/sweeps.md`), as dicts and lists; or a `Spec`.

    Raises
    ------
    UserError
        A key or value is wrong. The message names the key, the wanted and the found.

    Examples
    --------
    >>> from simlab import Sweep
    >>> tasks = [{"name": "rt", "train_size": 64, "heldout_size": 32}]
    >>> sweep = Sweep({"models": ["minilm"], "tasks": tasks, "finetune": {"max_steps": 2}})
    >>> sweep.plan().counts()
    {'finetune': 1, 'extract': 2, 'scores': 1, 'grid': 3}
    >>> report = sweep.run("runs/sweep", threads=1)
    >>> report.failed
    ()
    >>> sorted(sweep.results("runs/sweep")["comparison"].dropna().unique())
    ['FT-FT', 'FT-ORIG', 'ORIG-ORIG']
    """

    def __init__(self, content: Mapping[str, Any] | Spec) -> None:
        self.spec = content if isinstance(content, Spec) else make_spec(content)

    @classmethod
    def from_file(cls, path: str | Path) -> Sweep:
        """Read a sweep file.

        Raises
        ------
        UserError
            There is no such file, it is no TOML, or a key or value is wrong.
        """
        return cls(read_spec(path))

    @classmethod
    def open(cls, out: str | Path) -> Sweep:
        """Return the sweep that ran last in a folder.

        Raises
        ------
        UserError
            No sweep ran there.
        """
        path = Path(out) / SWEEP
        if not path.is_file():
            raise UserError(f"{out}: wanted the folder of a sweep, found no {SWEEP} there")
        return cls(make_spec(read_json(path), str(path)))

    def plan(self, out: str | Path | None = None) -> Plan:
        """Return all jobs; with a folder `out`, hashes of local files are kept there.

        Raises
        ------
        UserError
            A local model or file does not exist, an option does not suit another, or `out` is no
            folder for a sweep.
        """
        if out is not None:
            require_place(SweepFolder(Path(out)))
        while True:
            prints = Fingerprints(None if out is None else Path(out) / PRINTS)
            plan = make_plan(self.spec, prints)
            if out is None or not Path(out).is_dir() or prints.save():
                return plan

    def estimate(
        self, out: str | Path | None = None, workers: int = 1
    ) -> tuple[Plan, list[bool], Estimate]:
        """Return the plan, which of its jobs are done in folder `out`, and what the others take."""
        plan = self.plan(out)
        if out is None or not Path(out).is_dir():
            done, needed = [False] * len(plan), [True] * len(plan)
            return plan, done, estimate(plan, needed, self.spec.keep, (), {}, workers)
        folder = SweepFolder(Path(out))
        work = survey(folder, plan, self.spec.keep)
        # An object that is neither there nor needed was deleted when nothing needed it any more.
        done = [there or not wanted for there, wanted in zip(work.done, work.needed, strict=True)]
        sizes = folder.mean_bytes()
        taken = estimate(plan, work.needed, self.spec.keep, folder.finished(), sizes, workers)
        return plan, done, taken

    @bounded
    def run(
        self,
        out: str | Path,
        *,
        workers: FromZero = 0,
        threads: Count | None = None,
        engine: str | Engine = LOCAL,
        address: str | None = None,
        resources: Sequence[str] = (),
        slurm: Sequence[str] = (),
        retry_failed: bool = False,
        figures: bool = True,
        durable: bool = True,
        stale: float = claims.STALE_SECONDS,
    ) -> Report:
        """Run the sweep in folder `out`, or continue it, and draw the figures.

        Parameters
        ----------
        out
            Folder of the sweep; an earlier run there is continued.
        workers
            Processes at once; 0 is one for each GPU, else one; with ``ray`` as many as the nodes
            have room for; with ``slurm`` 1,000.
        threads
            Threads of each process; None is an equal share of the cores, and 1 with ``slurm``. On
            the CPU, equal bits need an equal number.
        engine
            Where jobs run: ``local``; ``ray``: on the nodes of a Ray cluster; ``slurm``: in job
            arrays of Slurm; in Python also an `Engine`.
        address
            With ``ray``: the cluster, HOST:PORT of its head or ``auto``; None is one that is
            started on this machine alone.
        resources
            With ``ray`` or ``slurm``: the resources of a job of a kind, such as
            ``finetune:gpus=0.5,memory=16GB``.
        slurm
            With ``slurm``: options of sbatch, such as ``partition=gpu`` or ``time=600`` (minutes).
        retry_failed
            Try jobs again that failed before.
        figures
            Draw the figures at the end; the command then writes the page.
        durable
            Write what is finished to the disk before it counts (fsync).
        stale
            Seconds after which a job is free again whose process cannot be asked.

        Returns
        -------
        Report
            What was done, what failed, and the figures.

        Raises
        ------
        UserError
            `out` is no folder or has files of something else, another sweep is at work there, the
            engine is unknown or not installed, or the disk is full.
        """
        if isinstance(engine, str):
            engine = EngineChoice(engine, workers, threads, address, tuple(resources), tuple(slurm))
            engine.check()
        if stale < 2 * claims.BEAT_SECONDS:
            raise UserError(
                f"stale: wanted at least {2 * claims.BEAT_SECONDS:g} seconds, because a process "
                f"touches its claims every {claims.BEAT_SECONDS:g}, found {stale:g}"
            )
        folder = SweepFolder(Path(out), durable)
        require_place(folder)
        plan = self._plan_to_run(folder)
        watch = Watch(stale)
        study = study_of(plan, self.spec.keep, self.spec.max_disk)
        with driving(folder, study, watch) as place:
            write_json(folder.root / SWEEP, self.spec.model_dump(exclude_unset=True))
            write_plan(folder, plan, self.spec.keep)
            self._note_status(folder, plan)
            chosen = WatchedEngine(self._engine(engine, folder, plan), plan, folder.finished())
            try:
                driver = Driver(
                    folder,
                    plan,
                    chosen,
                    keep=self.spec.keep,
                    max_disk=self.spec.max_disk,
                    retry_failed=retry_failed,
                    watch=watch,
                    check=place.check,
                )
                driver.tell = self._noting(folder, plan)
                outcome = chosen.run(driver)
            finally:
                chosen.close()
            self._note_status(folder, plan)
            link_objects(folder, plan)
            drawn = self._draw(plan, folder) if figures else []
        failed = tuple(outcome.failed)
        return Report(len(plan), dict(outcome.done), failed, outcome.waiting, tuple(drawn))

    def results(self, out: str | Path) -> pd.DataFrame:
        """Return all rows that are there, in the order of the plan (`simlab.read_results`)."""
        from simlab.sweeps.parts import as_results

        keys = [job.key for job in self.plan(out).jobs if job.is_rows]
        return as_results(SweepFolder(Path(out)).data.rows(keys))

    def status(self, out: str | Path) -> Status:
        """Return what is done, running, failed and waiting in folder `out`."""
        return read_status(out)

    def _note_status(self, folder: SweepFolder, plan: Plan) -> None:
        """Write the status as it is now, for the page that shows the results."""
        failed = [
            {"title": f"{record['kind']} {record['title']}", "error": record["error"]}
            for key, record in folder.failed().items()
            if plan.number(key) is not None and has_failed(record)
        ]
        status = read_status(folder.root).as_dict()
        write_json(folder.root / STATUS, {**status, "failed": failed})

    def _noting(self, folder: SweepFolder, plan: Plan) -> Callable[[int], None]:
        """Return a function to call for finished jobs, which writes the status now and then."""
        noted = time.monotonic()

        def note_status(_: int) -> None:
            nonlocal noted
            if time.monotonic() - noted > STATUS_SECONDS:
                self._note_status(folder, plan)
                noted = time.monotonic()

        return note_status

    def _plan_to_run(self, folder: SweepFolder) -> Plan:
        """Return the plan, whose models and data the caches have; make the folder."""
        while True:
            prints = Fingerprints(folder.root / PRINTS)
            plan = make_plan(self.spec, prints)  # before anything is written
            bounded = self.spec.max_disk is not None
            if fetch_missing(folder, plan, self.spec.keep, prints, bounded=bounded):
                prints.forget_contents()
                plan = make_plan(self.spec, prints)  # keys have the revisions that came
            folder.create()
            if prints.save():
                for line in plan.remarks():
                    note(line)
                return plan

    def _engine(self, engine: EngineChoice | Engine, folder: SweepFolder, plan: Plan) -> Engine:
        return engine.start(folder, plan.counts()) if isinstance(engine, EngineChoice) else engine

    def _draw(self, plan: Plan, folder: SweepFolder) -> list[Path]:
        """Draw the figures, unless figures of the same rows are there."""
        from simlab.figures.draw import plot
        from simlab.sweeps.parts import as_results

        entries = folder.data.made()
        keys = [job.key for job in plan.jobs if job.key in entries]
        choice = self.spec.figures
        drawn = {"rows": hash_json([keys, choice.model_dump()]), "version": FIGURES}
        record = folder.root / DRAWN
        earlier = read_record(record, FigureRecord)
        if earlier is not None:
            files = [folder.figures / name for name in earlier["files"]]
            same = all(earlier[name] == drawn[name] for name in ("rows", "version"))
            if same and all(file.is_file() for file in files):
                return files
        frame = as_results(folder.data.rows(keys))
        if not frame["layer_x"].notna().any():
            return []  # a figure shows layers
        files = plot(frame, folder.figures, choice.formats, metric=choice.metric)
        write_json(record, {**drawn, "files": [file.name for file in files]})
        return files


def require_place(folder: SweepFolder) -> None:
    """Check that a sweep may write to a folder: a new or empty one, or a sweep's own.

    Raises
    ------
    UserError
        It is a file, or has files of something else.
    """
    root = folder.root
    if root.exists() and not root.is_dir():
        raise UserError(
            f"{argument('out', root)}: wanted a folder, found a file; choose another "
            f"{argument('out')}"
        )
    names = sorted(file.name for file in root.glob("[!.]*"))
    # `SweepFolder.create` makes the claims first: a process may have been killed behind it.
    known = any((root / name).is_file() for name in (SWEEP, PLAN, PRINTS)) or folder.claims.is_dir()
    if names and not known:
        shown = ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")
        raise UserError(
            f"{argument('out', root)}: wanted a new or empty folder, or a sweep's; found "
            f"{shown}; choose another {argument('out')}"
        )
