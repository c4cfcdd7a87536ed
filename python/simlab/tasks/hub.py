"""Data sets of the hub: one revision, downloaded by the datasets library or read from its cache.

The library asks the hub at every load, and where the hub does not answer it takes the latest
version that it has, whatever revision is asked. So a record beside its cache lists the files of
each commit that was loaded: a commit that has one is read without a request. A sweep reads one
commit of a data set for as long as its folder is there (`at_revisions`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from simlab.errors import UserError, did_you_mean, first_line, one_of
from simlab.store.files import hash_json, read_json, write_json
from simlab.store.hub import hub_errors
from simlab.store.runtime import quiet_datasets
from simlab.tasks.files import FILE_SUFFIXES
from simlab.tasks.specs import COPIES, TASKS

HUB_PREFIX = "hub:"
_DATASET = "dataset"  # as the client of the hub calls repositories of data sets
_OF_A_SCRIPT = "scripts are no longer supported"  # in the library's message


@dataclass(frozen=True)
class HubData:
    """A data set of the hub: ``NAME``, its configuration and its revision, if they are named."""

    path: str
    config: str | None = None
    revision: str | None = None

    @classmethod
    def parse(cls, name: str) -> HubData:
        """Return the data set of a name such as ``hub:NAME:CONFIG@REVISION``.

        >>> HubData.parse("hub:nyu-mll/glue:cola@main")
        HubData(path='nyu-mll/glue', config='cola', revision='main')
        """
        named, _, revision = name.removeprefix(HUB_PREFIX).partition("@")
        path, _, config = named.partition(":")
        return cls(path, config or None, revision or None)

    @classmethod
    def of_task(cls, name: str) -> HubData:
        """Return the data set that a task is read from: of the table of tasks, or by its name."""
        return cls.parse(TASKS[name].hub if name in TASKS else name)

    def __str__(self) -> str:
        config = "" if self.config is None else f":{self.config}"
        revision = "" if self.revision is None else f"@{self.revision}"
        return f"{HUB_PREFIX}{self.path}{config}{revision}"


_REVISIONS: ContextVar[Mapping[HubData, str | None] | None] = ContextVar("revisions", default=None)


@contextmanager
def at_revisions(tasks: Mapping[str, str | None]) -> Iterator[None]:
    """Load the data sets of tasks at a revision inside the block.

    `tasks` has names of tasks of the hub, and the revision of each, which replaces the revision in
    its name; None is ``main``.
    """
    token = _REVISIONS.set({HubData.of_task(name): chosen for name, chosen in tasks.items()})
    try:
        yield
    finally:
        _REVISIONS.reset(token)


def cached_commit(data: HubData) -> str | None:
    """Return the commit of a data set that is in the cache and needs no request; None otherwise."""
    commit = _noted_commit(data)
    return commit if commit is not None and _recorded(data, commit) else None


def download(name: str, task: str | None = None) -> dict[str, Any]:
    """Load all splits of data set ``NAME`` or ``hub:NAME[:CONFIG][@REVISION]``.

    `task` is the named task that the data set belongs to, for error messages.
    """
    subject, wanted = f"task {task or name}", f"the data set {name} of the hub"
    if task:
        wanted += f", or its files as {task}:FOLDER"
    elif not name.startswith(HUB_PREFIX):
        meant = did_you_mean(name, TASKS)
        subject += meant
        wanted = (
            f"{one_of(TASKS, meant)}, such a name with a folder of its files (NAME:FOLDER), a "
            f"file ({', '.join(FILE_SUFFIXES)}), a folder or a data set of the hub"
        )
    try:
        return load_data(HubData.parse(name), subject, wanted)
    except (OSError, ValueError, RuntimeError) as error:
        # RuntimeError: the data set is a script, and the library no longer runs scripts.
        reason = first_line(error)
        if _OF_A_SCRIPT in reason:
            copy = replace(HubData.parse(name), revision=COPIES)
            reason += f"; the hub keeps a copy in parquet, such as {copy}"
        raise UserError(f"{subject}: wanted {wanted}, found: {reason}") from error


def load_data(data: HubData, subject: str, wanted: str) -> dict[str, Any]:
    """Return all splits of a data set, which is downloaded if no record lists its files.

    The innermost `at_revisions` that names the data set decides. OSError, RuntimeError and
    ValueError of the library pass: the library does not read the data set, or wants the name of a
    configuration.
    """
    quiet_datasets(sys.stderr.isatty())
    asked, data = data, replace(data, revision=(_REVISIONS.get() or {}).get(data, data.revision))
    commit = _noted_commit(data)
    if commit is not None and (files := _recorded(data, commit)):
        from datasets import Dataset, concatenate_datasets

        read = Dataset.from_file
        return {name: concatenate_datasets([*map(read, paths)]) for name, paths in files.items()}
    if data.revision not in (None, asked.revision):
        subject += f" at commit {data.revision}"
    # A commit of the copy in parquet does not tell that it is one.
    with hub_errors(subject, wanted):
        return _download(data, asked.revision == COPIES)


def _noted_commit(data: HubData) -> str | None:
    """Return the commit that the client's cache notes for the revision; None if it has none."""
    from huggingface_hub.errors import HFValidationError, RevisionResolutionError

    try:
        return _commit(data, local=True)
    except (HFValidationError, RevisionResolutionError):
        return None


