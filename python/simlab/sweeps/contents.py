"""The content of models and tasks on this machine, and whether it stays as it was planned.

A key contains the hashes of local files as they were when the sweep was planned; a step reads the
files later, by their paths. The hints of a job therefore name the local models and tasks that its
step reads, with the content that was planned (`Source`). They are compared before the step begins
and after it has ended (`unchanged`). A job whose sources are others publishes nothing.

A data set of the hub is read at the commit that was planned: hints have it too (`HUB_DATA`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from simlab.errors import ReadError, UserError
from simlab.models.built import is_built
from simlab.models.checkpoint import EVALUATION, read_evaluation
from simlab.models.hub import split_revision
from simlab.models.sources import OFFLINE_MODEL, ModelSource, is_hub_name
from simlab.store.assets import ASSETS
from simlab.store.files import hash_json, reading
from simlab.store.hashes import HASHES, FileHashes, State, state_of
from simlab.sweeps.records import MemoryRecord, read_record
from simlab.tasks.files import CORPUS_SUFFIXES, FILE_SUFFIXES
from simlab.tasks.hub_data import HUB_PREFIX, HubData, at_revisions
from simlab.tasks.images import DIGITS
from simlab.tasks.images import FOLDER as IMAGES
from simlab.tasks.specs import TASKS

PRINTS = "fingerprints.json"  # in the folder of a sweep: hashes and commits of its plan
MODEL, TASK, ROWS = "model", "task", "rows"  # what a step reads; rows are files of arrays
SOURCES, HUB_DATA = "sources", "hub_data"  # among the hints of a job
# The keys of what keys of jobs contain of models and tasks of the hub.
HUB, REVISION = "hub", "revision"
FILES = "files"  # the key of the hash of local files in what a key of a job contains
_PACKAGES = {"rotten_tomatoes": "rt", "imdb": "rt"}  # other readers are called as their package


class ChangedError(UserError):
    """A local model, task or file of rows is not what it was when the sweep was planned."""


@dataclass(frozen=True)
class Source:
    """A local model, task or file of rows that a step reads.

    Attributes
    ----------
    what, name
        `MODEL`, `TASK` or `ROWS`, and its name in the file of the sweep.
    content
        What keys contain of it.
    """

    what: str
    name: str
    content: Any


def content_of(what: str, name: str, hashes: FileHashes) -> Any:
    """Return the part of a key that stands for a model, a task or a file of rows.

    Raises
    ------
    UserError
        There is none of this name on this machine and, of a model or task, none on the hub.
    """
    if (package := _package_of(what, name)) is not None:
        asset = ASSETS[package]
        return {"package": asset.package, "version": asset.version}
    if what == TASK and name == DIGITS:
        return {"package": "scikit-learn"}
    local = _local_files(what, name)
    if local is None:
        hub_name, revision = split_revision(name) if what == MODEL else _split_data(name)
        return {HUB: hub_name} if revision is None else {HUB: hub_name, REVISION: revision}
    folder, files = local
    content = {FILES: hash_json({str(f.relative_to(folder)): hashes.hash(f) for f in files})}
    if what == MODEL and (splits := read_evaluation(folder).get("splits")):
        # A later step keeps the split of a checkpoint, and reads it from the same folder.
        content["splits"] = hash_json(splits)
    return content


def source_hints(read: Sequence[tuple[str, str, Any]]) -> dict[str, Any]:
    """Return the hints of a job that reads models and tasks: local files, and data of the hub.

    Parameters
    ----------
    read
        `MODEL`, `TASK` or `ROWS`, the name, and what keys contain of it.
    """
    local = [one for one in read if FILES in one[2]]
    data = {
        n: content.get(REVISION) for what, n, content in read if what == TASK and HUB in content
    }
    return ({SOURCES: local} if local else {}) | ({HUB_DATA: data} if data else {})


def sources_of(hints: Mapping[str, Any]) -> list[Source]:
    """Return the local models and tasks that the step of a job reads."""
    return [Source(*one) for one in hints.get(SOURCES, ())]


@contextmanager
def as_planned(hints: Mapping[str, Any], before: Mapping[str, State]) -> Iterator[str]:
    """Read the data sets of the hub at their commits, and check local sources (`unchanged`).

    Parameters
    ----------
    before
        The states of the sources (`check_sources`).

    Yields
    ------
    str
        A text for the state of all files that the step of a job reads. Values read from them
        hold for every block with the same text.
    """
    data = hints.get(HUB_DATA, {})
    with at_revisions(data), unchanged(sources_of(hints), before) as state:
        yield hash_json([state, data])


@contextmanager
def unchanged(
    sources: Sequence[Source], before: Mapping[str, State] | None = None
) -> Iterator[str]:
    """Check that sources are what was planned, before the block and after it.

    Parameters
    ----------
    before
        The states of the sources, if they were checked (`require_planned`).

    Yields
    ------
    str
        A text for the state of all files. Values read from the sources hold for every block with
        the same text.

    Raises
    ------
    ChangedError
        A source is another than was planned, or a file of it was touched while the block ran. It
        is raised in place of an error of the block.
    """
    before = require_planned(sources) if before is None else before
    names = name_times(before)
    try:
        yield hash_json([_REFUSED[0], before])
    except Exception as error:
        _require_same(sources, before, names, error)
        raise
    _require_same(sources, before, names, None)


_REFUSED = [0]  # blocks of this process after which a source was another


def check_sources(hints: Mapping[str, Any], root: Path) -> dict[str, State]:
    """Check what the step of a job in sweep folder `root` will read, and return the states."""
    sources = sources_of(hints)
    if sources:
        _remember_hashes(root / PRINTS)
    return require_planned(sources)


@cache
def _remember_hashes(memory: Path) -> None:
    """Start with the hashes in the memory of the plan (`fingerprints`), once for each process."""
    record = read_record(memory, MemoryRecord)
    if record is not None:
        HASHES.known.update(record["files"])


def require_planned(sources: Sequence[Source]) -> dict[str, State]:
    """Check the content of sources, and return the states of their files.

    Raises
    ------
    ChangedError
        A source is another than was planned.
    """
    hashes = FileHashes(HASHES.known)
    for source in sources:
        try:
            record = Path(source.name).expanduser() / EVALUATION
            if source.what == MODEL and record.is_file():  # the splits of a checkpoint
                hashes.states[str(record)] = state_of(record)
            same = content_of(source.what, source.name, hashes) == source.content
        except ReadError:
            raise
        except (UserError, OSError) as error:
            raise ChangedError(f"{_changed(source)}, found: {error}") from error
        if not same:
            raise ChangedError(f"{_changed(source)}, found another")
    return hashes.states


def _require_same(
    sources: Sequence[Source],
    before: Mapping[str, State],
    names: Mapping[str, int],
    error: Exception | None,
) -> None:
    """Check the content of sources, and that no file was written or replaced since `before`.

    A file that was written and restored has its content and another time of change. A file that was
    moved away and put back has another time of change of its state alone, as after `chmod` or a
    hard link; but names in its folder have changed as well.
    """
    try:
        after = require_planned(sources)
        now = name_times(before)
        for file, state in before.items():
            new_state = after.get(file)
            if new_state is None or not is_same(state, new_state, now == names):
                raise ChangedError(
                    f"{file}: wanted a file that nobody touches while a job reads it, found one "
                    "that was written or replaced; the same command does the job again"
                )
    except ChangedError as changed:
        _REFUSED[0] += 1
        raise changed from error


def name_times(files: Iterable[str]) -> dict[str, int]:
    """Return when names last changed in the folders of files, and of the targets of links."""
    real = (os.path.realpath(file) if os.path.islink(file) else file for file in files)
    folders = {os.path.dirname(file) or os.curdir for file in real}
    times = {}
    for folder in folders:
        with reading(Path(folder)), suppress(FileNotFoundError):
            times[folder] = os.stat(folder).st_mtime_ns
    return times


def is_same(before: State, after: State, same_names: bool) -> bool:
    """Return whether a file stayed: its times, or all but the time of change of its state.

    The number of a file counts in the second case alone, because some servers give it anew.
    """
    size, changed, number, touched = before
    if (size, changed, touched) == (after[0], after[1], after[3]):
        return True
    return same_names and (size, changed, number) == after[:3]


def _changed(source: Source) -> str:
    return (
        f"{source.what} {source.name}: wanted the content that was planned (put it back, or run "
        "the command again, which plans anew)"
    )


def _package_of(what: str, name: str) -> str | None:
    """Return the package that has a model or task; None if none has."""
    if what == MODEL:
        return OFFLINE_MODEL if name == OFFLINE_MODEL else None
    offline = TASKS[name].offline if what == TASK and name in TASKS else ""
    return _PACKAGES.get(offline, offline) if offline else None


def _local_files(what: str, name: str) -> tuple[Path, list[Path]] | None:
    """Return the folder and the files of a model or task; None if it is one of the hub."""
    if what == ROWS:
        return _rows_file(name)
    return _model_files(name) if what == MODEL else _task_files(name)


def _rows_file(name: str) -> tuple[Path, list[Path]]:
    place = Path(name).expanduser()
    if not place.is_file():
        raise UserError(f"sweep, key models.rows.files: wanted a file, found no file {name}")
    return place.parent, [place]


def _model_files(name: str) -> tuple[Path, list[Path]] | None:
    if is_built(name):
        raise UserError(f"sweep, key models: wanted a model of transformers, found {name}")
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder, ModelSource(name, folder).files
    if not is_hub_name(name):
        raise UserError(f"model {name}: wanted a folder with config.json, found no such folder")
    return None


def _split_data(name: str) -> tuple[str, str | None]:
    data = HubData.of_task(name)
    return str(replace(data, revision=None)), data.revision


def _task_files(name: str) -> tuple[Path, list[Path]] | None:
    known, _, folder = name.partition(":")
    if (known in TASKS and not folder) or name.startswith(HUB_PREFIX):
        return None
    place = Path(folder if known in TASKS else name.removeprefix(IMAGES)).expanduser()
    if place.is_file():
        return place.parent, [place]
    if place.is_dir():
        return place, sorted(file for file in place.rglob("*") if file.is_file())
    is_file = place.suffix.lower() in (*FILE_SUFFIXES, *CORPUS_SUFFIXES)
    if known in TASKS or is_file or place.is_absolute() or name.startswith(IMAGES):
        raise UserError(f"task {name}: wanted a file or folder, found none")
    return None
