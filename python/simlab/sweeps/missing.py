"""Models and data sets that a plan loads and this machine may lack, found before the first job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from simlab.errors import UserError, did_you_mean
from simlab.models.hub import find_whole
from simlab.models.sources import is_hub_name, resolve, similar_name
from simlab.store.console import note
from simlab.store.hub import HubError
from simlab.sweeps.contents import HUB_DATA
from simlab.sweeps.fingerprints import Fingerprints
from simlab.sweeps.folder import SweepFolder
from simlab.sweeps.plan import EXTRACT, FINETUNE, PRETRAIN, Job, Plan
from simlab.sweeps.survey import survey
from simlab.tasks import TASKS
from simlab.tasks.hub import download
from simlab.tasks.hub_data import HubData, at_revisions, cached_commit


def missing_models(plan: Plan, wanted: Sequence[bool]) -> list[str]:
    """Return the models of the hub that jobs load and the cache of the hub's client lacks.

    Parameters
    ----------
    wanted
        Which jobs of the plan are still to do.
    """
    loading = []
    for job in _chosen(plan, wanted):
        if job.kind == PRETRAIN:
            loading.append(job.hints["tokenizer"])
        elif job.kind in (FINETUNE, EXTRACT) and not job.needs and "model" in job.hints:
            loading.append(job.hints["model"])
    return [n for n in dict.fromkeys(loading) if is_hub_name(n) and find_whole(n) is None]


def with_similar(names: Sequence[str]) -> str:
    """Return names of models in words, each with the name that it resembles."""
    return ", ".join(f"{name}{similar_name(name)}" for name in names)


def with_similar_tasks(names: Iterable[str]) -> str:
    """Return names of tasks in words, each with the listed task that it resembles."""
    return ", ".join(n if n in TASKS else f"{n}{did_you_mean(n, TASKS)}" for n in names)


def missing_data(plan: Plan, wanted: Sequence[bool]) -> dict[str, str | None]:
    """Return the tasks of the hub that jobs load and the cache of the datasets library lacks.

    Returns
    -------
    dict
        Names of tasks, and the revision of each that jobs load (`contents.source_hints`).
    """
    loading: dict[str, str | None] = {}
    for job in _chosen(plan, wanted):
        loading |= job.hints.get(HUB_DATA, {})
    return {
        name: revision
        for name, revision in loading.items()
        if cached_commit(replace(HubData.of_task(name), revision=revision)) is None
    }


def fetch_missing(
    folder: SweepFolder, plan: Plan, keep: str, prints: Fingerprints, *, bounded: bool = False
) -> bool:
    """Download the models and data sets that jobs to do load, one after the other.

    Jobs find them in the caches of the clients, and ask the hub nothing.

    Parameters
    ----------
    prints
        Where commits are pinned of models that are not downloaded yet.
    bounded
        Whether the disk space is bounded: steps of a training are then announced alone, and
        downloaded when their jobs come (`fetching`).

    Returns
    -------
    bool
        Whether anything was downloaded or announced, whose commit belongs in keys.

    Raises
    ------
    UserError
        The hub does not answer, or does not give one of them.
    """
    every = [True] * len(plan)
    if not (missing_models(plan, every) or missing_data(plan, every)):
        return False
    needed = survey(folder, plan, keep).needed
    models = missing_models(plan, needed)
    later = set(_steps(plan)) & {*models} if bounded else set()
    models = [name for name in models if name not in later]
    new = [name for name in sorted(later) if prints.announced_bytes(name) is None]
    for name in new:
        prints.announce(name)
    if new:
        note(f"{len(new)} steps of training are downloaded one by one, and deleted (max_disk)")
    for number, name in enumerate(models, 1):
        try:
            resolve(name)
        except HubError as error:
            if error.trouble.answered:
                raise
            raise UserError(
                "sweep, key models: wanted folders or models in the hub's cache, because of "
                f"{error.trouble.found}; found neither for {with_similar(models)}; "
                f"{error.trouble.remedy}"
            ) from error
        note(f"model {name} is in the hub's cache ({number} of {len(models)})")
    data = missing_data(plan, needed)
    with at_revisions(data):
        for name in data:
            if name in TASKS:
                download(TASKS[name].hub, name)
            else:
                download(name)
    return bool(models or data or new)


def _steps(plan: Plan) -> Iterator[str]:
    """Yield the names of models that are steps of a training."""
    for job in plan.jobs:
        if "model" in job.hints and job.hints.get("step") is not None:
            yield job.hints["model"]


def _chosen(plan: Plan, wanted: Sequence[bool]) -> Iterator[Job]:
    return (job for job, needed in zip(plan.jobs, wanted, strict=True) if needed)
