"""Models and data sets that a plan loads and this machine may lack, found before the first job."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from simlab.errors import UserError
from simlab.models.sources import cached_revision, is_hub_name, similar_name
from simlab.store.runtime import hub_reachable
from simlab.sweeps.folder import SweepFolder
from simlab.sweeps.plan import EXTRACT, FINETUNE, Plan
from simlab.sweeps.survey import survey
from simlab.tasks import TASKS


def missing_models(plan: Plan, wanted: Sequence[bool]) -> list[str]:
    """Return the models of the hub that jobs load and the cache of the hub's client lacks.

    Parameters
    ----------
    wanted
        Which jobs of the plan are still to do.
    """
    loading = [
        job.hints["model"]
        for job, needed in zip(plan.jobs, wanted, strict=True)
        if needed and job.kind in (FINETUNE, EXTRACT) and not job.needs and "model" in job.hints
    ]
    return [
        name
        for name in dict.fromkeys(loading)
        if is_hub_name(name) and cached_revision(name) is None
    ]


def with_similar(names: Sequence[str]) -> str:
    """Return names of models in words, each with the name that it resembles."""
    return ", ".join(f"{name}{similar_name(name)}" for name in names)


def hub_tasks(names: Sequence[str]) -> list[str]:
    """Return tasks that are neither listed nor files, each with the listed task it resembles."""
    found = []
    for name in names:
        if name.partition(":")[0] not in TASKS and not Path(name).expanduser().exists():
            near = get_close_matches(name, TASKS, n=1)
            found.append(f"{name} (did you mean {near[0]!r}?)" if near else name)
    return found


def require_models(folder: SweepFolder, plan: Plan, keep: str) -> None:
    """Raise UserError if a job to do loads a model that is missing while no hub answers."""
    if not missing_models(plan, [True] * len(plan)) or hub_reachable():
        return
    if names := missing_models(plan, survey(folder, plan, keep).needed):
        raise UserError(
            "sweep, key models: wanted folders or models in the hub's cache, because the hub does "
            f"not answer; found neither for {with_similar(names)}"
        )
