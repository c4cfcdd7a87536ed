"""Jobs that make a folder once per set of inputs: keyed by a hash, finished by one rename.

The process that makes an output holds a lock on a file beside the output, ``.NAME.lock``. When the
process ends, in whatever way, the system releases the lock: a dead process holds none, and no
process number has to be looked up. The text of the lock file tells people who holds the lock. Its
owner deletes the file before it releases the lock; a process that opened the file earlier finds
that it has no name, and opens a new one. Readers need no lock: an output appears by one rename.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from simlab.errors import BusyError, UserError, WriteError, argument, spelled
from simlab.store.files import (
    hash_json,
    read_json,
    real_output,
    replace_folder,
    require_replaceable,
    write_json,
    writing,
)

# Part of the key of every folder and results file. Raised when a step makes something else of the
# same inputs, so that what older code made is not taken for it.
MADE = 2
RECORD = "job.json"
PARTIAL_SUFFIX = ".partial"
SCRATCH = "trainer"  # in a partial folder: what a work continues from, and no part of its output
_FIELDS = {"key", "seconds", "inputs"}
_FINISHED = "finished"  # true in the record of a partial folder that has only to be renamed
_WAITING: ContextVar[list[Callable[[Path], None]] | None] = ContextVar("waiting", default=None)
# Time to wait for a held lock: its owner may be about to end, or may not have signed yet.
_PATIENCE_SECONDS = 0.5


@dataclass(frozen=True)
class Outcome:
    """The result of a job.

    Attributes
    ----------
    path
        The folder or file that the job made.
    key
        Hash of the inputs of the job.
    seconds
        Time that the work took, in this run or in the earlier run that did the work.
    skipped
        Whether an earlier run had done the work already.
    """

    path: Path
    key: str
    seconds: float
    skipped: bool


def run_job(
    folder: Path,
    inputs: Mapping[str, Any],
    make: Callable[[Path], None],
    *,
    replace: bool = False,
    resumable: bool = False,
) -> Outcome:
    """Make `folder` by calling ``make(partial_folder)``, unless it was made from the same inputs.

    The folder appears by one rename, complete, with a record of `inputs`, whose hash is the key of
    the job; a link to a folder stays, and the folder that the link leads to is made. If
    `resumable`, the files of an interrupted `make` are kept, and given to the next call with the
    same key.
    """
    inputs = {"version": MADE, **inputs}
    key = hash_json(inputs)
    place = real_output(folder)
    outcome = _find_done(place, key, inputs, replace)
    if outcome is None:  # a finished folder needs no lock, so the place may be read-only
        with owned(place), writing(place, partial=_partial(place)):
            # The last owner of the lock may have finished the folder meanwhile.
            outcome = _find_done(place, key, inputs, replace)
            outcome = outcome or _make_folder(place, key, inputs, make, resumable)
    return dataclasses.replace(outcome, path=folder)


@contextlib.contextmanager
def named_after(path: Path, other: Callable[[Path], None]) -> Iterator[None]:
    """Let `other` run before the output `path` that the block makes gets its name.

    What `other` refuses thus leaves no output, and what the block refuses keeps `other` from
    running. `other` takes the place of the finished output: a partial one, or `path` itself if it
    was made before.
    """
    token = _WAITING.set([other])
    try:
        yield
        run_waiting(path)
    finally:
        _WAITING.reset(token)


def run_waiting(place: Path) -> None:
    """Run what waits for the output at `place` (`named_after`), once."""
    waiting = _WAITING.get()
    if waiting:
        try:
            waiting.pop()(place)
        except UserError as error:
            error.message = spelled(error.message)  # what made the output may be spelled otherwise
            raise


def _find_done(folder: Path, key: str, inputs: Mapping[str, Any], replace: bool) -> Outcome | None:
    """Return the outcome of an earlier run with this key, or None if `folder` may be made."""
    record = _read_record(folder)
    if record is not None and record["key"] == key:
        return Outcome(folder, key, record["seconds"], skipped=True)
    if folder.exists() and not folder.is_dir():
        raise UserError(
            f"{argument('out', folder)}: wanted a folder, found a file; choose another "
            f"{argument('out')}"
        )
    if folder.exists() and not replace:
        raise UserError(
            f"{argument('out', folder)}: wanted a new folder or a folder made from the same "
            f"inputs, found {_describe_other(record, inputs)}; choose another {argument('out')} or "
            f"pass {argument('overwrite', True)}"
        )
    if folder.exists():
        require_replaceable(folder)
    return None


def _make_folder(
    folder: Path, key: str, inputs: Mapping[str, Any], make: Callable[[Path], None], resumable: bool
) -> Outcome:
    partial = _prepare_partial(folder, key, inputs, resumable)
    record = read_json(partial / RECORD)
    spent, started = record["seconds"], time.monotonic()
    try:
        if not record.get(_FINISHED):
            make(partial)
            record["seconds"] = spent + time.monotonic() - started
            write_json(partial / RECORD, record | {_FINISHED: True})
        run_waiting(partial)
    except BaseException as error:
        _after_failure(partial, key, inputs, spent + time.monotonic() - started, error, resumable)
        raise
    shutil.rmtree(partial / SCRATCH, ignore_errors=True)
    replace_folder(partial, folder)
    return Outcome(folder, key, record["seconds"], skipped=False)


def _read_record(folder: Path) -> dict[str, Any] | None:
    """Return the record of a job; None if there is none, or another program's."""
    try:
        record = read_json(folder / RECORD)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return record if isinstance(record, dict) and record.keys() >= _FIELDS else None


