"""The files that a model needs, and models of the hub in the cache of the hub's client.

transformers reads ``model.safetensors``, or the shards that ``model.safetensors.index.json`` lists,
and ``pytorch_model.bin`` in the same way where there is no safetensors file. Other weights in a
repository (``onnx/``, ``tf_model.h5``) are copies in other formats. The cache is asked first, and
without a request; without a hub, files that another program has fetched are taken.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from glob import escape
from pathlib import Path
from typing import Any

from simlab.errors import UserError
from simlab.store.files import read_json
from simlab.store.hub import hub_errors

CONFIG = "config.json"
ADAPTER = "adapter_config.json"  # of PEFT, in place of CONFIG
WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # the first that is there is read
INDICES = tuple(f"{weights}.index.json" for weights in WEIGHTS)  # which list the shards of each
# Files from which a tokenizer can be made, as the classes of transformers call them.
_VOCABULARIES = (
    *("tokenizer.json", "tokenizer.[0-9]*.json", "*vocab*.txt", "vocab.bpe", "bpe.codes"),
    *("*.model", "*.spm", "*.tiktoken", "tekken.json", "*.tokenizer", "dict.txt"),
)
_MERGES, _PIECES = "merges.txt", "*vocab*.json"  # one is of no use without the other
# Configuration, tokenizer and image processor: settings, and vocabularies of another file.
SMALL_FILES = (
    *(CONFIG, "preprocessor_config.json", "processor_config.json"),
    *("video_preprocessor_config.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("added_tokens.json", "normalizer.json", _MERGES, _PIECES, "word_shape.json"),
    *("word_pronunciation.json", "emoji.json", "byte_maps.json", *_VOCABULARIES),
)


def needed_files(names: Collection[str], folder: Path) -> list[Path]:
    """Return the files that a model needs of `names`, in order, with the shards of its weights.

    The index of the shards is read in `folder`, if it is there.
    """
    needed = {name for name in names if "/" not in name and _matches(name, SMALL_FILES)}
    for weights, index in zip(WEIGHTS, INDICES, strict=True):
        if weights in names:
            needed.add(weights)
            break
        if index in names:
            needed |= {index, *(_shards(folder / index) if (folder / index).is_file() else ())}
            break
    return sorted(folder / name for name in needed)


def model_files(folder: Path) -> list[Path]:
    """Return the files of a model in a folder: configuration, tokenizer, weights, their index."""
    names = [file.name for file in folder.iterdir() if file.is_file()]
    return [file for file in needed_files(names, folder) if file.is_file()]


def weight_files(folder: Path) -> list[Path]:
    """Return the weight files in a model's folder that transformers reads."""
    return [file for file in model_files(folder) if file.suffix in (".safetensors", ".bin")]


def has_vocabulary(folder: Path) -> bool:
    """Return whether a folder has a file from which a tokenizer can be made."""
    names = [file.name for file in folder.iterdir()]
    has_pieces = any(fnmatchcase(name, _PIECES) for name in names)
    return (_MERGES in names and has_pieces) or any(_matches(n, _VOCABULARIES) for n in names)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _shards(index: Path) -> Iterable[str]:
    try:
        return read_json(index)["weight_map"].values()
    except (AttributeError, KeyError, TypeError) as error:
        raise UserError(f"{index}: wanted an index with a weight_map, found none") from error


def split_revision(name: str) -> tuple[str, str | None]:
    """Return the name of a model of the hub, and the revision in ``name@revision``, if any."""
    named, _, revision = name.partition("@")
    return named, revision or None


def cached_names() -> list[str]:
    """Return the names of the models in the cache of the hub's client, whole or not."""
    from huggingface_hub import constants

    folders = [
        path.parent.name for path in Path(constants.HF_HUB_CACHE).glob("models--*/snapshots")
    ]
    return sorted(name.removeprefix("models--").replace("--", "/", 1) for name in folders)


def cached_revision(name: str) -> str | None:
    """Return the commit of a model in the client's cache, if it is there; no network is asked."""
    folder = _cached_folder(name)
    return None if folder is None else folder.name


def find_whole(name: str) -> Path | None:
    """Return the folder of a model in the cache if it lacks no file that the client's list has."""
    folder = _cached_folder(name)
    listed = None if folder is None else _listed(name, folder)
    if folder is None or listed is None:
        return None
    return folder if all(file.is_file() for file in needed_files(listed, folder)) else None


def fetch_model(name: str) -> Path:
    """Return the folder of a model of the hub in the cache; what is missing there is downloaded."""
    return find_whole(name) or _download(name)


def download_into(name: str, folder: Path) -> None:
    """Download a model into a folder beside which it may be continued, and not into the cache."""
    cache, files = folder.with_name("cache"), folder.with_name("files")
    if not folder.exists():
        snapshot = _download(name, cache)
        files.mkdir(exist_ok=True)
        for file in snapshot.iterdir():
            if file.is_file():
                os.replace(file.resolve(), files / file.name)
        files.rename(folder)


def _refuse_adapter(name: str, folder: Path) -> None:
    """Raise UserError for an adapter of PEFT, whose rows would be those of its base model."""
    if (folder / ADAPTER).is_file():
        raise UserError(
            f"model {name}: wanted a whole model of the hub, found an adapter ({ADAPTER}); "
            "download it into a folder, with the client of the hub, and name that"
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
    """Download a model into the client's cache or another: small files first, then weights.

    Files that the cache lacks are fetched at the commit of those that it has.
    """
    from huggingface_hub import snapshot_download

    named, revision = split_revision(name)
    if cache is None:
        revision = cached_revision(name) or revision
    how: dict[str, Any] = {"ignore_patterns": ["*/*"], "cache_dir": cache}
    download = partial(snapshot_download, named, **how)
    with hub_errors(f"model {name}", "a download from the hub"):
        small = [*SMALL_FILES, *INDICES, ADAPTER]
        folder = Path(download(revision=revision, allow_patterns=small))
        _refuse_adapter(name, folder)
        listed = _listed(name, folder, cache) or [file.name for file in folder.iterdir()]
        needed = [escape(file.name) for file in needed_files(listed, folder)]
        download(revision=folder.name, allow_patterns=needed)
    return folder


@dataclass(frozen=True)
class Announced:
    """A revision of a model as the hub lists it."""

    commit: str
    bytes: int  # of the files that a download fetches


def announce(name: str) -> Announced:
    """Ask the hub for a revision ``name@revision``, and download no weights."""
    from huggingface_hub import HfApi, hf_hub_download

    named, revision = split_revision(name)
    with hub_errors(f"model {name}", "a list of files"):
        info = HfApi().model_info(named, revision=revision, files_metadata=True)
        commit, folder = str(info.sha), Path()
        sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
        for index in sizes.keys() & {*INDICES}:
            folder = Path(hf_hub_download(named, index, revision=commit)).parent
        files = {file.name for file in needed_files(sizes, folder)}
        return Announced(commit, sum(sizes.get(file, 0) for file in files))
