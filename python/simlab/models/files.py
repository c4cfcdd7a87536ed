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
TOKENIZER_SETTINGS = "tokenizer_config.json"
ADAPTER = "adapter_config.json"  # of PEFT, in place of CONFIG
WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # the first that is there is read
# Files from which a tokenizer can be made, as the classes of transformers call them.
VOCABULARIES = (
    *("tokenizer.json", "tokenizer.[0-9]*.json", "*vocab*.txt", "vocab.bpe", "bpe.codes"),
    *("*.model", "*.spm", "*.tiktoken", "tekken.json", "*.tokenizer", "dict.txt"),
)
_MERGES, _PIECES = "merges.txt", "*vocab*.json"  # one is of no use without the other
# Besides them: settings, and vocabularies that belong to another file.
_OTHERS = (
    *(
        CONFIG,
        "preprocessor_config.json",
        "processor_config.json",
        "video_preprocessor_config.json",
    ),
    *(TOKENIZER_SETTINGS, "special_tokens_map.json", "added_tokens.json", "normalizer.json"),
    *(_MERGES, _PIECES, "word_shape.json", "word_pronunciation.json", "emoji.json"),
    "byte_maps.json",
)


def index_of(weights: str) -> str:
    """Return the name of the file that lists the shards of a file in `WEIGHTS`."""
    return f"{weights}.index.json"


def weights_in(names: Collection[str]) -> str | None:
    """Return the file among `names` that leads to the weights: the weights or their index."""
    for weights in WEIGHTS:
        for name in (weights, index_of(weights)):
            if name in names:
                return name
    return None


def small_files(names: Iterable[str]) -> list[str]:
    """Return the names of the configuration, and of the files of tokenizer and image processor."""
    patterns = (*VOCABULARIES, *_OTHERS)
    return [n for n in names if "/" not in n and any(fnmatchcase(n, p) for p in patterns)]


def read_shards(index: Path) -> list[str]:
    """Return the names of the shards that an index lists."""
    content = read_json(index)
    shards = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()):
        raise UserError(f"{index}: wanted an index with a weight_map, found a damaged file")
    return sorted({*shards.values()})


def expected_weights(folder: Path) -> list[Path]:
    """Return the weight files that transformers reads from a folder, whether they exist or not."""
    lead = weights_in([file.name for file in folder.iterdir() if file.is_file()])
    if lead is None:
        return []
    if lead in WEIGHTS:
        return [folder / lead]
    return [folder / name for name in read_shards(folder / lead)]


def weight_files(folder: Path) -> list[Path]:
    """Return the weight files in a model's folder that transformers reads."""
    return [file for file in expected_weights(folder) if file.is_file()]


def model_files(folder: Path) -> list[Path]:
    """Return the files of a model in a folder: configuration, tokenizer, weights, their index."""
    names = [file.name for file in folder.iterdir() if file.is_file()]
    lead = weights_in(names)
    loaded = {*small_files(names), *([] if lead is None else [lead])}
    return sorted({folder / name for name in loaded} | {*weight_files(folder)})


def has_whole_weights(folder: Path) -> bool:
    """Return whether a folder has weights, and every shard of them."""
    expected = expected_weights(folder)
    return bool(expected) and all(file.is_file() for file in expected)


def has_vocabulary(folder: Path) -> bool:
    """Return whether a folder has a file from which a tokenizer can be made."""
    names = [file.name for file in folder.iterdir()]
    if _MERGES in names and any(fnmatchcase(name, _PIECES) for name in names):
        return True
    return any(fnmatchcase(name, pattern) for name in names for pattern in VOCABULARIES)


def require_weights(name: str, folder: Path) -> None:
    """Check that the folder of model `name` has weight files, and all shards of them."""
    expected = expected_weights(folder)
    if not expected:
        raise UserError(f"model {name}: wanted {' or '.join(WEIGHTS)}, found neither in {folder}")
    missing = [file.name for file in expected if not file.is_file()]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UserError(
            f"model {name}: wanted whole weights, found no {missing[0]}{more} in {folder}, which "
            "its index lists"
        )
