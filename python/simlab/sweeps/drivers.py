"""Drivers on one folder: those of one study share its jobs, one of another study is refused.

A folder has one set of results, one status and one set of figures, and its driver deletes objects
that its own jobs do not need any more. Two studies at once would take these from each other. One
after another they share what they have in common, because a key depends on no study.

While a driver runs, it holds a claim in ``drivers/`` (`claims`), whose name begins with its study.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from simlab.errors import BusyError, UserError
from simlab.store.files import hash_json
from simlab.store.ownership import owned
from simlab.sweeps import claims
from simlab.sweeps.folder import SweepFolder
from simlab.sweeps.plan import Plan

_PATIENCE_SECONDS = 30.0  # with drivers that start at the same time


def study_of(plan: Plan, keep: str, max_disk: int | None) -> str:
    """Return a hash of all that drivers of one folder have to agree on."""
    return hash_json([sorted(job.key for job in plan.jobs), keep, max_disk])[:16]


@contextmanager
def driving(folder: SweepFolder, study: str, stale: float = claims.STALE_SECONDS) -> Iterator[None]:
    """Be a driver of `study` in a folder while the block runs.

    Parameters
    ----------
    stale
        Seconds after which a driver of another machine is gone that gives no sign of life.

    Raises
    ------
    UserError
        A driver of another study is at work in the folder. The message names its process.
    """
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            with owned(folder.root, lock=folder.root / ".drivers.lock"):
                _refuse_others(folder, study, stale)
                held = claims.claim(folder.drivers, f"{study}-{uuid.uuid4().hex[:8]}", stale)
            break
        except BusyError:  # another driver looks around, for milliseconds
            if time.monotonic() > until:
                raise
    try:
        yield
    finally:
        if held is not None:
            held.release()


def _refuse_others(folder: SweepFolder, study: str, stale: float) -> None:
    for name in os.listdir(folder.drivers):
        path = folder.drivers / name
        if name.startswith("."):
            continue
        if claims.is_dead(path, stale):
            with suppress(FileNotFoundError):
                path.unlink()
        elif not name.startswith(f"{study}-"):
            owner = claims.read_claim(path)
            who = f"process {owner['pid']} on {owner['place'][0]}" if owner else "a process"
            raise UserError(
                f"--out {folder.root}: wanted one study at a time, found {who} at work on another; "
                "end it or wait for it (what is done stays), or choose another --out"
            )
