"""Find models by name: the offline model, local folders, the hub, and patterns of names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from simlab.errors import UserError
from simlab.models.built import is_built
from simlab.store import assets
from simlab.store.files import hash_file, hash_json
from simlab.store.runtime import hub_reachable

OFFLINE_MODEL = "minilm"
CONFIG = "config.json"
PRETRAINING = "pretraining.json"  # what `simlab.pretrain` measured
ELMO_OPTIONS, ELMO_WEIGHTS = "*options.json", "*weights.hdf5"
_BRACES = re.compile(r"\{(?:(?P<first>\d+)\.\.(?P<last>\d+)|(?P<words>[^{}]*,[^{}]*))\}")
SEED = "{seed}"
_SEED_WORD = re.compile(r"[-_.]*(?:seed)?[-_.]*\{seed\}", re.IGNORECASE)
_WEIGHT_PATTERNS = ("*.safetensors", "pytorch_model*.bin")
_OTHER_PATTERNS = ["*.json", "*.txt", "*.model", "*.jinja"]


@dataclass(frozen=True)
class ModelSource:
    """A model on this machine: the name that the user gave, and the folder of the model."""

    name: str
    path: Path

    @property
    def files(self) -> list[Path]:
        """Return the configuration, tokenizer and weight files, in order."""
        others = ("*.json", "vocab.txt", "*.model", ELMO_WEIGHTS)
        found = [file for pattern in others for file in self.path.glob(pattern)]
        # Written by simlab, and not part of the model.
        ours = {"job.json", "evaluation.json", PRETRAINING}
        files = sorted({*weight_files(self.path), *found})
        return [file for file in files if file.name not in ours]

    @property
    def fingerprint(self) -> str:
        """Return the SHA-256 of the configuration, tokenizer and weight files."""
        return hash_json({file.name: hash_file(file) for file in self.files})


def expand_names(names: Sequence[str]) -> list[str]:
    """Expand ``{0..24}`` and ``{a,b}`` in names of models as a shell does.

    >>> expand_names(["google/multiberts-seed_{0..2}"])[-1]
    'google/multiberts-seed_2'
    """
    return [one for name in names for one in _expand(name)]


@dataclass(frozen=True)
class Restart:
    """A model of a pattern of names.

    Attributes
    ----------
    name
        Name of the model, as `resolve` takes it.
    family
        Short name that all restarts of the model share: ``multiberts``.
    number
        Number of the restart; None if the pattern has no restarts.
    """

    name: str
    family: str
    number: int | None


def restarts(pattern: str, seeds: Sequence[int] = ()) -> list[Restart]:
    """Return the models of a pattern of names, and which of them are restarts of one model.

    Parameters
    ----------
    pattern
        A name in which ``{0..24}`` stands for restarts of a model, ``{a,b}`` for different models,
        and ``{seed}`` for the restarts `seeds`.

    Raises
    ------
    UserError
        The pattern has more than one range of restarts.

    >>> restarts("google/multiberts-seed_{0..2}")[-1]
    Restart(name='google/multiberts-seed_2', family='multiberts', number=2)
    """
    found = []
    ranges = [match for match in _BRACES.finditer(pattern) if match["words"] is None]
    if len(ranges) + pattern.count(SEED) > 1:
        raise UserError(f"model {pattern}: wanted one range of restarts at most, found several")
    for own in ranges:
        numbers = [int(one) for one in _expand(own[0])]
        pattern = pattern.replace(own[0], SEED)
        seeds = numbers
    for template in _expand(pattern):
        named, _ = split_revision(template)
        family = _SEED_WORD.sub("", Path(named).name) or named.replace(SEED, "")
        if SEED in template:
            found += [Restart(template.replace(SEED, str(s)), family, s) for s in seeds]
        else:
            found.append(Restart(template, family, None))
    return found


def _expand(name: str) -> list[str]:
    pattern = _BRACES.search(name)
    if pattern is None:
        return [name]
    if pattern["words"] is not None:
        middles = pattern["words"].split(",")
    else:
        first, last = int(pattern["first"]), int(pattern["last"])
        step = 1 if first <= last else -1
        middles = [str(number) for number in range(first, last + step, step)]
    start, end = name[: pattern.start()], name[pattern.end() :]
    return [one for middle in middles for one in _expand(f"{start}{middle}{end}")]


def split_revision(name: str) -> tuple[str, str | None]:
    """Return the name of a model of the hub, and the revision in ``name@revision``, if any."""
    named, _, revision = name.partition("@")
    return named, revision or None


def cached_revision(name: str) -> str | None:
    """Return the commit of a model in the cache of the hub's client; None if it is not there.

    No network is asked.
    """
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    named, revision = split_revision(name)
    try:
        found = try_to_load_from_cache(named, CONFIG, revision=revision)
    except HFValidationError:  # no name of the hub: `resolve` says so
        return None
    return Path(found).parent.name if isinstance(found, str) else None


def is_hub_name(name: str) -> bool:
    """Return whether a name is that of a model of the hub, and not of a folder or package."""
    named, _ = split_revision(name)
    folder = Path(name).expanduser()
    local = folder.is_absolute() or name.startswith((".", "~")) or named.count("/") > 1
    return name != OFFLINE_MODEL and not local and not folder.is_dir()


def similar_name(name: str) -> str:
    """Return a question that names the model that a misspelt name resembles; "" if none does.

    >>> similar_name("minlm")
    " (did you mean 'minilm'?)"
    """
    folder = Path(name).expanduser().parent
    beside = [str(path) for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    found = get_close_matches(name, [OFFLINE_MODEL, *beside], n=1, cutoff=0.75)
    return f" (did you mean {found[0]!r}?)" if found else ""


def resolve(model: str | Path | ModelSource) -> ModelSource:
    """Find `model` and return the local folder that holds it.

    Parameters
    ----------
    model
        ``minilm`` (the offline default), a folder written by ``save_pretrained`` or with the
        published files of an ELMo, or a model of the hub (``name`` or ``name@revision``), which is
        downloaded to the cache of the hub's client if it is not there. A `ModelSource` is returned
        unchanged.

    Raises
    ------
    UserError
        The folder is not a model, or the hub does not know the name or does not answer.
    """
    if isinstance(model, ModelSource):
        return model
    name = str(model)
    if is_built(name):
        raise UserError(
            f"model {name}: wanted a model of transformers, found a name that `simcore extract "
            "--modules` alone takes"
        )
    if name == OFFLINE_MODEL:
        return ModelSource(name, assets.fetch("minilm"))
    folder = Path(name).expanduser()
    if len(several := _expand(name)) > 1 and not folder.exists():
        raise UserError(f"model {name}: wanted one model, found a pattern of {len(several)} names")
    if folder.is_dir():
        _require_model_files(name, folder)
        return ModelSource(name, folder)
    if not is_hub_name(name):
        raise UserError(f"model {name}: wanted a folder with {CONFIG}, found no such folder")
    return ModelSource(name, _from_hub(name))


def weight_files(folder: Path) -> list[Path]:
    """Return the weight files in a model's folder."""
    return sorted({file for pattern in _WEIGHT_PATTERNS for file in folder.glob(pattern)})


