"""Hugging Face models by name or folder, and their randomly initialised twins."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab import assets
from simlab.errors import UserError
from simlab.families import padding_side, position_limit, random_twin
from simlab.files import hash_file, hash_json, read_json
from simlab.runtime import hub_reachable, quiet_libraries

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

    from simlab.tasks import Task

OFFLINE_MODEL = "minilm"
CONFIG = "config.json"
_BRACES = re.compile(r"\{(?:(?P<first>\d+)\.\.(?P<last>\d+)|(?P<words>[^{}]*,[^{}]*))\}")
_WEIGHT_PATTERNS = ("*.safetensors", "pytorch_model*.bin")
_OTHER_PATTERNS = ["*.json", "*.txt", "*.model", "*.jinja"]


@dataclass(frozen=True)
class ModelSource:
    """A model that is on this machine: the name the user gave and the folder it is in."""

    name: str
    path: Path

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the configuration, tokenizer and weight files."""
        patterns = (*_WEIGHT_PATTERNS, "*.json", "vocab.txt", "*.model")
        files = sorted({file for pattern in patterns for file in self.path.glob(pattern)})
        ours = {"job.json", "evaluation.json"}  # written beside a checkpoint, no part of it
        return hash_json({file.name: hash_file(file) for file in files if file.name not in ours})


def expand_names(names: Sequence[str]) -> list[str]:
    """Names of models, with ``{0..24}`` and ``{a,b}`` written out as a shell does.

    >>> expand_names(["google/multiberts-seed_{0..2}"])[-1]
    'google/multiberts-seed_2'
    """
    return [one for name in names for one in _expand(name)]


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


def resolve(name: str) -> ModelSource:
    """Find model `name` and return the local folder that holds it.

    `name` is ``minilm`` (the offline default), a folder written by ``save_pretrained``, or a
    model of the hub, which is downloaded to the hub's own cache if it is not there.

    Raises
    ------
    UserError
        The folder is not a model, or the hub does not know the name or cannot be reached.
    """
    if name == OFFLINE_MODEL:
        return ModelSource(name, assets.fetch("minilm"))
    folder = Path(name).expanduser()
    if len(several := _expand(name)) > 1 and not folder.exists():
        raise UserError(f"model {name}: wanted one model, found a pattern of {len(several)}")
    if folder.is_dir():
        _require_model_files(name, folder)
        return ModelSource(name, folder)
    if folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise UserError(f"model {name}: wanted a folder with {CONFIG}, found no such folder")
    return ModelSource(name, _from_hub(name))


def read_config(file: Path) -> dict[str, Any]:
    """Read a ``config.json`` as it is.

    Raises
    ------
    UserError
        It is damaged.
    """
    found = read_json(file)
    if not isinstance(found, dict):
        raise UserError(f"{file}: wanted a JSON object, found {found!r:.40}")
    return found


def load_config(source: ModelSource) -> PreTrainedConfig:
    """Load the configuration of `source`."""
    quiet_libraries()
    from transformers import AutoConfig

    if (source.path / CONFIG).is_file():
        read_config(source.path / CONFIG)  # the library's complaints do not name the file
    with _load_errors(source, "a configuration"):
        return AutoConfig.from_pretrained(source.path, local_files_only=True)


def load_tokenizer(source: ModelSource) -> PreTrainedTokenizerBase:
    """Load the tokenizer of `source`, which pads where the model's head reads no token.

    Its ``model_max_length`` is not more than the model has positions for.
    """
    quiet_libraries()
    from transformers import AutoTokenizer

    config = load_config(source)
    with _load_errors(source, "a tokenizer"):
        tokenizer = AutoTokenizer.from_pretrained(source.path, local_files_only=True)
    tokenizer.padding_side = padding_side(config)
    if tokenizer.pad_token is None:  # decoders have none; padding is masked, any token will do
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    limit = position_limit(config)
    if limit is not None:
        tokenizer.model_max_length = min(tokenizer.model_max_length, limit)
    return tokenizer


def load_encoder(
    source: ModelSource, random_init_seed: int | None = None, *, attention: bool = False
) -> PreTrainedModel:
    """Load the encoder without a task head, in evaluation mode and float32.

    With `random_init_seed`, only the configuration is taken from `source` and the weights are
    drawn afresh: the random twin that pretrained representations are compared with. With
    `attention` the model can return its attention weights, which fused attention never forms.

    Raises
    ------
    UserError
        An unknown architecture, damaged files, or weights missing.
    """
    from transformers import AutoModel

    config = load_config(source)
    how = {"attn_implementation": "eager"} if attention else {}
    with _load_errors(source, "an encoder"):
        if random_init_seed is not None:
            model = random_twin(AutoModel, config, random_init_seed, **how)
        else:
            model, fresh = _load_weights(AutoModel, source, config, **how)
            _require_encoder(model, fresh, source)
    return model.float().eval()


