"""The inputs of a job: outputs of other jobs, which are whole before a step reads them and after.

Each process hashes an object once, and again when a file of the object has another state
(`hashes.state_of`). The states are compared before a step and after it. So a step whose object
was damaged after the hash publishes nothing, whether the step read it before or after the damage.
A fault that leaves size and times of a file as they were (a disk that gives other bytes) is found
by the next process that reads the object.

Rows are read into memory, and hashed there.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simlab.store.files import reading
from simlab.store.hashes import State, state_of
from simlab.sweeps.contents import is_same, name_times
from simlab.sweeps.folder import OBJECT, DamagedError, MissingError, SweepFolder
from simlab.sweeps.parts import DamagedRowsError, as_results, read_rows_file
from simlab.sweeps.plan import FOLDERS

_LOOK_SECONDS = 0.5

Need = tuple[str, str]  # the kind and the key of a job that another job needs
States = Mapping[str, State]  # of all files of an object


@dataclass(frozen=True)
class Inputs:
    """What a step reads of other jobs.

    Attributes
    ----------
    values
        For each job, the folder that it made or the table of its rows.
    objects
        The states of the files of each folder.
    names
        When names last changed in these folders.
    """

    values: tuple[Any, ...]
    objects: Mapping[Need, States]
    names: Mapping[str, int]


def read_inputs(folder: SweepFolder, needs: Sequence[Need], patience: float = 0.0) -> Inputs:
    """Read the inputs of a job, and check them.

    Parameters
    ----------
    patience
        Seconds to wait for an input that is not there.

    Raises
    ------
    DamagedError
        An input is not there, or is not what was written. The message has its key.
    """
    until = time.monotonic() + patience
    while True:
        try:
            objects = {need: _checked(folder, *need) for need in needs if need[0] in FOLDERS}
            names = name_times(file for states in objects.values() for file in states)
            values = tuple(read_input(folder, *need) for need in needs)
            return Inputs(values, objects, names)
        except MissingError:
            if time.monotonic() > until:
                raise
        time.sleep(_LOOK_SECONDS)


def read_input(folder: SweepFolder, kind: str, key: str, again: bool = False) -> Any:
    """Return an input; `again` hashes an object that this process has hashed before.

    Raises
    ------
    DamagedError
        As `read_inputs`.
    """
    part = folder.place(kind, key)
    if kind in FOLDERS:
        _checked(folder, kind, key, again)
        return part
    try:
        with contextlib.suppress(FileNotFoundError):  # a driver gathers the part now
            return as_results(read_rows_file(part))
        table = folder.data.rows([key])
    except DamagedRowsError as error:
        raise DamagedError(f"{error}, which has the rows of {kind} {key}") from error
    if not len(table):
        raise MissingError(f"{part}: wanted the rows of {kind} {key}, found none")
    return as_results(table)


@contextmanager
def intact(folder: SweepFolder, inputs: Inputs) -> Iterator[None]:
    """Check after a block that nobody wrote to the objects that it read.

    Raises
    ------
    DamagedError
        An object is not what was written, or not the one that was read. It is raised in place of an
        error of the block.
    """
    try:
        yield
    except Exception as error:
        _require_same(folder, inputs, error)
        raise
    _require_same(folder, inputs, None)


def _require_same(folder: SweepFolder, inputs: Inputs, error: Exception | None) -> None:
    for need, before in inputs.objects.items():
        try:
            after = _checked(folder, *need)
            same_names = name_times(before).items() <= inputs.names.items()
            for file, state in before.items():
                if file not in after or not is_same(state, after[file], same_names):
                    raise DamagedError(
                        f"{file}: wanted a file that nobody touches while a job reads it, found "
                        "one that was written or replaced"
                    )
        except MissingError as missing:
            # A driver that makes room deletes whole objects; what has been read of them holds.
            if error is not None or not folder.gone(*need).exists():
                raise missing from error
        except DamagedError as damaged:
            raise damaged from error


_CHECKED: dict[Path, States] = {}  # the states in which this process hashed objects


def _checked(folder: SweepFolder, kind: str, key: str, again: bool = False) -> States:
    """Check an object, and return the states of its files."""
    place = folder.place(kind, key)
    try:
        with reading(place):
            place.stat()
        record = folder.record(kind, key)
        # Before the hashes: a later change gives other states, and then they are hashed again.
        states = {str(place / name): state_of(place / name) for name in (OBJECT, *record["files"])}
    except (FileNotFoundError, NotADirectoryError) as error:
        if not place.exists():  # also while another driver deletes it
            raise MissingError(f"{place}: wanted an object, found none") from None
        raise DamagedError(f"{error.filename}: wanted a file of an object, found none") from None
    if again or _CHECKED.get(place) != states:
        folder.check(kind, key)
        _CHECKED[place] = states
    return states
