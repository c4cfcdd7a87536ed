"""The files of a model: which of them a model needs, in a folder or in a repository of the hub.

Files stand at the top of a folder. transformers reads ``model.safetensors``, or the shards that
``model.safetensors.index.json`` lists, and ``pytorch_model.bin`` in the same way where there is no
safetensors file. Other weights in a repository (``onnx/``, ``consolidated.safetensors``,
``tf_model.h5``) are copies in other formats.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from simlab.errors import UserError
from simlab.store.files import read_json

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
    *(
        CONFIG,
        "preprocessor_config.json",
        "processor_config.json",
        "video_preprocessor_config.json",
    ),
    *("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "normalizer.json"),
    *(_MERGES, _PIECES, "word_shape.json", "word_pronunciation.json", "emoji.json"),
    *("byte_maps.json", *_VOCABULARIES),
)


def needed_files(names: Collection[str], folder: Path) -> list[Path]:
    """Return the files that a model needs of those in its folder or repository, in order.

    The shards of the weights are among them if their index is in `folder`.
    """
    needed = {name for name in names if "/" not in name and _matches(name, SMALL_FILES)}
    for weights, index in zip(WEIGHTS, INDICES, strict=True):
        if weights in names:
            return sorted(folder / name for name in {*needed, weights})
        if index in names:
            shards = _shards(folder / index) if (folder / index).is_file() else []
            return sorted(folder / name for name in {*needed, index, *shards})
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


def _shards(index: Path) -> list[str]:
    content = read_json(index)
    shards = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()):
        raise UserError(f"{index}: wanted an index with a weight_map, found a damaged file")
    return [*shards.values()]
