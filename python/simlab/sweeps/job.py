"""Do one job, wherever that is: check its inputs, call its step, publish its output.

An executor brings an `Order` to some process and the answer back; both are small and can be
pickled. Jobs read and write paths of one folder that all processes see. A process that does a job
publishes its output and answers; all else is the driver's. A job that two processes do, because a
driver was killed and its worker was not, is published once.
"""

from __future__ import annotations

import errno
import os
import socket
import time
import traceback
import uuid
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from simlab.errors import BusyError, ReadError, UserError, WriteError, spelled
from simlab.steps.words import as_key
from simlab.store.files import writing
from simlab.store.hub import HubError
from simlab.store.jobs import owned
from simlab.sweeps.outputs import DamagedError, Need, SweepFolder, discard
from simlab.sweeps.plan import FOLDERS, RESUMABLE, Job
from simlab.sweeps.rows import write_part
from simlab.sweeps.sources import ChangedError, as_planned

# Outcomes of an order.
DONE, FAILED = "done", "failed"
BUSY = "busy"  # a process that no driver waits for works on the job
DAMAGED = "damaged"  # an output that the job needs is not what was written
REFUSED = "refused"  # the system refused to write: the disk is full
UNREAD = "unread"  # the system refused to read, or to open more files
DIED = "died"  # the process has gone; the driver finds it
_STATES = {DamagedError: DAMAGED, BusyError: BUSY, WriteError: REFUSED, ReadError: UNREAD}


@dataclass(frozen=True)
class Order:
    """A job to do, and where: everything that another process needs."""

    root: str  # the folder of the sweep
    job: Job  # the job, and the kinds and keys of the jobs that it needs, in order
    needs: tuple[Need, ...]
    durable: bool = True  # whether the output is written to the disk before it counts
    steps: str = "simlab.sweeps.steps"  # module with ``STEPS``
    patience: float = 0.0  # seconds to wait for an input that a network file system shows late


@dataclass(frozen=True)
class Work:
    """The arguments of a step."""

    params: Mapping[str, Any]  # as in the job (`plan.Job`)
    hints: Mapping[str, Any]
    # For every job that is needed, the folder that it made or the table of its rows.
    inputs: tuple[Any, ...]
    out: Path  # the folder to make, if the step makes one; it does not exist
    # A text for the state of all models and data that the step reads (`sources.as_planned`).
    state: str = ""


@dataclass(frozen=True)
class Answer:
    """The outcome of an order."""

    state: str  # one of the words above
    seconds: float = 0.0  # time that the job took
    message: str = ""  # the error in one line, and its traceback
    trace: str = ""
    damaged: Need | None = None  # kind and key of the output that is not what was written
    # Whether a later command tries a failed job again, because the reason may be gone.
    passing: bool = False
    machine: str = ""  # name of the machine


class Died(Exception):
    """The end of a process at work; an executor gives it in place of an answer."""

    def __init__(self, message: str, outside: bool) -> None:
        super().__init__(message)
        self.outside = outside  # whether a queue, a person or the end of a machine ended it


def do(order: Order) -> Answer:
    """Do a job, unless it is done; errors become the answer."""
    started = time.monotonic()
    folder, machine = SweepFolder(Path(order.root), order.durable), socket.gethostname()
    try:
        _make(folder, order)
        return Answer(DONE, time.monotonic() - started, machine=machine)
    except Exception as error:
        state = next((word for kind, word in _STATES.items() if isinstance(error, kind)), FAILED)
        if state == FAILED and _lacked_files(error):  # which is no fault of the job
            state = UNREAD
        return Answer(
            state,
            time.monotonic() - started,
            message=last_line(error),
            trace=_encodable("".join(traceback.format_exception(error))),
            damaged=getattr(error, "need", None),
            passing=isinstance(error, ChangedError | HubError),
            machine=machine,
        )


def _make(folder: SweepFolder, order: Order) -> None:
    """Make the output of a job in a folder of its own, and publish it.

    The folder of a resumable job has its key alone as its name, and stays where the system refused.
    Whoever works there holds its lock: a worker of a killed driver and a new one do not meet.
    """
    stays = is_resumable = order.job.kind in RESUMABLE
    scratch = folder.work / order.job.key
    if not is_resumable:
        scratch = scratch.with_name(f"{scratch.name}-{uuid.uuid4().hex[:8]}")
    with owned(scratch) if is_resumable else nullcontext():
        try:
            _make_in(folder, order, scratch)
            stays = False
        except Exception as error:
            stays = stays and isinstance(error, BusyError | WriteError | ReadError)
            raise
        finally:
            if not stays:
                discard(scratch)


def _make_in(folder: SweepFolder, order: Order, scratch: Path) -> None:
    job, started = order.job, time.monotonic()
    if folder.has(job.kind, job.key):
        return
    inputs = tuple(folder.read(*need, order.patience) for need in order.needs)
    before = {need: folder.states(*need) for need in order.needs if need[0] in FOLDERS}
    out, rows = scratch / "out", scratch / "rows.parquet"
    with writing(folder.place(job.kind, job.key), partial=scratch):
        scratch.mkdir(parents=True, exist_ok=True)
        try:
            with as_planned(folder.root, job.hints) as state:
                step = import_module(order.steps).STEPS[job.kind]
                made = step(Work(job.params, job.hints, inputs, out, state))
                if job.is_rows:
                    write_part(rows, job.key, made, order.durable)
        finally:  # in place of an error of the step, which may have read other bytes
            for need, states in before.items():
                if folder.states(*need) != states:
                    place = folder.place(*need)
                    raise DamagedError(
                        f"{place}: wanted an object that stays, found a change", *need
                    )
    whole, seconds = rows if job.is_rows else out, time.monotonic() - started
    folder.publish(job.kind, job.key, whole, seconds, job.title)


def last_line(error: object) -> str:
    """Return an error in one line, which UTF-8 can encode."""
    said = spelled(error.message, as_key) if isinstance(error, UserError) else str(error)
    text = " ".join(_encodable(said).split())
    return text if isinstance(error, UserError) else f"{type(error).__name__}: {text}"


def _encodable(text: str) -> str:
    """Escape bytes of the name of a file that are no UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def _lacked_files(error: BaseException | None) -> bool:
    """Return whether an error, or one that it came from, says that too many files are open.

    The message tells: libraries wrap the error of the system, and drop its number.
    """
    while error is not None:
        if os.strerror(errno.EMFILE) in str(error):  # the words of ENFILE begin with the same
            return True
        error = error.__cause__ or error.__context__
    return False
