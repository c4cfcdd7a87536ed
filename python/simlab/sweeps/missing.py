"""Models that a plan loads and this machine lacks, found before the first job runs."""

from __future__ import annotations

from collections.abc import Sequence

from simlab.errors import UserError
from simlab.models.sources import cached_revision, is_hub_name, similar_name
from simlab.store.runtime import hub_reachable
from simlab.sweeps.plan import EXTRACT, FINETUNE, Plan


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
    return [name for name in dict.fromkeys(loading) if is_hub_name(name) and not _cached(name)]


def _cached(name: str) -> bool:
    return cached_revision(name) is not None


def missing_line(names: Sequence[str]) -> str:
    """Return what a plan says of models that are missing."""
    shown = ", ".join(f"{name}{similar_name(name)}" for name in names)
    return f"to download from the hub: {shown}"


def require_models(plan: Plan, wanted: Sequence[bool]) -> None:
    """Raise UserError if a model is missing and the hub does not answer."""
    names = missing_models(plan, wanted)
    if names and not hub_reachable():
        raise UserError(
            f"sweep, key models: wanted folders or models in the hub's cache, because the hub does "
            f"not answer; found neither for {', '.join(f'{n}{similar_name(n)}' for n in names)}"
        )
