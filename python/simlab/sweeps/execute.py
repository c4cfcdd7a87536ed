"""Do one job, wherever that is: claim it, check its inputs, call its step, publish its output.

An engine brings an `Order` to some process and the answer back; both are small and can be pickled.
Jobs read and write paths of one folder that all processes see. Everything that others see of a job
changes while its claim is held (`claims`): a process that lost its claim answers `BUSY`, and leaves
no trace.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from simlab.errors import BusyError, ReadError, WriteError
from simlab.store.files import sync_names, writing
from simlab.store.hashes import State
from simlab.sweeps import claims
from simlab.sweeps.contents import ChangedError, as_planned, check_sources
from simlab.sweeps.failures import failure, lacked_files, last_line
from simlab.sweeps.finished import note_finished, note_if_missing
from simlab.sweeps.folder import DamagedError, MissingError, SweepFolder
from simlab.sweeps.inputs import Inputs, intact, read_input, read_inputs
from simlab.sweeps.parts import read_made, write_part
from simlab.sweeps.plan import FOLDERS, Job
from simlab.sweeps.records import FailureRecord
from simlab.sweeps.scratch import (
    OUT,
    ROWS,
    discard_all,
    finished_before,
    is_complete,
    leave,
    prepare,
)

# Outcomes of an order.
MADE = "made"
BEFORE = "done before"
BUSY = "busy"  # another process works on the job
FAILED = "failed"  # the step raised an exception
DAMAGED = "damaged input"  # an object that the job needs is not what was written
REFUSED = "refused"  # the system refused to write: the disk is full
UNREAD = "unread"  # the system refused to read, or to open more files
CRASHED = "crashed"  # the process died; only an engine says so
STOPPED = "stopped"  # the process was told to end, by a queue or a person; only an engine says so
CHANGED = "changed"  # the state of a failure: a local file is not what was planned
OF_ONE_RUN = (CHANGED, STOPPED)  # states of failures that hold until a later command
MOST_ATTEMPTS = 3  # of a job whose process dies


@dataclass(frozen=True)
class Order:
    """A job to do, and where: everything that another process needs.

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
    dead
        The claim of an owner of the job that is gone, as the driver saw it.
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
    dead: claims.Signature | None = None
    steps: str = "simlab.sweeps.steps"
    patience: float = 0.0


@dataclass(frozen=True)
class Work:
    """The arguments of a step.

    Attributes
    ----------
    params, hints
        As in the job (`plan.Job`).
    inputs
        For every job that is needed, the folder that it made or the table of its rows.
    out
        The folder to make, if the step makes one; it does not exist.
    state
        A text for the state of all models and data that the step reads (`contents.as_planned`).
    """

    params: Mapping[str, Any]
    hints: Mapping[str, Any]
    inputs: tuple[Any, ...]
    out: Path
    state: str = ""


@dataclass(frozen=True)
class Answer:
    """The outcome of an order.

    Attributes
    ----------
    key, state
        Key of the job, and one of the words above.
    seconds
        Time that the job took.
    message
        The last line of the error.
    damaged
        Kind and key of the damaged object; with `BUSY`, another process has claimed it.
    note
        What the user should know of the output of a job that was done.
    """

    key: str
    state: str
    seconds: float = 0.0
    message: str = ""
    damaged: tuple[str, str] | None = None
    note: str = ""


def execute(order: Order) -> Answer:
    """Do a job, unless it is done or another process does it; errors become the answer."""
    job = order.job
    folder = SweepFolder(Path(order.root), order.durable)
    try:
        if is_done(folder, job):
            return Answer(job.key, BEFORE)
        held = claims.claim(folder.claims, job.key, order.dead)
    except (WriteError, ReadError) as error:
        return _refusal(job, error)
    if held is None:
        return Answer(job.key, BUSY)
    try:
        return _do(folder, order, held)
    finally:
        held.release()


def _do(folder: SweepFolder, order: Order, held: claims.Claim) -> Answer:
    """Do a job that is claimed."""
    job, started = order.job, time.monotonic()
    try:
        folder.refresh(job.kind, job.key)
        if is_done(folder, job):  # by the last owner of the claim, who may have ended at once
            with held.locked():
                note_if_missing(folder, job.kind, job.key)
                discard_all(folder, job.key)
            return Answer(job.key, BEFORE)
        noted = _make(folder, order, held)
        return Answer(job.key, MADE, time.monotonic() - started, note=noted)
    except Exception as error:
        seconds = time.monotonic() - started
        try:
            return _after_error(folder, order, held, error, seconds)
        except (WriteError, ReadError) as refused:
            return _refusal(job, refused)
        except BusyError as lost:
            return Answer(job.key, BUSY, 0.0, str(lost))


