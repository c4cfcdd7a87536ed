"""Drivers on one folder: drivers of one study share its jobs, one of another study is refused.

A folder has one set of results, one status and one set of figures, and its driver deletes objects
that its own jobs do not need any more. Two studies at once would take these from each other. One
after another they share what they have in common, because a key depends on no study.

While a driver runs, it holds a claim in ``drivers/`` (`claims`), whose name begins with its study,
and the lock of a file beside it (`neighbours`).
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from simlab.errors import UserError, argument
from simlab.store.console import note
from simlab.store.files import hash_json
from simlab.sweeps import processes
from simlab.sweeps.claims import BEAT_SECONDS, Claim, Sight, claim, remove
from simlab.sweeps.folder import SweepFolder
from simlab.sweeps.locking import Probe, alone, local_locks
from simlab.sweeps.neighbours import SIGN_SECONDS, Neighbours, probe_of, remove_old_probes
from simlab.sweeps.plan import Plan
from simlab.sweeps.watch import Watch

_LOOK_SECONDS = 0.5


def study_of(plan: Plan, keep: str, max_disk: int | None) -> str:
    """Return a hash of all that drivers of one folder have to agree on."""
    return hash_json([sorted(job.key for job in plan.jobs), keep, max_disk])[:16]


class Driving:
    """The place of a driver in a folder, while `driving` runs."""

    def __init__(self, folder: SweepFolder, held: Claim, neighbours: Neighbours) -> None:
        self._folder, self._held, self._neighbours = folder, held, neighbours
        self._checked = processes.clock()

    def check(self) -> None:
        """Check now and then that no other process took this driver for gone, and all locks.

        Raises
        ------
        UserError
            The place was lost: another study may be at work in the folder. Or locks of another
            machine do not hold on this one.
        """
        if processes.clock() - self._checked < BEAT_SECONDS:
            return
        if not self._held.is_held():
            raise UserError(
                f"{argument('out', self._folder.root)}: wanted to go on, found that other commands "
                "have taken this one for gone, because it stood still for long; what is done "
                "stays, and the same command continues"
            )
        self._neighbours.look()
        self._checked = processes.clock()


@contextmanager
def driving(folder: SweepFolder, study: str, watch: Watch | None = None) -> Iterator[Driving]:
    """Be a driver of `study` in a folder while the block runs.

    Parameters
    ----------
    watch
        Sees which claims have no owner any more.

    Raises
    ------
    UserError
        A driver of another study is at work in the folder, or a driver of another machine whose
        locks do not hold on this one. The message names its process.
    """
    reason = local_locks(folder.root)
    if reason is not None:
        note(f"{reason}, so that locks hold on this machine alone: use no other for the folder")
    neighbours = Neighbours(folder)
    held, probe = _enter(folder, study, watch or Watch(), neighbours)
    try:
        yield Driving(folder, held, neighbours)
    finally:
        held.release()
        probe.remove()
        remove_old_probes(folder.drivers)


def _enter(
    folder: SweepFolder, study: str, watch: Watch, neighbours: Neighbours
) -> tuple[Claim, Probe]:
    """Claim a place beside drivers of the same study; wait until it is known who is alive."""
    is_noted, began = False, processes.clock()
    first: dict[Path, Sight] = {}
    while True:
        with alone(folder.root):
            others = _others(folder, study, watch, first)
            silent = neighbours.look()
            if processes.clock() - began > min(SIGN_SECONDS, watch.stale):
                silent = []
            if not (others or silent):
                remove_old_probes(folder.drivers)
                return _claim_place(folder, study)
        if not is_noted:
            is_noted = True
            seconds = watch.stale if others else min(SIGN_SECONDS, watch.stale)
            who = (others or silent)[0]
            note(f"looks for {seconds:.0f} seconds whether {who} is still at work")
        time.sleep(_LOOK_SECONDS)


def _claim_place(folder: SweepFolder, study: str) -> tuple[Claim, Probe]:
    """Claim a place, and lock the file beside it: the lock is there as long as the claim."""
    path = folder.drivers / f"{study}-{uuid.uuid4().hex[:8]}"
    probe = Probe(probe_of(path))
    try:
        held = claim(folder.drivers, path.name)
        assert held is not None  # nobody else knows this name
    except BaseException:
        probe.remove()
        raise
    return held, probe


def _others(folder: SweepFolder, study: str, watch: Watch, first: dict[Path, Sight]) -> list[Sight]:
    """Return the drivers of other studies that may be gone; refuse those that are not.

    A driver of another machine is alive if it has touched its claim since the first look.
    """
    unknown = []
    for name in os.listdir(folder.drivers):
        path = folder.drivers / name
        if name.startswith((".", f"{study}-")):
            continue
        dead, sight = watch.is_dead(path), watch.seen(path)
        if dead is not None:
            remove(folder.drivers, name, dead)
        elif sight is not None:
            before = first.setdefault(path, sight)
            if sight.is_here() or sight.signature != before.signature:
                raise UserError(
                    f"{argument('out', folder.root)}: wanted one study at a time, found {sight} at "
                    "work on another; end it or wait for it (what is done stays), or choose "
                    f"another {argument('out')}"
                )
            unknown.append(sight)
    return unknown