def _describe_other(record: dict[str, Any] | None, inputs: Mapping[str, Any]) -> str:
    if record is None:
        return "a folder with other content"
    names = {*record["inputs"], *inputs}
    changed = sorted(name for name in names if record["inputs"].get(name) != inputs.get(name))
    return f"a folder made with a different {', '.join(changed)}"


def _partial(folder: Path) -> Path:
    return folder.with_name(folder.name + PARTIAL_SUFFIX)


def _prepare_partial(folder: Path, key: str, inputs: Mapping[str, Any], resumable: bool) -> Path:
    partial = _partial(folder)
    record = _read_record(partial)
    if not (resumable and record is not None and record["key"] == key):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            write_json(partial / RECORD, {"key": key, "seconds": 0.0, "inputs": dict(inputs)})
        except WriteError:
            partial.rmdir()
            raise
    return partial


def _after_failure(
    partial: Path,
    key: str,
    inputs: Mapping[str, Any],
    seconds: float,
    error: BaseException,
    resumable: bool,
) -> None:
    """Keep a partial folder that can be resumed, and note the time spent; else delete it."""
    leftovers = [path for path in partial.iterdir() if path.name != RECORD]
    mistake = isinstance(error, UserError) and not isinstance(error, WriteError)
    if not (resumable and leftovers) or mistake:
        shutil.rmtree(partial, ignore_errors=True)
        return
    # On a full disk the old record stays: its inputs are right, and it only lacks the time.
    with contextlib.suppress(WriteError):
        write_json(partial / RECORD, {"key": key, "seconds": seconds, "inputs": dict(inputs)})


@contextmanager
def owned(output: Path, *, lock: Path | None = None) -> Iterator[None]:
    """Hold the lock of `output` in a block; raise BusyError if another process holds it."""
    from filelock import FileLock, Timeout

    if lock is None:
        output = real_output(output)
        lock = output.with_name(f".{output.name}.lock")
    signature, owner = _signature(), os.getpid()
    with writing(output):
        lock.parent.mkdir(parents=True, exist_ok=True)
        # No fallback to a lock that exists as long as its file: a dead owner would still hold it.
        try:
            held = FileLock(lock, fallback_to_soft=False).acquire(timeout=_PATIENCE_SECONDS)
        except Timeout:
            raise BusyError(
                f"{argument('out', output)}: wanted one process at a time, found "
                f"{_read(lock) or 'another process'}; wait for it or choose another "
                f"{argument('out')}"
            ) from None
    with held:
        try:
            with writing(output):
                lock.write_bytes(os.fsencode(signature))
            yield
        finally:
            # A forked child leaves the lock alone, and somebody may have deleted the file by hand.
            if os.getpid() == owner and signature.startswith(_read(lock)):
                lock.unlink(missing_ok=True)


def is_owned(lock: Path) -> bool:
    """Return whether a process holds the lock in file `lock`."""
    import fcntl

    with suppress(FileNotFoundError), lock.open("rb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _signature() -> str:
    """Describe this process in one line: number, machine, time and command."""
    since = datetime.now().astimezone().isoformat(" ", "seconds")
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    return f"process {os.getpid()} on {socket.gethostname()} since {since} (`{command}`)"


def _read(lock: Path) -> str:
    """Return the signature in file `lock`; empty if there is none yet, or no file."""
    with suppress(FileNotFoundError):
        return os.fsdecode(lock.read_bytes())
    return ""
