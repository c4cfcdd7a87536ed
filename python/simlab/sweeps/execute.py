"""Do one job, wherever that is: claim it, check its inputs, call its step, publish its output.

An engine brings an `Order` to some process and the answer back; both are small and can be pickled.
What a job reads and writes are paths of one folder that all processes see.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from simlab.errors import BusyError, UserError, WriteError
from simlab.store.files import writing
from simlab.sweeps import claims
from simlab.sweeps.folder import DamagedError, MissingError, SweepFolder
from simlab.sweeps.parts import as_results, read_made, read_rows_file, write_part
from simlab.sweeps.plan import FOLDERS, Job

# What became of an order.
MADE = "made"
BEFORE = "done before"
BUSY = "busy"  # another process works on the job
FAILED = "failed"  # the step raised an exception
DAMAGED = "damaged input"  # an object that the job needs is not what was written
REFUSED = "refused"  # the system refused to write: the disk is full
CRASHED = "crashed"  # the process died; only an engine says so
MOST_ATTEMPTS = 3  # of a job whose process dies
_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Order:
    """A job to do, and where: everything that another process needs to know.

    Attributes
    ----------
    root
        The folder of the sweep.
    job
        The job.
    needs
        Kinds and keys of the jobs that it needs, in order.
    durable
        Whether the output is written to the disk before it counts.
    stale
        Seconds after which a claim that is not touched has no owner.
    steps
        Module with the steps: ``STEPS`` and ``RESUMABLE`` as in `simlab.sweeps.steps`.
    patience
        Seconds to wait for an input that is not there: on a network file system another machine may
        see a new file late.
    """

    root: str
    job: Job
    needs: tuple[tuple[str, str], ...]
    durable: bool = True
    stale: float = claims.STALE_SECONDS
    steps: str = "simlab.sweeps.steps"
    patience: float = 0.0


@dataclass(frozen=True)
class Work:
    """What a step is called with.

    Attributes
    ----------
    params, hints
        Those of the job (`plan.Job`).
    inputs
        For every job that is needed, the folder that it made or the table of its rows.
    out
        The folder to make, if the step makes one; it does not exist.
    """

    params: Mapping[str, Any]
    hints: Mapping[str, Any]
    inputs: tuple[Any, ...]
    out: Path


@dataclass(frozen=True)
class Answer:
    """What became of an order.

    Attributes
    ----------
    key, state
        Key of the job, and one of the words above.
    seconds
        Time that the job took.
    message
        The last line of the error.
    damaged
        Kind and key of the damaged object.
    """

    key: str
    state: str
    seconds: float = 0.0
    message: str = ""
    damaged: tuple[str, str] | None = None


def execute(order: Order) -> Answer:
    """Do a job, unless it is done or another process does it; errors become the answer."""
    job = order.job
    folder = SweepFolder(Path(order.root), order.durable)
    try:
        if is_done(folder, job):
            return Answer(job.key, BEFORE)
        held = claims.claim(folder.claims, job.key, order.stale)
        if held is None:
            return Answer(job.key, BUSY)
    except (WriteError, BusyError) as error:
        return Answer(job.key, REFUSED if isinstance(error, WriteError) else BUSY, 0.0, str(error))
    started = time.monotonic()
    try:
        if is_done(folder, job):  # by the last owner of the claim
            return Answer(job.key, BEFORE)
        _make(folder, order, held)
        return Answer(job.key, MADE, time.monotonic() - started)
    except DamagedError as error:
        return Answer(job.key, DAMAGED, 0.0, str(error), _damaged(error, order))
    except WriteError as error:
        return Answer(job.key, REFUSED, 0.0, str(error))
    except Exception as error:
        seconds = time.monotonic() - started
        try:
            folder.fail(job.key, failure(job, error, traceback.format_exc(), seconds))
        except WriteError as refused:
            return Answer(job.key, REFUSED, 0.0, str(refused))
        return Answer(job.key, FAILED, seconds, last_line(error))
    finally:
        held.release()


def failure(
    job: Job, error: object, trace: str, seconds: float, attempts: int = 1
) -> dict[str, Any]:
    """Return the record of a failure."""
    return {
        "key": job.key,
        "kind": job.kind,
        "title": job.title,
        "error": last_line(error),
        "traceback": trace,
        "attempts": attempts,
        "seconds": round(seconds, 3),
        "machine": socket.gethostname(),
        "when": time.time(),
        "params": dict(job.params),
        "hints": dict(job.hints),
    }


def has_failed(record: Mapping[str, Any] | None) -> bool:
    """Return whether a job with this record of a failure is not tried again by itself."""
    if record is None:
        return False
    return record.get("state") != CRASHED or record["attempts"] >= MOST_ATTEMPTS


def last_line(error: object) -> str:
    """Return an error in one line."""
    text = " ".join(str(error).split())
    if isinstance(error, UserError) or not isinstance(error, BaseException):
        return text
    return f"{type(error).__name__}: {text}"


def is_done(folder: SweepFolder, job: Job) -> bool:
    """Return whether the output of a job is there."""
    place = folder.place(job.kind, job.key)
    if job.is_rows:
        return job.key in read_made(place) or folder.data.has(job.key)
    return place.is_dir()


def _make(folder: SweepFolder, order: Order, held: claims.Claim) -> None:
    job = order.job
    steps = import_module(order.steps)
    resumable = job.kind in steps.RESUMABLE
    inputs = _inputs(folder, order)
    scratch = _scratch(folder, job, held, resumable)
    work = Work(job.params, job.hints, inputs, scratch / "out")
    started = time.monotonic()
    try:
        with writing(folder.place(job.kind, job.key), partial=scratch):
            rows = steps.STEPS[job.kind](work)
            rows = None if rows is None else list(rows)
        seconds = time.monotonic() - started
        if not held.is_held():  # this process was asleep for so long that another one took over
            return
        if rows is None:
            folder.publish(job.kind, job.key, work.out, seconds, job.title)
        else:
            place = folder.place(job.kind, job.key)
            write_part(place, job, rows, seconds, order.durable)
    except Exception as error:
        if not resumable or not isinstance(error, WriteError):
            shutil.rmtree(scratch, ignore_errors=True)
        raise
    shutil.rmtree(scratch, ignore_errors=True)


def _scratch(folder: SweepFolder, job: Job, held: claims.Claim, resumable: bool) -> Path:
    """Return the folder where the output is made; a resumable job gets what an earlier owner left.

    The folder has the name of the claim. An owner that was asleep and lost its claim finds that the
    folder is gone, and does not write among the files of the new owner.
    """
    scratch = folder.work / f"{job.key}-{held.token[:8]}"
    if job.kind not in FOLDERS:
        return scratch
    for left in folder.work.glob(f"{job.key}-*"):
        if resumable and not scratch.exists():
            os.rename(left, scratch)
        else:
            shutil.rmtree(left, ignore_errors=True)
    scratch.mkdir(parents=True, exist_ok=True)
    return scratch


def _inputs(folder: SweepFolder, order: Order) -> tuple[Any, ...]:
    until = time.monotonic() + order.patience
    while True:
        try:
            return tuple(_input(folder, kind, key) for kind, key in order.needs)
        except MissingError:
            if time.monotonic() > until:
                raise
        time.sleep(_LOOK_SECONDS)


def _input(folder: SweepFolder, kind: str, key: str) -> Any:
    if kind in FOLDERS:
        return _checked(folder, kind, key)
    part = folder.place(kind, key)
    with contextlib.suppress(FileNotFoundError):  # a driver gathers the part now
        if key in read_made(part):
            return as_results(read_rows_file(part))
    table = folder.data.rows([key])
    if not len(table):
        raise MissingError(f"{part}: wanted the rows of {kind} {key}, found none")
    return as_results(table)


_CHECKED: dict[Path, tuple[int, int]] = {}


def _checked(folder: SweepFolder, kind: str, key: str) -> Path:
    """Return the place of an object, whose files this process hashes once."""
    place = folder.place(kind, key)
    try:
        state = place.stat()
    except FileNotFoundError:
        raise MissingError(f"{place}: wanted an object, found none") from None
    now = (state.st_ino, state.st_mtime_ns)
    folder.check(kind, key, hashes=_CHECKED.get(place) != now)
    _CHECKED[place] = now
    return place


def _damaged(error: DamagedError, order: Order) -> tuple[str, str] | None:
    """Return the input that an error names."""
    found = [need for need in order.needs if need[1] in str(error)]
    return found[0] if found else None