def load_classifier(
    source: ModelSource, task: Task | None = None, *, seed: int = 0, random_init: bool = False
) -> PreTrainedModel:
    """Load a sequence classifier, a regressor or a multiple-choice model.

    It comes in evaluation mode and float32.

    Parameters
    ----------
    source
        A fine-tuned checkpoint, or a pretrained encoder that gets a fresh head for `task`.
    task
        Decides the kind and the size of the head; None keeps the head that the checkpoint has.
    seed
        Seeds the fresh head, and all weights with `random_init`.
    random_init
        Take only the configuration from `source`.

    Raises
    ------
    UserError
        An unknown architecture, one that has no such head, damaged files, weights missing; or,
        without `task`, a checkpoint without a head.
    """
    import transformers

    config = load_config(source)
    if config.pad_token_id is None:  # heads of decoders look for the last token that is none
        config.pad_token_id = load_tokenizer(source).pad_token_id
    if task is not None:
        _set_head(config, task)
    if _is_multiple_choice(config, task):
        auto_class, wanted = transformers.AutoModelForMultipleChoice, "a multiple-choice model"
    else:
        auto_class = transformers.AutoModelForSequenceClassification
        wanted = "a sequence classifier"
    with _load_errors(source, wanted), seeded(seed):
        if random_init:
            return auto_class.from_config(config).float().eval()
        model, fresh = _load_weights(auto_class, source, config)
    _require_encoder(model, fresh, source)
    if task is None and fresh:
        raise UserError(
            f"model {source.name}: wanted a checkpoint with a head, found no weights, or of "
            f"another shape, for {', '.join(f'{name}{shapes}' for name, shapes in fresh.items())}"
        )
    return model.float().eval()


def require_head(model: PreTrainedModel, source: ModelSource, task: Task) -> None:
    """Check that the head of `model` is one for `task`.

    Raises
    ------
    UserError
        It is of another kind, or has another number of outputs than the task has labels, or names
        other labels or the same in another order.
    """
    kind = "multiple-choice" if task.is_multiple_choice else "classifier"
    found = "multiple-choice" if _is_multiple_choice(model.config, None) else "classifier"
    if kind != found:
        raise UserError(
            f"model {source.name}: task {task.name} wanted a {kind} head, found a {found} head"
        )
    wanted = 1 if task.is_regression else len(task.label_names)
    if model.config.num_labels != wanted:
        raise UserError(
            f"model {source.name}: task {task.name} wanted a head with {wanted} outputs, found "
            f"{model.config.num_labels}"
        )
    if kind == "classifier" and not task.is_regression:
        _require_labels(model.config, source, task)


