"""Models of the hub, in the cache of the hub's client: found there, or downloaded into it.

The cache is asked first, and without a request. A model in the cache is whole if the client's list
of the files of the repository says so; where there is no such list (`AutoModel.from_pretrained`
keeps none), if it has configuration, weights with all shards, and a vocabulary, and the client
knows whether there are settings of the tokenizer: without them, a cased vocabulary would be read in
lower case. Files that are missing are fetched at the commit of those that are there.
"""

from __future__ import annotations

import os
from glob import escape
from os.path import normpath
from pathlib import Path
from typing import NoReturn

from simlab.errors import UserError
from simlab.models.files import (
    ADAPTER,
    CONFIG,
    TOKENIZER_SETTINGS,
    WEIGHTS,
    has_vocabulary,
    has_whole_weights,
    read_shards,
    small_files,
    weights_in,
)
from simlab.store.files import hash_file, read_json
from simlab.store.hub import HubError, TransferError, ask_hub

_SHA256_LETTERS = 64
# Keys of configurations; `n_words` is XLM's size of its vocabulary.
_OF_IMAGES = {"image_size", "num_channels", "pretrained_cfg"}
_OF_TEXTS = {"vocab_size", "n_words", "text_config"}


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
    """Return the folder of a model in the cache that lacks no file; no network is asked."""
    folder = _cached_folder(name)
    return folder if folder is not None and _is_whole(name, folder) else None


def fetch_model(name: str) -> Path:
    """Return the folder of a model of the hub in the cache; what is missing there is downloaded."""
    folder = _cached_folder(name)
    if folder is not None and _is_whole(name, folder):
        if (folder / ADAPTER).is_file() or ADAPTER in (_listed(name, folder) or ()):
            refuse_adapter(name, folder / ADAPTER, whole=True)
        return folder
    try:
        return ask_hub(lambda: _download(name, folder), f"model {name}", "a download")
    except HubError as error:
        # Without a hub, a model may be read without the files that it does not need.
        if folder is None or error.trouble.answered or not _needs_no_more(name, folder):
            raise
        return folder


def download_into(name: str, folder: Path) -> None:
    """Download a model of the hub into a folder of its own, beside which it may be continued.

    The cache of the hub's client stays as it is.
    """
    cache, made = folder.with_name("cache"), folder.with_name("files")
    if not folder.exists():
        place = ask_hub(lambda: _download(name, None, cache), f"model {name}", "a download")
        made.mkdir(exist_ok=True)
        for file in place.iterdir():
            if file.is_file():
                os.replace(file.resolve(), made / file.name)
        made.rename(folder)


