"""The jobs that are done and those still to do, from the keys in the folder of a sweep."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

from simlab.errors import UserError
from simlab.store.files import write_bytes
from simlab.store.planned import PLAN
from simlab.sweeps.folder import SweepFolder
from simlab.sweeps.plan import EXTRACT, FINETUNE, FOLDERS, IMPORT, KINDS, PRETRAIN, Job, Plan
from simlab.sweeps.records import PlanRecord, read_record
from simlab.sweeps.spec import KEEP_ALL, KEEP_REPRESENTATIONS

# Kinds of object that stay when nothing needs them any more.
KEPT = {
    KEEP_ALL: (PRETRAIN, FINETUNE, EXTRACT, IMPORT),
    KEEP_REPRESENTATIONS: (PRETRAIN, EXTRACT, IMPORT),
}


class Needed(list[bool]):
    """Whether each job of a plan has to be done, and how many of each kind have to be.

    Attributes
    ----------
    counts
        Number of jobs that have to be done, by kind. Whoever assigns to an item changes it: nobody
        walks through the plan to draw a bar.
    """

    def __init__(self, plan: Plan, needed: Sequence[bool]) -> None:
        super().__init__(needed)
        self._kinds = [job.kind for job in plan.jobs]
        self.counts = Counter(compress(self._kinds, needed))

    def __setitem__(self, number: Any, needed: Any) -> None:
        self.counts[self._kinds[number]] += needed - self[number]
        super().__setitem__(number, needed)


@dataclass
class Survey:
    """The state of every job of a plan, by its number.

    Attributes
    ----------
    done
        Whether the output is there.
    needed
        Whether the job has to be done: its output is not there, and is wanted for itself or by a
        job that has to be done.
    """

    done: list[bool]
    needed: Needed


def survey(folder: SweepFolder, plan: Plan, keep: str) -> Survey:
    """Find what is done and what is still to do."""
    kinds = list(plan.counts())
    present = {key for kind in kinds if kind in FOLDERS for key in folder.present(kind)}
    present |= folder.made_rows([kind for kind in kinds if kind not in FOLDERS]).keys()
    done = [job.key in present for job in plan.jobs]
    return Survey(done, Needed(plan, find_needed(plan.jobs, done, keep)))


def find_needed(jobs: Sequence[Job], done: Sequence[bool], keep: str) -> list[bool]:
    """Return which jobs have to be done."""
    kept_kinds = KEPT.get(keep, ())
    needed = [
        not there and (job.is_rows or job.kind in kept_kinds)
        for job, there in zip(jobs, done, strict=True)
    ]
    for number in range(len(jobs) - 1, -1, -1):  # a job stands after the jobs that it needs
        if needed[number]:
            for other in jobs[number].needs:
                needed[other] = needed[other] or not done[other]
    return needed


def write_plan(folder: SweepFolder, plan: Plan, keep: str) -> None:
    """Write the keys of a plan, for `read_plan`."""
    jobs = [[KINDS.index(job.kind), job.key, list(job.needs)] for job in plan.jobs]
    write_json_line(folder.root / PLAN, {"keep": keep, "kinds": KINDS, "jobs": jobs})


def read_plan(folder: SweepFolder) -> tuple[Plan, str]:
    """Return the plan of the last driver, without parameters, and what it keeps.

    Raises
    ------
    UserError
        No sweep ran in the folder.
    """
    path = folder.root / PLAN
    if not path.is_file():
        raise UserError(f"{folder.root}: wanted the folder of a sweep, found no {PLAN} there")
    record = read_record(path, PlanRecord)
    if record is None:
        raise UserError(
            f"{path}: wanted the plan of a sweep, found a damaged file; the next run of the sweep "
            "writes it anew"
        )
    jobs = [Job(record["kinds"][k], key, tuple(n), {}, {}, "") for k, key, n in record["jobs"]]
    return Plan(jobs, {job.key: number for number, job in enumerate(jobs)}), record["keep"]


def write_json_line(path: Path, value: object) -> None:
    """Write JSON without indentation, which would make a large plan three times as long."""
    write_bytes(path, json.dumps(value, separators=(",", ":")).encode())
