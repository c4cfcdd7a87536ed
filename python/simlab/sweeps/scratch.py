"""Scratch folders, where outputs are made: one for each owner of a claim.

``work/KEY-TOKEN`` has the beginning of the owner's token in its name. The next owner renames the
folder, so that a process which stopped and lost its claim finds its folder gone. That process may
still have files open there, and write to them when it continues. So the next owner of a resumable
job works on a copy, in files of its own, unless the last owner is known to have ended:

    work/KEY-TOKEN        of an owner
    work/KEY-TOKEN.from   what that owner copies; complete, while the copy may be cut short
    work/KEY-kept         left in order, by an owner that could not publish or had a full disk

An output that is complete is kept whatever the job: the step is not called again. ``out`` is
complete when it has a record of its files, which is written last, and rows when their file has its
name.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from simlab.errors import BusyError, ReadError
from simlab.store.files import writing
from simlab.sweeps.claims import Claim, LostError
from simlab.sweeps.folder import OBJECT, DamagedError, SweepFolder, check_object, discard
from simlab.sweeps.parts import is_whole, read_made
from simlab.sweeps.plan import FOLDERS, Job

OUT, ROWS = "out", "rows.parquet"  # what a step makes: a folder, or rows
_FROM, _KEPT = ".from", "kept"


def prepare(folder: SweepFolder, job: Job, held: Claim, resumable: bool) -> Path:
    """Return the scratch folder of an owner, with what the last owner left.

    That is the beginning of a resumable job, or a complete output.

    The folder of a job that makes rows does not exist yet.

    Raises
    ------
    BusyError
        The claim is lost.
    WriteError
        The disk has no room for a copy.
    """
    scratch = folder.work / f"{job.key}-{held.token[:8]}"
    source = scratch.with_name(scratch.name + _FROM)
    quiet = {f"{job.key}-{_KEPT}"} | ({f"{job.key}-{held.after[:8]}"} if held.after else set())
    with held.locked():
        # A source first: the copy beside it is cut short.
        left = sorted(folder.work.glob(f"{job.key}-*"), key=lambda path: path.suffix != _FROM)
        usable = [one for one in left if resumable or is_complete(job, one)]
        if usable:
            first = usable[0]
            left.remove(first)
            os.rename(first, scratch if first.name in quiet else source)
        for other in left:
            discard(other)
        if job.kind in FOLDERS:
            scratch.mkdir(parents=True, exist_ok=True)
    if source.exists():
        locks = shutil.ignore_patterns(".*.lock")  # a process that stopped holds them
        shutil.copytree(
            source, scratch, symlinks=True, dirs_exist_ok=True, ignore=locks, copy_function=_copy
        )
        discard(source)
    return scratch


def is_complete(job: Job, scratch: Path) -> bool:
    """Return whether a scratch folder has an output that was finished, and may be damaged since."""
    return (scratch / ROWS if job.is_rows else scratch / OUT / OBJECT).exists()


def finished_before(folder: SweepFolder, job: Job, scratch: Path, resumable: bool) -> float | None:
    """Return how long the output took that an earlier owner finished and could not publish.

    The result is None without such an output. One that is not what was written, after a power cut,
    is deleted.
    """
    if not is_complete(job, scratch):
        return None
    if job.is_rows:
        made = read_made(scratch / ROWS).get(job.key)
        if made is not None and is_whole(scratch / ROWS):
            return made.seconds
    else:
        with suppress(DamagedError):
            return check_object(scratch / OUT, job.key)["seconds"]
    discard(scratch / OUT if resumable else scratch)
    if job.kind in FOLDERS:
        scratch.mkdir(parents=True, exist_ok=True)
    return None


def keep(folder: SweepFolder, job: Job, held: Claim, scratch: Path) -> None:
    """Leave a scratch folder in order to the next owner."""
    with held.locked():
        os.rename(scratch, folder.work / f"{job.key}-{_KEPT}")


def leave(folder: SweepFolder, job: Job, held: Claim, scratch: Path) -> bool:
    """Leave a scratch folder to the next owner; return False if the claim is lost.

    Where another process stands still with the lock of the claim, or the system refuses, the
    folder stays as it is, and the next owner copies it (`prepare`).
    """
    try:
        keep(folder, job, held, scratch)
    except LostError:
        return False
    except (BusyError, ReadError, OSError):
        pass
    return True


def discard_all(folder: SweepFolder, key: str) -> None:
    """Delete the scratch folders of a finished job; the owner of its claim does so under the lock.

    A process that was killed after it had published leaves one.
    """
    for left in folder.work.glob(f"{key}-*"):
        discard(left)


def key_of(scratch: Path) -> str:
    """Return the key of the job whose output is made in a scratch folder."""
    return scratch.name.partition("-")[0]


def _copy(source: str, target: str) -> None:
    with writing(Path(target)):
        shutil.copy2(source, target)