def _cached_folder(name: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    named, revision = split_revision(name)
    try:
        file = try_to_load_from_cache(named, CONFIG, revision=revision)
    except HFValidationError:  # no name of the hub: `resolve` says so
        return None
    return Path(file).parent if isinstance(file, str) else None


def _is_whole(name: str, folder: Path) -> bool:
    if not has_whole_weights(folder):
        return False
    listed = _listed(name, folder)
    if listed is None:
        return has_vocabulary(folder) and _knows_settings(name, folder)
    return all((folder / file).is_file() for file in small_files(listed))


def _needs_no_more(name: str, folder: Path) -> bool:
    """Return whether a model can be read as it is in the cache.

    That is a model of images, or one whose tokenizer has settings alone, as tokenizers of bytes and
    characters: of a tokenizer that lacks its vocabulary, `load_tokenizer` says so.
    """
    if not has_whole_weights(folder):
        return False
    config = read_json(folder / CONFIG).keys()
    if config & _OF_IMAGES and not config & _OF_TEXTS:
        return True
    return _listed(name, folder) is None and (folder / TOKENIZER_SETTINGS).is_file()


def _knows_settings(name: str, folder: Path) -> bool:
    """Return whether the tokenizer's settings are in the cache, or the note that there are none."""
    from huggingface_hub import try_to_load_from_cache

    named, _ = split_revision(name)
    return try_to_load_from_cache(named, TOKENIZER_SETTINGS, revision=folder.name) is not None


def has_all_listed(name: str, folder: Path) -> bool:
    """Return whether `folder` is a model of the hub's cache that has all that the hub lists."""
    listed = _listed(name, folder) if in_hub_cache(folder / CONFIG) is not None else None
    return listed is not None and all((folder / file).is_file() for file in small_files(listed))


def _listed(name: str, folder: Path) -> list[str] | None:
    """Return the client's list of the files of a repository; None if the cache has none."""
    from huggingface_hub import get_cached_repo_tree
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    named, _ = split_revision(name)
    try:
        return [file.path for file in get_cached_repo_tree(named, revision=folder.name)]
    except CachedRepoTreeNotFoundError:
        return None


def _download(name: str, cached: Path | None, cache: Path | None = None) -> Path:
    """Download a model: ask for its commit and files, then fetch those that are needed.

    Weights come first, so that a folder without a vocabulary tells the next run that nobody has
    checked them: the files that were there before are checked as well. `cached` is the folder in
    the cache that lacks files; `cache` is another cache than the client's.
    """
    from huggingface_hub import HfApi, constants, hf_hub_download, snapshot_download
    from huggingface_hub.errors import RevisionNotFoundError

    named, revision = split_revision(name)
    revision = revision if cached is None else cached.name
    # The client has no limit of time for this request, and does not try it again: `ask_hub` does.
    limit = constants.HF_HUB_ETAG_TIMEOUT
    try:
        info = HfApi().model_info(named, revision=revision, timeout=limit)
    except RevisionNotFoundError as error:
        if cached is None or cached.name in name:
            raise
        raise UserError(
            f"model {name}: wanted the missing files of commit {cached.name}, of which some are in "
            f"the cache, found no such commit on the hub; delete {cached}, and "
            "the same command downloads the present one"
        ) from error
    listed = [file.rfilename for file in info.siblings or ()]
    lead = require_model(name, listed, info.sha)
    # By the name of its revision, so that the cache notes the commit of this name.
    folder = Path(hf_hub_download(named, CONFIG, revision=revision, cache_dir=cache)).parent
    if folder.name != info.sha:
        raise TransferError("a revision that has moved meanwhile")
    weights = [lead]
    if lead not in WEIGHTS:
        index = hf_hub_download(named, lead, revision=folder.name, cache_dir=cache)
        weights += read_shards(Path(index))
    wanted = [*weights, *small_files(listed)]
    if missing := [file for file in wanted if file not in listed]:
        raise UserError(f"model {name}: wanted whole weights on the hub, found no {missing[0]}")
    for part in (weights, small_files(listed)):
        wanted_part = [*map(escape, part)]
        snapshot_download(named, revision=folder.name, allow_patterns=wanted_part, cache_dir=cache)
        for file in part:
            _require_content(name, folder / file)
    if missing := [file for file in wanted if not (folder / file).is_file()]:
        # The client takes what is in its cache where the hub does not list the files: hear why.
        list(HfApi().list_repo_tree(named, revision=folder.name))
        raise TransferError(f"no {missing[0]} after the download")
    return folder


def require_model(name: str, listed: list[str], commit: str | None) -> str:
    """Return the file of a repository that leads to its weights."""
    from huggingface_hub import hf_hub_download

    lead = weights_in(listed)
    if ADAPTER in listed:
        named, _ = split_revision(name)
        file = Path(hf_hub_download(named, ADAPTER, revision=commit))
        refuse_adapter(name, file, whole=CONFIG in listed and lead is not None)
    if CONFIG in listed and lead is not None:
        return lead
    others = [n for n in listed if n.endswith((".h5", ".msgpack", ".ckpt", ".gguf", ".onnx"))]
    found = f"{others[0]}, a file of another library" if others else ", ".join(listed[:3]) or "none"
    raise UserError(
        f"model {name}: wanted {CONFIG} and {' or '.join(WEIGHTS)} on the hub, found {found}"
    )


def _require_content(name: str, file: Path) -> None:
    """Check a file whose name in the cache is the SHA-256 of its content; drop a wrong one.

    The client compares sizes alone. TransferError allows another try, because the file is gone; a
    content that repositories share stays in the shared store for the user to delete.
    """
    blob = _blob_of(file)
    if blob is None or len(blob.name) != _SHA256_LETTERS or not blob.is_file():
        return
    if hash_file(blob) == blob.name:
        return
    shared = blob.resolve() if blob.is_symlink() else None
    file.unlink()
    blob.unlink()
    if shared is None:
        raise TransferError(f"a content of {file.name} that is not the hub's")
    raise UserError(
        f"model {name}: wanted the hub's content of {file.name}, found another in {shared}; delete "
        "it, and the same command downloads it again"
    )


def refuse_adapter(name: str, file: Path, *, whole: bool) -> NoReturn:
    """Raise UserError for an adapter of PEFT, which is a part of a model.

    `file` is its configuration, which may be missing from a cache. With `whole`, whole weights
    stand beside the adapter, and may have the adapter in them.
    """
    settings = read_json(file) if file.is_file() else {}
    base = settings.get("base_model_name_or_path") or "its base model"
    beside = " beside whole weights" if whole else ""
    alone = f"; a folder without {ADAPTER} is read as the weights alone" if whole else ""
    raise UserError(
        f"model {name}: wanted a whole model, found an adapter of {base}{beside}; merge them with "
        "peft: AutoPeftModel.from_pretrained(NAME).merge_and_unload().save_pretrained(FOLDER), "
        f"save the tokenizer there too, and name the folder{alone}"
    )


def in_hub_cache(file: Path) -> Path | None:
    """Return the content that a file of the hub's cache links to; None for any other file."""
    return None if _blob_of(file) is None else file.resolve()


def announced_hash(file: Path) -> str | None:
    """Return the SHA-256 that the hub announces of a file in its cache; None if it is unknown."""
    blob = _blob_of(file)
    return None if blob is None or len(blob.name) != _SHA256_LETTERS else blob.name


def _blob_of(file: Path) -> Path | None:
    """Return the entry in the ``blobs`` of its repository that a file of the hub's cache links to.

    The name of the entry is the hash that the hub announces. The entry may itself be a link, to a
    content that repositories share: the client keeps files of Xet there, by another hash.
    """
    if not file.is_symlink():
        return None
    blob = Path(normpath(file.parent / file.readlink()))
    return blob if blob.parent.name == "blobs" else None