def _commit(data: HubData, *, local: bool = False) -> str:
    from huggingface_hub import HfApi

    answer = HfApi().resolve_revision(
        data.path, repo_type=_DATASET, revision=data.revision, local_files_only=local
    )
    return answer.resolved


def _download(data: HubData, is_copy: bool) -> dict[str, Any]:
    import datasets

    commit = _commit(data)
    if is_copy:
        loaded = datasets.load_dataset("parquet", data_files=_files_of_copy(data, commit))
    else:
        loaded = datasets.load_dataset(data.path, data.config, revision=commit)
    files = {
        split: [file["filename"] for file in table.cache_files] for split, table in loaded.items()
    }
    every = [file for paths in files.values() for file in paths]
    if not is_copy and any(commit not in Path(file).parts for file in every):
        raise ConnectionError("the network failed, and the cache has another revision")
    if all(files.values()):  # not in memory alone
        record = _record(data, commit)
        record.parent.mkdir(parents=True, exist_ok=True)
        write_json(record, files)
    return dict(loaded)


def _files_of_copy(data: HubData, commit: str) -> dict[str, str]:
    """Return the files of each split in the hub's copy: CONFIG/SPLIT/NUMBER.parquet, no card."""
    from huggingface_hub import HfApi

    config, repo = data.config or "default", {"repo_type": _DATASET, "revision": commit}
    places = [file.split("/") for file in HfApi().list_repo_files(data.path, **repo)]
    places = [place for place in places if len(place) == 3]
    splits = sorted({split for other, split, _ in places if other == config})
    if not splits:
        configs = ", ".join(sorted({other for other, *_ in places})) or "none"
        raise ValueError(f"no configuration {config!r} among {configs}")
    top = f"hf://datasets/{data.path}@{commit}/{config}"
    return {split: f"{top}/{split}/*.parquet" for split in splits}


def _record(data: HubData, commit: str) -> Path:
    """Return the file that lists the prepared files of each split at a commit."""
    import datasets

    name = hash_json([data.path, data.config, commit])
    return Path(datasets.config.HF_DATASETS_CACHE).expanduser() / "simlab" / f"{name}.json"


def _recorded(data: HubData, commit: str) -> dict[str, list[str]]:
    """Return the files of each split at a commit; empty if they are not all there."""
    record = _record(data, commit)
    files = read_json(record) if record.is_file() else {}
    every = [file for paths in files.values() for file in paths]
    return files if all(Path(file).is_file() for file in every) else {}
