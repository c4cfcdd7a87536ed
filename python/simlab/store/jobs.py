"""Steps that run once, one process each: keyed by a hash of inputs, finished by a rename."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simlab.errors import UserError, WriteError
from simlab.store.files import (
    hash_json,
    read_json,
    real_output,
    replace_folder,
    require_replaceable,
    write_json,
    writing,
)
from simlab.store.ownership import owned

RECORD = "job.json"
PARTIAL_SUFFIX = ".partial"


@dataclass(frozen=True)
class Outcome:
    """What a job did: where, the key of its inputs, the seconds the work took, now or before."""

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
    option: str = "--out",
) -> Outcome:
    """Produce `folder` by calling ``make(partial_folder)``, unless it is already there.

    Parameters
    ----------
    folder
        The finished folder. It appears by one rename, complete, with a record of its inputs. A link
        to a folder stays as it is, and the folder that it leads to is made.
    inputs
        Everything the output depends on, as JSON values. Its hash is the job's key.
    make
        Writes the output into the folder it is given.
    replace
        What to do when `folder` was made from other inputs: make it anew, or raise.
    resumable
        Keep what an interrupted `make` left and hand it to the next call with the same key.
    option
        The option that named `folder`, for error messages.

    Raises
    ------
    UserError
        `folder` exists, was made from other inputs (or by something else), and not `replace`; or
        it cannot be written, e.g. because the disk is full.
    BusyError
        Another process is making it.
    """
    key = hash_json(inputs)
    place = real_output(folder, option)
    outcome = _find_done(place, key, inputs, replace, option)
    if outcome is None:  # a finished one needs no lock, and so no place to write
        with owned(place, option=option), writing(place, partial=_partial(place)):
            # Its last owner may have finished it meanwhile.
            outcome = _find_done(place, key, inputs, replace, option)
            outcome = outcome or _make_folder(place, key, inputs, make, resumable)
    return dataclasses.replace(outcome, path=folder)


def _find_done(
    folder: Path, key: str, inputs: Mapping[str, Any], replace: bool, option: str
) -> Outcome | None:
    """The outcome of an earlier run with this key, or None if `folder` may be made."""
    record = _read_record(folder)
    if record is not None and record["key"] == key:
        return Outcome(folder, key, record["seconds"], skipped=True)
    if folder.exists() and not folder.is_dir():
        raise UserError(
            f"{option} {folder}: wanted a folder, found a file; choose another {option}"
        )
    if folder.exists() and not replace:
        raise UserError(
            f"{option} {folder}: wanted a new folder or one made from the same inputs, found "
            f"{_describe_other(record, inputs)}; choose another {option} or pass --overwrite"
        )
    if folder.exists():
        require_replaceable(folder, option)
    return None


def _make_folder(
    folder: Path,
    key: str,
    inputs: Mapping[str, Any],
    make: Callable[[Path], None],
    resumable: bool,
) -> Outcome:
    partial = _prepare_partial(folder, key, inputs, resumable)
    spent = read_json(partial / RECORD)["seconds"]
    started = time.monotonic()
    try:
        make(partial)
        seconds = spent + time.monotonic() - started
        write_json(partial / RECORD, {"key": key, "seconds": seconds, "inputs": dict(inputs)})
    except BaseException as error:
        _after_failure(partial, key, inputs, spent + time.monotonic() - started, error, resumable)
        raise
    replace_folder(partial, folder)
    return Outcome(folder, key, seconds, skipped=False)


def _read_record(folder: Path) -> dict[str, Any] | None:
    try:
        return read_json(folder / RECORD)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _describe_other(record: dict[str, Any] | None, inputs: Mapping[str, Any]) -> str:
    if record is None:
        return "a folder with other content"
    names = {*record["inputs"], *inputs}
    changed = sorted(name for name in names if record["inputs"].get(name) != inputs.get(name))
    return f"one made with a different {', '.join(changed)}"


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
    """Keep what can be resumed, with the time it cost; a user's mistake leaves nothing."""
    kept = [path for path in partial.iterdir() if path.name != RECORD]
    mistake = isinstance(error, UserError) and not isinstance(error, WriteError)
    if not (resumable and kept) or mistake:
        shutil.rmtree(partial, ignore_errors=True)
        return
    # On a full disk the record that is there has to do: it only lacks the time.
    with contextlib.suppress(WriteError):
        write_json(partial / RECORD, {"key": key, "seconds": seconds, "inputs": dict(inputs)})
