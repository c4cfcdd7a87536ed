"""Data sets of the hub: one revision, from the cache of the datasets library or downloaded.

The library keeps a prepared data set in a folder of its name, its configuration and its commit. A
revision that is there is read without a request. Where the hub does not answer, the library by
itself would take the latest version that it has, whatever revision is asked; here this is an error.

A sweep reads one commit of a data set for as long as its folder is there (`at_revisions`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from simlab.store.hub import hub_errors
from simlab.store.runtime import quiet_datasets
from simlab.tasks.specs import COPIES, TASKS

HUB_PREFIX = "hub:"
_DATASET = "dataset"  # as the client of the hub calls repositories of data sets
_CARD = "README.md"
_DEFAULT = "default"
_DEPTH = 3  # of a file of a copy


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
    return None if commit is None or _prepared(data, commit) is None else commit


def load_data(data: HubData, subject: str, wanted: str) -> dict[str, Any]:
    """Return all splits of a data set, which is downloaded if it is not in the cache.

    The innermost `at_revisions` that names the data set decides. OSError, RuntimeError and
    ValueError of the library pass: the library does not read the data set, or wants the name of a
    configuration.
    """
    quiet_datasets(sys.stderr.isatty())
    asked, data = data, replace(data, revision=(_REVISIONS.get() or {}).get(data, data.revision))
    commit = _noted_commit(data)
    if commit is not None and (folder := _prepared(data, commit)) is not None:
        return _read(data, folder)
    if data.revision not in (None, asked.revision):
        subject += f" at commit {data.revision}"
    # A commit of the copy in parquet does not tell that it is one.
    download = _download_copy if asked.revision == COPIES else _download
    with hub_errors(subject, wanted):
        return download(data)


def _noted_commit(data: HubData) -> str | None:
    """Return the commit that the client's cache notes for the revision; None if it has none."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HFValidationError, RevisionResolutionError

    try:
        answer = HfApi().resolve_revision(
            data.path, repo_type=_DATASET, revision=data.revision, local_files_only=True
        )
    except (HFValidationError, RevisionResolutionError):
        return None
    return answer.resolved


def _download(data: HubData) -> dict[str, Any]:
    import datasets
    from huggingface_hub import HfApi

    answer = HfApi().resolve_revision(data.path, repo_type=_DATASET, revision=data.revision)
    loaded = datasets.load_dataset(data.path, data.config, revision=answer.resolved)
    files = [Path(file["filename"]) for split in loaded.values() for file in split.cache_files]
    if any(answer.resolved not in file.parts for file in files):
        raise ConnectionError("the network failed, and the cache has another revision")
    return dict(loaded)


def _download_copy(data: HubData) -> dict[str, Any]:
    """Download the hub's copy in parquet: files CONFIG/SPLIT/NUMBER.parquet, and no card."""
    from datasets.packaged_modules.parquet.parquet import Parquet
    from huggingface_hub import HfApi

    pinned = HfApi().resolve_revision(data.path, repo_type=_DATASET, revision=data.revision)
    commit = pinned.resolved
    config, repo = data.config or _DEFAULT, {"repo_type": _DATASET, "revision": commit}
    places = [file.split("/") for file in HfApi().list_repo_files(data.path, **repo)]
    splits = sorted({place[1] for place in places if len(place) == _DEPTH and place[0] == config})
    if not splits:
        configs = sorted({place[0] for place in places if len(place) == _DEPTH})
        raise ValueError(f"no configuration {config!r} among {', '.join(configs) or 'none'}")
    top = f"hf://datasets/{data.path}@{commit}/{config}"
    identity = {"repo_id": data.path, "dataset_name": data.path.rpartition("/")[2], "hash": commit}
    builder = Parquet(
        **identity,
        config_name=config,
        config_id=config,
        data_files={split: f"{top}/{split}/*.parquet" for split in splits},
    )
    builder.download_and_prepare()
    return dict(builder.as_dataset())


def _prepared(data: HubData, commit: str) -> Path | None:
    """Return the folder in which the library keeps a commit of a data set; None if it does not."""
    import datasets
    from datasets.naming import camelcase_to_snakecase

    *owner, name = data.path.split("/")
    root = Path(datasets.config.HF_DATASETS_CACHE).expanduser()
    place = root / "___".join([*owner, camelcase_to_snakecase(name)])
    config = data.config or _only_config(data, commit)
    for folder in sorted(place.glob(f"*/*/{commit}")):
        if folder.parent.parent.name == config and (folder / "dataset_info.json").is_file():
            return folder
    return None


def _only_config(data: HubData, commit: str) -> str:
    """Return the configuration that the library takes if none is named, as the card has it."""
    from datasets.utils.metadata import MetadataConfigs
    from huggingface_hub import DatasetCard, try_to_load_from_cache

    card = try_to_load_from_cache(data.path, _CARD, revision=commit, repo_type=_DATASET)
    if not isinstance(card, str):
        return _DEFAULT
    metadata = DatasetCard(Path(card).read_text("utf-8"), ignore_metadata_errors=True).data
    try:
        configs = MetadataConfigs.from_dataset_card_data(metadata)
        if configs:
            return configs.get_default_config_name() or _DEFAULT
    except ValueError:  # a damaged card, of which the library says more when it loads the data
        return _DEFAULT
    listed = _as_list(metadata.get("dataset_info"))
    names = {one.get("config_name", _DEFAULT) for one in listed if isinstance(one, dict)}
    return names.pop() if len(names) == 1 else _DEFAULT


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _read(data: HubData, folder: Path) -> dict[str, Any]:
    """Read a data set that the library has prepared in a folder of its cache."""
    from datasets.packaged_modules.cache.cache import Cache

    config, version, commit = folder.parts[-3:]
    name = data.path.rpartition("/")[2]
    identity = {"repo_id": data.path, "dataset_name": name, "config_name": config}
    builder = Cache(**identity, version=version, hash=commit)
    builder.download_and_prepare()
    return dict(builder.as_dataset())
