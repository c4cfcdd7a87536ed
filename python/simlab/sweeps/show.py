"""Plans and statuses as tables of texts, for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from simlab.store.console import span
from simlab.sweeps.estimates import Estimate
from simlab.sweeps.plan import Plan
from simlab.sweeps.status import Count, Status

_UNITS = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3))
Table = tuple[tuple[str, ...], list[tuple[str, ...]]]


def amount(size: float) -> str:
    """Return a number of bytes in words: ``1.4 GB``."""
    for unit, one in _UNITS:
        if size >= one:
            return f"{size / one:.1f} {unit}"
    return f"{size:.0f} B"


def plan_table(plan: Plan, done: Sequence[bool]) -> Table:
    """Return the jobs by kind: how many there are, and how many are done."""
    finished = dict.fromkeys(plan.counts(), 0)
    for job, there in zip(plan.jobs, done, strict=True):
        finished[job.kind] += there
    rows: list[tuple[str, ...]] = [
        (kind, f"{n:,}", f"{finished[kind]:,}") for kind, n in plan.counts().items()
    ]
    rows.append(("all", f"{len(plan):,}", f"{sum(finished.values()):,}"))
    return ("jobs", "planned", "done"), rows


def plan_lines(taken: Estimate, keep: str, workers: int) -> list[str]:
    """Return the disk space, peak and time of a plan."""
    sizes = ", ".join(f"{kind} {amount(size)}" for kind, size in taken.bytes_by_kind.items())
    peak = ""
    if taken.peak < sum(taken.bytes_by_kind.values()):
        peak = f", at most {amount(taken.peak)} at once (keep = {keep!r})"
    lines = [f"disk space of all objects: {sizes or 'none'}{peak}"]
    at_once = f" with {workers} at once" if workers > 1 else ""
    if taken.seconds or not taken.unknown:
        lines.append(f"time{at_once}: {span(taken.seconds)}, from jobs that are done")
    if taken.unknown:
        unknown = ", ".join(f"{count:,} {kind}" for kind, count in taken.unknown.items())
        lines.append(f"time of {unknown}: unknown, because no job of the kind is done")
    return lines


def status_table(status: Status) -> Table:
    """Return the jobs by kind and state."""
    counts = [*status.kinds.items(), ("all", status.total)]
    rows = [(kind, *(f"{n:,}" for n in asdict(count).values())) for kind, count in counts]
    return ("jobs", *asdict(Count())), rows


def status_lines(status: Status) -> list[str]:
    """Return the rate, the time left and the last error."""
    left = status.seconds_left
    when = "unknown" if left is None else span(left)
    lines = [f"{status.per_hour:,.0f} jobs an hour; time left: {when}"]
    if status.last_error:
        lines.append(f"last error: {status.last_error}")
    return lines
