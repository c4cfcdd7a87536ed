"""What is done, and what is still to do: found in the folder of a sweep, from the keys alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from simlab.errors import UserError
from simlab.store.files import read_json, write_bytes
from simlab.sweeps.folder import SweepFolder
from simlab.sweeps.plan import EXTRACT, FINETUNE, FOLDERS, KINDS, PRETRAIN, Job, Plan
from simlab.sweeps.spec import KEEP_ALL, KEEP_REPRESENTATIONS

PLAN = "plan.json"
# Kinds of object that stay when nothing needs them any more.
KEPT = {KEEP_ALL: (PRETRAIN, FINETUNE, EXTRACT), KEEP_REPRESENTATIONS: (PRETRAIN, EXTRACT)}


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
    needed: list[bool]


def survey(folder: SweepFolder, plan: Plan, keep: str) -> Survey:
    """Find what is done and what is still to do."""
    kinds = list(plan.counts())
    present = {key for kind in kinds if kind in FOLDERS for key in folder.present(kind)}
    present |= folder.made_rows([kind for kind in kinds if kind not in FOLDERS]).keys()
    done = [job.key in present for job in plan.jobs]
    return Survey(done, find_needed(plan.jobs, done, keep))


def find_needed(jobs: Sequence[Job], done: Sequence[bool], keep: str) -> list[bool]:
    """Return which jobs have to be done."""
    kept = KEPT.get(keep, ())
    needed = [
        not there and (job.is_rows or job.kind in kept)
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
    found = read_json(path)
    jobs = [Job(found["kinds"][k], key, tuple(n), {}, {}, "") for k, key, n in found["jobs"]]
    return Plan(jobs, {job.key: number for number, job in enumerate(jobs)}), found["keep"]


def write_json_line(path: Path, value: object) -> None:
    """Write JSON without indentation, which would make a large plan three times as long."""
    write_bytes(path, json.dumps(value, separators=(",", ":")).encode())