def _after_error(
    folder: SweepFolder,
    order: Order,
    held: claims.Claim,
    error: Exception,
    seconds: float,
) -> Answer:
    """Return the answer after an exception; record the failure if the step failed."""
    job = order.job
    # An owner that stopped for long finds its scratch folder gone: the job is another's now.
    # A step that finds the lock of a process that stopped is tried again.
    if isinstance(error, BusyError) or not held.is_held():
        return Answer(job.key, BUSY, 0.0, str(error))
    if isinstance(error, DamagedError):
        return _after_damage(folder, order, error)
    if isinstance(error, WriteError | ReadError):
        return _refusal(job, error)
    if lacked_files(error):  # of the process or the machine: no fault of the job
        return Answer(job.key, UNREAD, 0.0, f"{job.title}: {last_line(error)}")
    record = failure(job, error, "".join(traceback.format_exception(error)), seconds)
    if isinstance(error, ChangedError):
        record["state"] = CHANGED
    with held.locked():
        folder.fail(job.key, record)
    return Answer(job.key, FAILED, seconds, last_line(error))


def _refusal(job: Job, error: WriteError | ReadError) -> Answer:
    state = REFUSED if isinstance(error, WriteError) else UNREAD
    return Answer(job.key, state, 0.0, str(error))


def has_failed(record: FailureRecord | None) -> bool:
    """Return whether a job with this record of a failure is not tried again by the same driver.

    A later driver tries a job again whose sources had changed, because they may be back, or whose
    processes were told to end (`OF_ONE_RUN`).
    """
    if record is None:
        return False
    return record.get("state") != CRASHED or record["attempts"] >= MOST_ATTEMPTS


def is_done(folder: SweepFolder, job: Job) -> bool:
    """Return whether the output of a job is there."""
    place = folder.place(job.kind, job.key)
    if job.is_rows:
        return job.key in read_made(place) or folder.data.has(job.key)
    return place.is_dir()


def _make(folder: SweepFolder, order: Order, held: claims.Claim) -> str:
    """Call the step of a job and publish its output; return a note for the user, or ""."""
    job, noted = order.job, ""
    resumable = job.kind in import_module(order.steps).RESUMABLE
    # Before the scratch of an earlier owner is touched.
    before = check_sources(job.hints, folder.root)
    inputs = read_inputs(folder, order.needs, order.patience)
    scratch = prepare(folder, job, held, resumable)
    is_left = False
    try:
        seconds = finished_before(folder, job, scratch, resumable)
        if seconds is None:
            seconds = _call_step(folder, order, before, inputs, scratch)
        lock = _publishing(folder, job, held, seconds)
        if job.is_rows:
            _publish_rows(folder, job, scratch, lock)
        else:
            noted = folder.publish(job.kind, job.key, scratch / OUT, seconds, job.title, lock)
    except (WriteError, ReadError, BusyError):
        if resumable or is_complete(job, scratch):
            is_left = leave(folder, job, held, scratch)
        raise
    finally:
        if not is_left:
            shutil.rmtree(scratch, ignore_errors=True)
    return noted


def _call_step(
    folder: SweepFolder,
    order: Order,
    before: Mapping[str, State],
    inputs: Inputs,
    scratch: Path,
) -> float:
    """Call the step of a job, which leaves its output in a scratch folder; return its seconds."""
    job, started = order.job, time.monotonic()
    step = import_module(order.steps).STEPS[job.kind]
    work = Work(job.params, job.hints, inputs.values, scratch / OUT)
    with (
        intact(folder, inputs),
        as_planned(job.hints, before) as state,
        writing(folder.place(job.kind, job.key), partial=scratch),
    ):
        rows = step(replace(work, state=state))
        rows = None if rows is None else list(rows)
    seconds = time.monotonic() - started
    if rows is not None:
        write_part(scratch / ROWS, job, rows, seconds, folder.durable)
    return seconds


@contextlib.contextmanager
def _publishing(
    folder: SweepFolder, job: Job, held: claims.Claim, seconds: float
) -> Iterator[None]:
    """Hold the claim while the block gives an output its place; add the line of the log."""
    with held.locked():
        yield
        note_finished(folder, job.kind, job.key, seconds)


def _publish_rows(
    folder: SweepFolder, job: Job, scratch: Path, lock: AbstractContextManager[None]
) -> None:
    place = folder.place(job.kind, job.key)
    with lock, writing(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        os.rename(scratch / ROWS, place)
        if folder.durable:
            sync_names(place.parent)


def _after_damage(folder: SweepFolder, order: Order, error: DamagedError) -> Answer:
    """Delete a damaged input, which the driver has made again."""
    key = order.job.key
    damaged = next((need for need in order.needs if need[1] in str(error)), None)
    if damaged is not None and not isinstance(error, MissingError):
        held = claims.claim(folder.claims, damaged[1])
        if held is None:
            return Answer(key, BUSY, 0.0, str(error), damaged)
        try:
            if not _delete_damaged(folder, *damaged, held):
                return Answer(key, BUSY, 0.0, str(error))
        finally:
            held.release()
    return Answer(key, DAMAGED, 0.0, str(error), damaged)


def _delete_damaged(folder: SweepFolder, kind: str, key: str, held: claims.Claim) -> bool:
    """Delete an output that is damaged; return False if it was made again since it was read."""
    try:
        # The owner of the claim alone publishes, so that what is inspected here is what goes.
        read_input(folder, kind, key, again=True)
    except MissingError:
        return True
    except DamagedError:
        with contextlib.suppress(BusyError), held.locked():
            if kind in FOLDERS:
                folder.delete(kind, key, damaged=True)
            else:  # or a driver has moved the rows, and sets aside the file that they are in
                folder.data.set_aside(folder.place(kind, key))
        return True
    return False
