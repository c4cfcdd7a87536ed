"""A sweep from Python: a study in one file, planned, run and continued by one call.

A plan has every job that the file asks for, depth first. For each task the jobs of one model stand
together (fine-tuning, representations, and all that needs this model alone), so that what the model
leaves behind can go early. Jobs that compare several models follow. Texts that models of all tasks
read come last.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.bounds import Count, FromZero, bounded
from simlab.errors import UserError, argument, require_known
from simlab.results.reading import PLAN
from simlab.similarity.localization import NEEDED
from simlab.store.console import note
from simlab.store.files import hash_json, read_json, write_bytes, write_json
from simlab.sweeps.comparisons import compare, grids_of, within
from simlab.sweeps.disk import Estimate, estimate
from simlab.sweeps.driver import Driver, Report
from simlab.sweeps.entries import require
from simlab.sweeps.members import Model, find_models
from simlab.sweeps.outputs import SweepFolder, driving, read_record
from simlab.sweeps.plan import ALIGN, INJECT, LOCALIZE, Plan
from simlab.sweeps.pool import Pool
from simlab.sweeps.rows import as_results
from simlab.sweeps.sources import PRINTS, Sources, fetch_missing
from simlab.sweeps.spec import Spec, make_spec, read_spec
from simlab.sweeps.status import Status, Times, read_status
from simlab.sweeps.study import TaskStudy

if TYPE_CHECKING:
    import pandas as pd

ENGINES = LOCAL, RAY, SLURM = ("local", "ray", "slurm")
_OWNERS = {"address": (RAY,), "resources": (RAY, SLURM), "slurm": (SLURM,)}
SWEEP, DRAWN = "sweep.json", "figures.json"
_MOST_NAMES = 3  # of files in a message
FIGURES = 2  # raised when figures of the same rows look different


def make_executor(name: str, root: Path, **options: Any) -> Executor:
    """Return the executor of an engine, which starts when a ``with`` block begins."""
    require_known("engine", name, ENGINES)
    for option, engines in _OWNERS.items():
        if options[option] and name not in engines:
            wanted = " or ".join(argument("engine", engine) for engine in engines)
            raise UserError(f"{argument(option)}: wanted {wanted} beside it, found {name}")
    how = {k: value for k, value in options.items() if name in _OWNERS.get(k, ENGINES)}
    if name == LOCAL:
        return Pool(log=root / "log", **how)
    if name == SLURM:
        from simlab.sweeps.cluster import SlurmExecutor

        return SlurmExecutor(root, **how)
    from simlab.sweeps.cluster import RayExecutor

    return RayExecutor(root, **how)


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
        """Read a sweep file; UserError: it is no TOML file, or a key or value is wrong."""
        return cls(read_spec(path))

    @classmethod
    def open(cls, out: str | Path) -> Sweep:
        """Return the sweep that ran last in a folder; UserError: none ran there."""
        path = Path(out) / SWEEP
        if not path.is_file():
            raise UserError(f"{out}: wanted the folder of a sweep, found no {SWEEP} there")
        return cls(make_spec(read_json(path), str(path)))

    def plan(self, out: str | Path | None = None) -> Plan:
        """Return all jobs; with a folder `out`, hashes of local files are kept there."""
        if out is not None:
            require_place(SweepFolder(Path(out)))
        sources = Sources(None if out is None else Path(out) / PRINTS)
        plan = make_plan(self.spec, sources)
        if out is not None and Path(out).is_dir():
            sources.save()
        return plan

    def estimate(self, out: str | Path | None = None) -> tuple[Plan, list[bool], Estimate]:
        """Return the plan, which of its jobs are done in folder `out`, and what the others take."""
        plan, folder = self.plan(out), None if out is None else SweepFolder(Path(out))
        needed = self._needed(plan, folder)
        sizes = {} if folder is None else folder.mean_bytes()
        times = Times(() if folder is None else folder.finished())
        taken = estimate(plan, needed, self.spec.keep, times, sizes)
        # An object that is neither there nor needed was deleted when nothing needed it any more.
        return plan, [not wanted for wanted in needed], taken

    def _needed(self, plan: Plan, folder: SweepFolder | None) -> list[bool]:
        stored = set() if folder is None else folder.stored(plan)
        return plan.needed([job.key in stored for job in plan.jobs], self.spec.keep)

    @bounded
    def run(
        self,
        out: str | Path,
        *,
        workers: FromZero = 0,
        threads: Count | None = None,
        engine: str | Executor = LOCAL,
        address: str | None = None,
        resources: Sequence[str] = (),
        slurm: Sequence[str] = (),
        retry_failed: bool = False,
        figures: bool = True,
        durable: bool = True,
        meanwhile: Callable[[], object] | None = None,
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
            arrays of Slurm; in Python also an executor of `concurrent.futures`, whose attribute
            `slots` is the most jobs at once.
        address
            With ``ray``: the cluster, HOST:PORT of its head or ``auto``.
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
        meanwhile
            Called every few seconds while jobs run, when their rows and the status are written.

        Returns
        -------
        Report
            What was done, what failed, and the figures.

        Raises
        ------
        UserError
            `out` is no folder or has files of something else, another process runs a sweep there,
            the engine is unknown or not installed, or the disk is full.
        """
        folder = SweepFolder(Path(out), durable)
        own: dict[str, Any] = {"address": address, "resources": resources, "slurm": slurm}
        executor: AbstractContextManager[Executor] = (
            make_executor(engine, folder.root, workers=workers, threads=threads, **own)
            if isinstance(engine, str)
            else nullcontext(engine)
        )
        require_place(folder)
        with driving(folder):
            plan = self._complete(folder)
            write_json(folder.root / SWEEP, self.spec.model_dump(exclude_unset=True))
            write_plan(folder, plan)
            how: dict[str, Any] = {"keep": self.spec.keep, "max_disk": self.spec.max_disk}
            how |= {"retry_failed": retry_failed, "meanwhile": meanwhile}
            with executor as started:
                report = Driver(folder, plan, started, **how).run()
            drawn = self._draw(plan, folder) if figures else []
        return replace(report, figures=tuple(drawn))

    def results(self, out: str | Path) -> pd.DataFrame:
        """Return all rows that are there, in the order of the plan (`simlab.read_results`)."""
        return _rows(self.plan(out), SweepFolder(Path(out)))

    def status(self, out: str | Path) -> Status:
        """Return what is done, running, failed and waiting in folder `out`."""
        return read_status(out)

    def _complete(self, folder: SweepFolder) -> Plan:
        """Return a plan whose models and data the caches have."""
        sources = Sources(folder.root / PRINTS)
        plan = make_plan(self.spec, sources)
        needed = self._needed(plan, folder)
        if fetch_missing(plan, needed, sources, bounded=self.spec.max_disk is not None):
            sources.save()
            sources = Sources(folder.root / PRINTS)
            plan = make_plan(self.spec, sources)  # keys have the revisions that came
        sources.save()
        for line in plan.remarks():
            note(line)
        return plan

    def _draw(self, plan: Plan, folder: SweepFolder) -> list[Path]:
        """Draw the figures, unless figures of the same rows are there."""
        from simlab.figures.draw import plot

        there, choice = folder.data.jobs(), self.spec.figures
        keys = [job.key for job in plan.jobs if job.key in there]
        drawn = {"rows": hash_json([keys, choice.model_dump()]), "version": FIGURES}
        record = folder.root / DRAWN
        earlier = read_record(record, files=list) or {}
        files = [folder.figures / str(name) for name in earlier.get("files", ())]
        if drawn.items() <= earlier.items() and all(file.is_file() for file in files):
            return files
        frame = _rows(plan, folder)
        if not frame["layer_x"].notna().any():
            return []  # a figure shows layers
        files = plot(frame, folder.figures, choice.formats, metric=choice.metric)
        write_json(record, {**drawn, "files": [file.name for file in files]})
        return files


