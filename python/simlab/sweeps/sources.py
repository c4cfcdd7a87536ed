"""Models and data that a sweep reads: what keys contain of them, and whether they stay so.

Planning downloads nothing. A task of the offline packages is known by its pinned version, local
files by their content, and a model or data set of the hub by its name and its commit: the commit of
``name@revision`` or, without a revision, of ``main``, as the cache had it when a command first read
the name for this folder. `Sources` keeps commits and hashes in ``fingerprints.json``. A run
downloads what the caches lack before it makes its keys; with `max_disk`, steps of a training are
announced alone, and jobs download them. A plan that is only shown has the names alone.

A key contains local files as they were when the sweep was planned. The hints of a job therefore
name the models and tasks that its step reads, with the content that was planned, which is compared
before the step and after it (`as_planned`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from simlab.errors import ReadError, UserError
from simlab.models.adapters import is_adapter
from simlab.models.built import is_built
from simlab.models.checkpoint import EVALUATION, read_evaluation
from simlab.models.hub import announce, cached_revision, find_whole, split_revision
from simlab.models.sources import OFFLINE_MODEL, ModelSource, is_hub_name, resolve
from simlab.store.assets import ASSETS
from simlab.store.console import note
from simlab.store.files import (
    HASHES,
    FileHashes,
    State,
    hash_json,
    state_of,
    sync,
    sync_names,
    write_json,
)
from simlab.sweeps.outputs import read_record
from simlab.sweeps.plan import EXTRACT, FINETUNE, PRETRAIN, Plan
from simlab.tasks.files import CORPUS_SUFFIXES, DIGITS, FILE_SUFFIXES, IMAGES
from simlab.tasks.hub import HUB_PREFIX, HubData, at_revisions, cached_commit, download
from simlab.tasks.specs import TASKS

PRINTS = "fingerprints.json"
MODEL, TASK, ROWS = "model", "task", "rows"  # what a step reads; rows are files of arrays
SOURCES, HUB_DATA = "sources", "hub_data"  # among the hints of a job
# The keys of what keys of jobs contain of models and tasks of the hub, and of local files.
HUB, REVISION, FILES = "hub", "revision", "files"
_PACKAGES = {"rotten_tomatoes": "rt", "imdb": "rt"}  # other readers are called as their package
_COMMIT = re.compile(r"[0-9a-f]{40}")


class ChangedError(UserError):
    """A local model, task or file of rows is not what it was when the sweep was planned."""


class Sources:
    """What keys contain of models and tasks; file `memory` keeps it from one plan to the next."""

    def __init__(self, memory: Path | None = None) -> None:
        self.memory = memory
        shape = {"files": dict, "revisions": dict, "announced": dict}
        record = (memory and read_record(memory, **shape)) or {name: {} for name in shape}
        self._revisions, self.announced = record["revisions"], record["announced"]
        self._hashes = FileHashes(known_hashes(record))
        self._saved = self._remembered()
        self._found: dict[tuple[str, str], Any] = {}

    def content(self, what: str, name: str) -> Any:
        """Return the part of a key that stands for a model, or a file of rows."""
        if (what, name) not in self._found:
            self._found[what, name] = content_of(what, name, self._hashes)
        return self._found[what, name]

    def task(self, name: str) -> Any:
        """Return the part of a key that stands for the data of task `name`."""
        content = self.content(TASK, name)
        if HUB not in content or _COMMIT.fullmatch(content.get(REVISION, "")):
            return content
        data = HubData.of_task(name)
        commit = self._revisions.get(str(data)) or cached_commit(data)
        if commit is None:
            return content
        self._revisions[str(data)] = commit  # the names of data sets begin with "hub:"
        return {**content, REVISION: commit}

    def pinned(self, name: str) -> str:
        """Return the name of a model; of one of the hub, with the revision that is taken."""
        hub_name, revision = split_revision(name)
        if not is_hub_name(name) or (revision and _COMMIT.fullmatch(revision)):
            return name
        commit = self._revisions.get(name) or cached_revision(name)
        if commit is None:
            return name
        self._revisions[name] = commit
        return f"{hub_name}@{commit}"

    def announce(self, name: str) -> None:
        """Pin a revision of a model of the hub, and remember its size, before it is downloaded."""
        found = announce(name)
        pinned = f"{split_revision(name)[0]}@{found.commit}"
        if name != pinned:
            self._revisions[name] = found.commit
        self.announced[pinned] = found.bytes

    def save(self) -> None:
        """Write what is new to the memory; without the commits, keys would be others."""
        now = self._remembered()
        if self.memory is not None and now != self._saved:
            write_json(self.memory, now)
            sync(self.memory)
            sync_names(self.memory.parent)
            self._saved = now

    def _remembered(self) -> dict[str, Any]:
        kept = {"revisions": self._revisions, "announced": self.announced}
        return {"files": {**self._hashes.known}, **{name: {**one} for name, one in kept.items()}}


def known_hashes(record: Mapping[str, Any]) -> dict[str, tuple[State, str]]:
    """Return the states and hashes of files in a memory."""
    with suppress(TypeError, ValueError):
        return {file: ((*state,), str(digest)) for file, (state, digest) in record["files"].items()}
    return {}


def content_of(what: str, name: str, hashes: FileHashes) -> Any:
    """Return the part of a key that stands for a model, a task or a file of rows."""
    offline = TASKS[name].offline if what == TASK and name in TASKS else None
    if offline or (what, name) == (MODEL, OFFLINE_MODEL):
        asset = ASSETS[_PACKAGES.get(offline, offline) if offline else name]
        return {"package": asset.package, "version": asset.version}
    if what == TASK and name == DIGITS:
        return {"package": "scikit-learn"}
    local = _LOCAL[what](name)
    if local is None:
        if what == MODEL:
            hub_name, revision = split_revision(name)
        else:
            data = HubData.of_task(name)
            hub_name, revision = str(replace(data, revision=None)), data.revision
        return {HUB: hub_name} if revision is None else {HUB: hub_name, REVISION: revision}
    folder, files = local
    content = {FILES: hash_json({str(f.relative_to(folder)): hashes.hash(f) for f in files})}
    if what == MODEL and (splits := read_evaluation(folder).get("splits")):
        # A later step keeps the split of a checkpoint, and reads it from the same folder.
        content["splits"] = hash_json(splits)
    return content


def source_hints(read: Sequence[tuple[str, str, Any]]) -> dict[str, Any]:
    """Return the hints of a job that reads models and tasks: names, and what keys contain."""
    local = [one for one in read if FILES in one[2]]
    data = {
        n: content.get(REVISION) for what, n, content in read if what == TASK and HUB in content
    }
    return ({SOURCES: local} if local else {}) | ({HUB_DATA: data} if data else {})


@contextmanager
def as_planned(root: Path, hints: Mapping[str, Any]) -> Iterator[str]:
    """Read data sets of the hub at their commits, and check that local sources stay as planned.

    `root`: the folder of the sweep, whose memory has the hashes of the plan.

    Yields a text for the state of all files that the step of a job reads. Values read from them
    hold for every block with the same text.
    """
    sources, data = hints.get(SOURCES, ()), hints.get(HUB_DATA, {})
    if sources:
        _remember_hashes(root / PRINTS)
    before = _require_planned(sources)
    with at_revisions(data):
        try:
            yield hash_json([before, data])
        finally:
            after = _require_planned(sources)
            touched = [file for file, state in before.items() if after.get(file) != state]
            if touched:
                raise ChangedError(
                    f"{touched[0]}: wanted a file that nobody touches while a job reads it, found "
                    "one that was written, replaced or given other rights; the same command does "
                    "the job again"
                )


@cache
def _remember_hashes(memory: Path) -> None:
    """Start with the hashes in the memory of the plan, once for each process."""
    HASHES.known.update(known_hashes(read_record(memory, files=dict) or {"files": {}}))


def _require_planned(sources: Sequence[Sequence[Any]]) -> dict[str, State]:
    """Check the content of sources, and return the states of their files."""
    hashes = FileHashes(HASHES.known)
    for what, name, content in sources:
        wanted = (
            f"{what} {name}: wanted the content that was planned (put it back, or run the command "
            "again, which plans anew), found"
        )
        try:
            record = Path(name).expanduser() / EVALUATION
            if what == MODEL and record.is_file():  # the splits of a checkpoint
                hashes.states[str(record)] = state_of(record)
            same = content_of(what, name, hashes) == content
        except ReadError:
            raise
        except (UserError, OSError) as error:
            raise ChangedError(f"{wanted}: {error}") from error
        if not same:
            raise ChangedError(f"{wanted} another")
    return hashes.states


def _rows_file(name: str) -> tuple[Path, list[Path]]:
    place = Path(name).expanduser()
    if not place.is_file():
        raise UserError(f"sweep, key models.rows.file: wanted a file, found no file {name}")
    return place.parent, [place]


def _model_files(name: str) -> tuple[Path, list[Path]] | None:
    if is_built(name):
        raise UserError(f"sweep, key models: wanted a model of transformers, found {name}")
    folder = Path(name).expanduser()
    if is_adapter(folder):
        raise UserError(
            f"sweep, key models: wanted whole models, found an adapter, {name}; peft merges it: "
            "AutoPeftModel.from_pretrained(FOLDER).merge_and_unload().save_pretrained(OTHER)"
        )
    if folder.is_dir():
        return folder, ModelSource(name, folder).files
    if not is_hub_name(name):
        raise UserError(f"model {name}: wanted a folder with config.json, found no such folder")
    return None


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


# The folder and the files of a source of each kind; None if it is one of the hub.
_LOCAL = {MODEL: _model_files, TASK: _task_files, ROWS: _rows_file}


def missing_models(plan: Plan, wanted: Sequence[bool]) -> list[str]:
    """Return the models of the hub that wanted jobs load and the client's cache lacks."""
    jobs = [job for job, is_wanted in zip(plan.jobs, wanted, strict=True) if is_wanted]
    loading = [job.hints["tokenizer"] for job in jobs if job.kind == PRETRAIN]
    first = [job for job in jobs if job.kind in (FINETUNE, EXTRACT) and not job.needs]
    loading += [job.hints["model"] for job in first if "model" in job.hints]
    return [n for n in dict.fromkeys(loading) if is_hub_name(n) and find_whole(n) is None]


