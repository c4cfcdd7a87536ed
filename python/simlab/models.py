"""Hugging Face models by name or folder, and their randomly initialised twins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from simlab import assets
from simlab.errors import UserError
from simlab.files import hash_file, hash_json
from simlab.runtime import hub_reachable, quiet_libraries

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from simlab.tasks import Task

OFFLINE_MODEL = "minilm"
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
    if folder.is_dir():
        _require_model_files(name, folder)
        return ModelSource(name, folder)
    if folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise UserError(f"model {name}: wanted a folder with config.json, found no such folder")
    return ModelSource(name, _from_hub(name))


def load_tokenizer(source: ModelSource) -> PreTrainedTokenizerBase:
    """Load the tokenizer of `source`, set to pad on the right so that CLS stays at position 0."""
    quiet_libraries()
    from transformers import AutoTokenizer

    with _load_errors(source, "a tokenizer"):
        tokenizer = AutoTokenizer.from_pretrained(source.path, local_files_only=True)
    tokenizer.padding_side = "right"
    if tokenizer.pad_token is None:  # decoders have none; padding is masked, any token will do
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_encoder(
    source: ModelSource, random_init_seed: int | None = None, *, attention: bool = False
) -> PreTrainedModel:
    """Load the encoder without a task head, in evaluation mode and float32.

    With `random_init_seed`, only the configuration is taken from `source` and the weights are
    drawn afresh: the random twin that pretrained representations are compared with. With
    `attention` the model can return its attention weights, which fused attention never forms.
    """
    quiet_libraries()
    from transformers import AutoConfig, AutoModel

    how = {"attn_implementation": "eager"} if attention else {}
    with _load_errors(source, "an encoder"):
        if random_init_seed is None:
            model = AutoModel.from_pretrained(source.path, local_files_only=True, **how)
        else:
            config = AutoConfig.from_pretrained(source.path, local_files_only=True)
            with seeded(random_init_seed):
                model = AutoModel.from_config(config, **how)
    return model.float().eval()


def load_classifier(
    source: ModelSource, task: Task | None = None, *, seed: int = 0, random_init: bool = False
) -> PreTrainedModel:
    """Load a sequence classifier (or regressor) in evaluation mode and float32.

    Parameters
    ----------
    source
        A fine-tuned checkpoint, or a pretrained encoder that gets a fresh head for `task`.
    task
        Decides the size of the head; None keeps the head that the checkpoint has.
    seed
        Seeds the fresh head, and all weights with `random_init`.
    random_init
        Take only the configuration from `source`.
    """
    quiet_libraries()
    from transformers import AutoConfig, AutoModelForSequenceClassification

    with _load_errors(source, "a sequence classifier"), seeded(seed):
        config = AutoConfig.from_pretrained(source.path, local_files_only=True)
        if task is not None:
            _set_head(config, task)
        if random_init:
            model = AutoModelForSequenceClassification.from_config(config)
        else:
            model = AutoModelForSequenceClassification.from_pretrained(
                source.path, config=config, local_files_only=True, ignore_mismatched_sizes=True
            )
    return model.float().eval()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch inside the block and restore its state after it."""
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def _set_head(config, task: Task) -> None:
    if task.is_regression:
        config.num_labels = 1
        config.problem_type = "regression"
        return
    names = task.label_names
    config.id2label = dict(enumerate(names))  # sets num_labels too
    config.label2id = {name: index for index, name in enumerate(names)}
    config.problem_type = "single_label_classification"


@contextmanager
def _load_errors(source: ModelSource, wanted: str) -> Iterator[None]:
    """Turn the loaders' complaints about the folder's content into one line."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        found = str(error).strip().partition("\n")[0] or type(error).__name__
        raise UserError(f"model {source.name}: wanted {wanted}, found: {found}") from error


def _has_weights(folder: Path) -> bool:
    return any(next(folder.glob(pattern), None) for pattern in _WEIGHT_PATTERNS)


def _require_model_files(name: str, folder: Path) -> None:
    if not (folder / "config.json").is_file():
        raise UserError(f"model {name}: wanted a folder with config.json, found none in it")
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