def _rows(plan: Plan, folder: SweepFolder) -> pd.DataFrame:
    return as_results(folder.data.rows([job.key for job in plan.jobs if job.is_rows]))


def require_place(folder: SweepFolder) -> None:
    """Raise UserError unless a folder is new or empty, or a sweep's own."""
    root = folder.root
    names = ["a file"] if root.is_file() else sorted(file.name for file in root.glob("[!.]*"))
    if names and not any((root / name).is_file() for name in (SWEEP, PLAN, PRINTS)):
        shown = ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")
        raise UserError(
            f"{argument('out', root)}: wanted a new or empty folder, or a sweep's; found "
            f"{shown}; choose another {argument('out')}"
        )


def write_plan(folder: SweepFolder, plan: Plan) -> None:
    """Write the keys of a plan, without the indentation that would make it three times as long."""
    text = json.dumps(plan.as_json(), separators=(",", ":"))
    write_bytes(folder.root / PLAN, text.encode())


def make_plan(spec: Spec, sources: Sources | None = None) -> Plan:
    """Return all jobs of a sweep, a job after the jobs that it needs."""
    sources = sources or Sources()
    plan = Plan(announced=sources.announced if spec.max_disk is not None else {})
    models = find_models(spec, sources)
    _require_labels(spec, models)
    studies: list[TaskStudy] = []
    for entry in spec.tasks:
        study = TaskStudy(spec, plan, entry, sources.task(entry.name), models)
        for member in study.add_models():
            within(study, member)
        study.add_freezing()
        study.add_baselines()
        compare(study)
        studies.append(study)
    of_tasks = [*studies]
    for on in dict.fromkeys(section.on for section in spec.extract if section.on is not None):
        study = TaskStudy(spec, plan, on, sources.task(on.name), models, corpus=True)
        for member in study.add_others(of_tasks):
            within(study, member)
        compare(study)
        studies.append(study)
    _require_all(spec, studies)
    return plan