def find_elmo(folder: Path) -> tuple[Path, Path] | None:
    """Return the options and the weights in a folder of ELMo; None if it is none.

    Raises
    ------
    UserError
        The folder has several files of options or weights.
    """
    if (folder / CONFIG).is_file():
        return None
    options, weights = (sorted(folder.glob(one)) for one in (ELMO_OPTIONS, ELMO_WEIGHTS))
    if not (options and weights):
        return None
    if len(options) > 1 or len(weights) > 1:
        raise UserError(
            f"model {folder}: wanted one {ELMO_OPTIONS} and one {ELMO_WEIGHTS}, found "
            f"{len(options)} and {len(weights)}"
        )
    return options[0], weights[0]


def _require_model_files(name: str, folder: Path) -> None:
    if find_elmo(folder) is not None:
        return
    if not (folder / CONFIG).is_file():
        raise UserError(f"model {name}: wanted a folder with {CONFIG}, found a folder without it")
    require_weights(name, folder)


def require_weights(name: str, folder: Path) -> None:
    """Check that the folder of model `name` has weight files.

    Raises
    ------
    UserError
        The folder has no weight files.
    """
    if not weight_files(folder):
        raise UserError(f"model {name}: wanted *.safetensors or pytorch_model.bin, found neither")


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    named, revision = split_revision(name)
    try:
        cached = Path(snapshot_download(named, revision=revision, local_files_only=True))
        if weight_files(cached):
            return cached
    except HFValidationError as error:
        raise UserError(f"model {name}: wanted a folder or a hub name, found neither") from error
    except LocalEntryNotFoundError:
        pass  # not in the cache: ask the hub
    if not hub_reachable():
        raise UserError(
            f"model {name}: wanted {OFFLINE_MODEL!r}, a local folder or a reachable hub; found no "
            "such folder, nothing in the hub's cache, and the hub does not answer"
            f"{similar_name(name)}"
        )
    try:
        return _download(name)
    except GatedRepoError as error:
        raise UserError(
            f"model {name}: wanted a model that the hub gives to you, found terms on the hub that "
            "you have not accepted"
        ) from error
    except RepositoryNotFoundError as error:
        raise UserError(
            f"model {name}: wanted a folder or a model of the hub, found no such folder and no "
            "such model on the hub"
        ) from error
    except (HfHubHTTPError, LocalEntryNotFoundError) as error:
        raise UserError(f"model {name}: wanted a download from the hub, found: {error}") from error


def _download(name: str) -> Path:
    from huggingface_hub import snapshot_download

    named, revision = split_revision(name)
    for weights in _WEIGHT_PATTERNS:  # an old model has no safetensors file
        wanted = [*_OTHER_PATTERNS, weights]
        path = Path(snapshot_download(named, revision=revision, allow_patterns=wanted))
        if weight_files(path):
            break
    _require_model_files(name, path)
    return path
