"""Models of the hub, in the cache of the hub's client: found there, or downloaded into it.

The cache is asked first, and without a request. Files that are missing there are fetched at the
commit of those that are there. Without a hub, files that another program has fetched are taken.
"""

from __future__ import annotations

import os
from functools import partial
from glob import escape
from pathlib import Path
from typing import Any

from simlab.errors import UserError
from simlab.models.files import ADAPTER, CONFIG, INDICES, SMALL_FILES, needed_files
from simlab.store.files import read_json
from simlab.store.hub import hub_errors


def split_revision(name: str) -> tuple[str, str | None]:
    """Return the name of a model of the hub, and the revision in ``name@revision``, if any."""
    named, _, revision = name.partition("@")
    return named, revision or None


def cached_names() -> list[str]:
    """Return the names of the models in the cache of the hub's client, whole or not."""
    from huggingface_hub import constants

    snapshots = Path(constants.HF_HUB_CACHE).glob("models--*/snapshots")
    return sorted(
        one.parent.name.removeprefix("models--").replace("--", "/", 1) for one in snapshots
    )


def cached_revision(name: str) -> str | None:
    """Return the commit of a model in the cache of the hub's client; None if it is not there.

    No network is asked.
    """
    folder = _cached_folder(name)
    return None if folder is None else folder.name


def find_whole(name: str) -> Path | None:
    """Return the folder of a model in the cache that lacks no file; no network is asked.

    The client's list of the files of the repository tells. Without it, None is returned.
    """
    folder = _cached_folder(name)
    listed = None if folder is None else _listed(name, folder)
    if folder is None or listed is None:
        return None
    return folder if all(file.is_file() for file in needed_files(listed, folder)) else None


def fetch_model(name: str) -> Path:
    """Return the folder of a model of the hub in the cache; what is missing there is downloaded."""
    return find_whole(name) or _download(name)


def download_into(name: str, folder: Path) -> None:
    """Download a model of the hub into a folder of its own, beside which it may be continued.

    The cache of the hub's client stays as it is.
    """
    cache, made = folder.with_name("cache"), folder.with_name("files")
    if not folder.exists():
        place = _download(name, cache)
        made.mkdir(exist_ok=True)
        for file in place.iterdir():
            if file.is_file():
                os.replace(file.resolve(), made / file.name)
        made.rename(folder)


def refuse_adapter(name: str, folder: Path) -> None:
    """Raise UserError for an adapter of PEFT, whose rows would be those of its base model."""
    if (folder / ADAPTER).is_file():
        base = read_json(folder / ADAPTER).get("base_model_name_or_path") or "its base model"
        raise UserError(
            f"model {name}: wanted a whole model, found an adapter of {base} ({ADAPTER}); merge "
            "them with peft: AutoPeftModel.from_pretrained(NAME).merge_and_unload()"
            ".save_pretrained(FOLDER), save the tokenizer there too, and name the folder"
        )


def _cached_folder(name: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    named, revision = split_revision(name)
    try:
        file = try_to_load_from_cache(named, CONFIG, revision=revision)
    except HFValidationError:  # no name of the hub: `resolve` says so
        return None
    return Path(file).parent if isinstance(file, str) else None


def _listed(name: str, folder: Path, cache: Path | None = None) -> list[str] | None:
    """Return the client's list of the files of a repository; None if the cache has none."""
    from huggingface_hub import get_cached_repo_tree
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    named, _ = split_revision(name)
    try:
        files = get_cached_repo_tree(named, revision=folder.name, cache_dir=cache)
    except CachedRepoTreeNotFoundError:
        return None
    return [file.path for file in files]


def _download(name: str, cache: Path | None = None) -> Path:
    """Download a model into the client's cache or another: small files first, then weights."""
    from huggingface_hub import snapshot_download

    named, revision = split_revision(name)
    if cache is None:
        revision = cached_revision(name) or revision
    how: dict[str, Any] = {"ignore_patterns": ["*/*"], "cache_dir": cache}
    download = partial(snapshot_download, named, **how)
    with hub_errors(f"model {name}", "a download from the hub"):
        small = [*SMALL_FILES, *INDICES, ADAPTER]
        folder = Path(download(revision=revision, allow_patterns=small))
        refuse_adapter(name, folder)
        listed = _listed(name, folder, cache) or [file.name for file in folder.iterdir()]
        needed = [escape(file.name) for file in needed_files(listed, folder)]
        download(revision=folder.name, allow_patterns=needed)
    return folder