def _require_labels(spec: Spec, models: Sequence[Model]) -> None:
    labels = [*dict.fromkeys(model.family for model in models)]
    for key, sections in (("extract", spec.extract), ("grids", spec.all_grids())):
        for label in (label for section in sections for label in section.models or ()):
            wanted = f"labels of models ({', '.join(labels)})"
            require(label in labels, f"{key}.models", wanted, repr(label))


def _require_all(spec: Spec, studies: Sequence[TaskStudy]) -> None:
    extracted = [*dict.fromkeys(view.kind for study in studies for view in study.views)]
    kinds, grids = ", ".join(extracted) or "none", spec.all_grids()
    sections: dict[str, Sequence[Any]] = {"grids": grids, "align": spec.align}
    sections["complexity"] = [spec.complexity] if spec.complexity else []
    for key, those in sections.items():
        for kind in (kind for section in those for kind in section.kind or ()):
            wanted = f"kinds of rows that are extracted ({kinds})"
            require(kind in extracted, f"{key}.kind", wanted, repr(kind))
    imported = [rows for study in studies for rows in study.imported]
    for label, rows in ((model.label, rows) for model in spec.models for rows in model.rows):
        wanted = f"an extraction of {rows.kind} rows of {rows.on.name}, split {rows.split}"
        wanted += f", which the rows of {label} stand beside"
        require(rows in imported, "models.rows", wanted)
    for section in grids:
        usable = {measure for study in studies for _, measure in grids_of(study, section)}
        for measure in section.measure:
            wanted = f"rows that measure {measure} takes"
            require(measure in usable, "grids", wanted, f"extracted kinds {kinds}")
        found = "none: restarts need two seeds of a model, models two models, and joint grids "
        found += "extracted rows of each of stages"
        are_there = any(section in study.compared for study in studies)
        require(are_there, "grids.between", f"models for {', '.join(section.between)}", found)
    two, planned = "two restarts of a model or more", studies[0].plan.counts()
    joint = f"joint grids of {' and '.join(NEEDED)} over one kind of rows"
    for kind, wanted in ((ALIGN, two), (INJECT, two), (LOCALIZE, joint)):
        require(kind in planned or getattr(spec, kind) in ((), None), kind, wanted)