def _require_labels(config: PreTrainedConfig, source: ModelSource, task: Task) -> None:
    """Refuse a head whose outputs stand for other labels than the task's of the same number.

    A name that is nothing but the number (``LABEL_0``, ``0``) leaves that open.
    """
    found = [str(config.id2label.get(index)) for index in range(config.num_labels)]
    for index, pair in enumerate(zip(task.label_names, found, strict=True)):
        said = {name.casefold() for name in pair if name not in (f"LABEL_{index}", str(index))}
        if len(said) > 1:
            raise UserError(
                f"model {source.name}: task {task.name} wanted a head with labels "
                f"{', '.join(task.label_names)}, found {', '.join(found)}"
            )


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch inside the block and restore its state after it."""
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def _set_head(config: PreTrainedConfig, task: Task) -> None:
    if task.is_regression:
        config.num_labels = 1
        config.problem_type = "regression"
        return
    names = task.label_names  # of multiple choice, the numbers of the choices
    config.id2label = dict(enumerate(names))  # sets num_labels too
    config.label2id = {name: index for index, name in enumerate(names)}
    config.problem_type = "single_label_classification"


def _is_multiple_choice(config: PreTrainedConfig, task: Task | None) -> bool:
    """Whether the task, or else the checkpoint, is of multiple choice."""
    if task is not None:
        return task.is_multiple_choice
    return any(name.endswith("ForMultipleChoice") for name in config.architectures or ())


def _load_weights(
    auto_class: Any, source: ModelSource, config: PreTrainedConfig, **how: Any
) -> tuple[PreTrainedModel, dict[str, str]]:
    """Load a model, and name the weights that the files lack or have in another shape.

    Beside the name of one in another shape stand both shapes, for messages.

    Raises
    ------
    UserError
        Damaged or missing files; or a weight is NaN or infinite, and with it whatever is computed.
    """
    _require_weights(source.name, source.path)
    with _weight_errors(source):
        model, report = auto_class.from_pretrained(
            source.path,
            config=config,
            local_files_only=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            **how,
        )
    _require_finite(model, source)
    shapes = {
        name: f" (wanted {list(wanted)}, found {list(found)})"
        for name, found, wanted in report["mismatched_keys"]
    }
    return model, dict(sorted((dict.fromkeys(report["missing_keys"], "") | shapes).items()))


def _require_finite(model: PreTrainedModel, source: ModelSource) -> None:
    for name, weights in model.named_parameters():
        if not weights.isfinite().all():
            found = "NaN" if weights.isnan().any() else "infinity"
            raise UserError(f"model {source.name}: wanted finite weights, found {found} in {name}")


def _require_encoder(model: PreTrainedModel, fresh: dict[str, str], source: ModelSource) -> None:
    """Refuse an encoder of which some weights would be random; a pooler belongs to the head."""
    prefix = "" if model.base_model is model else f"{model.base_model_prefix}."
    lost = [name for name in fresh if name.startswith(prefix) and "pooler." not in name]
    if lost:
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        raise UserError(
            f"model {source.name}: wanted weights for the whole encoder as {source.path} "
            f"describes it, found none, or of another shape, for {lost[0]}{fresh[lost[0]]}{more}"
        )


@contextmanager
def _load_errors(source: ModelSource, wanted: str) -> Iterator[None]:
    """Turn the loaders' complaints about the folder's content into one line."""
    try:
        yield
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise UserError(f"model {source.name}: wanted {wanted}, found: {_reason(error)}") from error


@contextmanager
def _weight_errors(source: ModelSource) -> Iterator[None]:
    """Turn complaints about the files of weights into one line that names the file."""
    from json import JSONDecodeError
    from pickle import UnpicklingError

    from safetensors import SafetensorError

    try:
        yield
    except (SafetensorError, UnpicklingError, EOFError, OSError, RuntimeError, ValueError) as error:
        found = _reason(error)
        if isinstance(error, RuntimeError) and "PytorchStreamReader" not in found:
            raise
        if isinstance(error, ValueError) and not isinstance(error, JSONDecodeError):
            raise
        if not isinstance(error, FileNotFoundError):  # that one says which file
            found = f"damaged weights in {_damaged_file(source.path)}: {found}"
        raise UserError(f"model {source.name}: wanted whole weights, found: {found}") from error


def _reason(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _damaged_file(folder: Path) -> Path:
    """The first file of weights that cannot be opened, or the folder if its files are no such."""
    from safetensors import SafetensorError, safe_open

    for file in sorted(folder.glob(_WEIGHT_PATTERNS[0])):
        try:
            with safe_open(file, "pt"):
                pass
        except SafetensorError:
            return file
    return next(folder.glob(_WEIGHT_PATTERNS[1]), folder)


def _has_weights(folder: Path) -> bool:
    return any(next(folder.glob(pattern), None) for pattern in _WEIGHT_PATTERNS)


def _require_model_files(name: str, folder: Path) -> None:
    if not (folder / CONFIG).is_file():
        raise UserError(f"model {name}: wanted a folder with {CONFIG}, found none in it")
    _require_weights(name, folder)


def _require_weights(name: str, folder: Path) -> None:
    if not _has_weights(folder):
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

    try:
        cached = Path(snapshot_download(name, local_files_only=True))
        if _has_weights(cached):
            return cached
    except HFValidationError as error:
        raise UserError(f"model {name}: wanted a folder or a hub name, found neither") from error
    except LocalEntryNotFoundError:
        pass  # not in the cache: ask the hub
    if not hub_reachable():
        raise UserError(
            f"model {name}: wanted {OFFLINE_MODEL!r}, a local folder or a reachable hub; found no "
            "such folder, nothing in the hub's cache, and the hub does not answer"
        )
    try:
        return _download(name)
    except GatedRepoError as error:
        raise UserError(f"model {name}: the hub wants you to accept its terms first") from error
    except RepositoryNotFoundError as error:
        raise UserError(f"model {name}: no such folder and no such model on the hub") from error
    except (HfHubHTTPError, LocalEntryNotFoundError) as error:
        raise UserError(f"model {name}: the hub failed to deliver it: {error}") from error


def _download(name: str) -> Path:
    from huggingface_hub import snapshot_download

    path = Path(snapshot_download(name, allow_patterns=[*_OTHER_PATTERNS, _WEIGHT_PATTERNS[0]]))
    if not _has_weights(path):  # an old model without a safetensors file
        path = Path(snapshot_download(name, allow_patterns=[*_OTHER_PATTERNS, _WEIGHT_PATTERNS[1]]))
    _require_model_files(name, path)
    return path