def missing_data(plan: Plan, wanted: Sequence[bool]) -> dict[str, str | None]:
    """Return the tasks of the hub that wanted jobs load and the cache lacks, each at its commit."""
    loading: dict[str, str | None] = {}
    for job, is_wanted in zip(plan.jobs, wanted, strict=True):
        loading |= job.hints.get(HUB_DATA, {}) if is_wanted else {}
    return {
        name: revision
        for name, revision in loading.items()
        if cached_commit(replace(HubData.of_task(name), revision=revision)) is None
    }


def fetch_missing(
    plan: Plan, needed: Sequence[bool], sources: Sources, *, bounded: bool = False
) -> bool:
    """Download the models and data sets that needed jobs load, so that they ask the hub nothing."""
    models, data = missing_models(plan, needed), missing_data(plan, needed)
    steps = {j.hints.get("model") for j in plan.jobs if j.hints.get("step") is not None}
    later = [name for name in models if bounded and name in steps]
    models = [name for name in models if name not in later]
    for name in later:
        sources.announce(name)
    if later:
        note(f"{len(later)} steps of training are downloaded by jobs, and deleted (max_disk)")
    for number, name in enumerate(models, 1):
        resolve(name)
        note(f"model {name} is in the hub's cache ({number} of {len(models)})")
    with at_revisions(data):
        for name in data:
            known = name in TASKS
            download(TASKS[name].hub if known else name, name if known else None)
    return bool(models or data or later)
