"""Adapters of PEFT: a folder with ``adapter_config.json``, whose base is a model of its own.

The adapter is merged into the weights of its base when a model is loaded, so that every room meets
a model of transformers. Merging rounds once: layers differ from those of PEFT's own pass by the
rounding of float32. Where both sides of a question are the base and its adapter, they share one
copy of the weights (`load.load_switched`), and the pass is PEFT's own.
"""

from __future__ import annotations

import re
import warnings
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.errors import UserError
from simlab.models.hub import ADAPTER, weight_files
from simlab.store.files import read_json

if TYPE_CHECKING:
    from peft import PeftModel
    from torch import Tensor
    from transformers import PreTrainedConfig, PreTrainedModel

# The class that an adapter was trained on, whose names its weights have, by its ``task_type``.
_CLASSES = {
    "SEQ_CLS": "AutoModelForSequenceClassification",
    "CAUSAL_LM": "AutoModelForCausalLM",
    "TOKEN_CLS": "AutoModelForTokenClassification",
    "QUESTION_ANS": "AutoModelForQuestionAnswering",
    "SEQ_2_SEQ_LM": "AutoModelForSeq2SeqLM",
    "FEATURE_EXTRACTION": "AutoModel",
}
_WRAPPED = re.compile(r"\.(base_layer|original_module)(?=\.)")


def is_adapter(folder: Path) -> bool:
    """Return whether a folder holds an adapter, and not a whole model."""
    return (folder / ADAPTER).is_file()


def base_of(name: str, folder: Path) -> str:
    """Return the model that an adapter was trained on, as `sources.resolve` takes it."""
    if weight_files(folder):  # which may have the adapter in them already
        raise UserError(f"model {name}: wanted an adapter or whole weights, found both in {folder}")
    config = _config(folder)
    base = config.get("base_model_name_or_path")
    if not isinstance(base, str):
        raise UserError(f"model {name}: wanted the base of the adapter in {ADAPTER}, found {base}")
    revision = config.get("revision")
    return f"{base}@{revision}" if revision and not Path(base).is_dir() else base


def adapter_files(folder: Path) -> list[Path]:
    """Return the configuration and the weights of an adapter."""
    files = (ADAPTER, "adapter_model.safetensors", "adapter_model.bin")
    return [folder / name for name in files if (folder / name).is_file()]


def trained_class(folder: Path) -> Any:
    """Return the class of transformers on which an adapter was trained."""
    import transformers

    config = _config(folder)
    kind = config.get("task_type")
    # Without a type, PEFT stores the class itself.
    name = _CLASSES.get(str(kind)) or (config.get("auto_mapping") or {}).get("base_model_class")
    if not hasattr(transformers, str(name)):
        raise UserError(
            f"{folder / ADAPTER}: wanted a task_type of {', '.join(_CLASSES)}, found {kind}"
        )
    return getattr(transformers, str(name))


def set_outputs(config: PreTrainedConfig, folder: Path) -> None:
    """Let a configuration have as many outputs as the head of an adapter, if it has one.

    A quantised base is refused: merging an adapter would round its weights once more, by far more
    than float32 does.
    """
    if getattr(config, "quantization_config", None):
        raise UserError(f"{folder}: wanted an adapter of whole weights, found a quantised base")
    if _config(folder).get("task_type") != "SEQ_CLS":
        return
    heads, weights = _config(folder).get("modules_to_save") or (), _weights(folder)
    # Of embeddings that were trained too, the names begin with that of the encoder.
    tops = {name: name.removeprefix("base_model.model.").partition(".")[0] for name in weights}
    last = [name for name in sorted(weights) if tops[name] in heads]
    if last and config.num_labels != len(weights[last[-1]]):
        config.num_labels = len(weights[last[-1]])


def attached(model: PreTrainedModel, folder: Path, fresh: dict[str, str]) -> PeftModel:
    """Put an adapter into the modules of `model`, and take what it brings out of `fresh`.

    Each weight of the adapter has to find its place: PEFT leaves others out without a word.
    """
    import peft

    config = peft.PeftConfig.from_pretrained(str(folder))
    if config.is_prompt_learning:
        raise UserError(
            f"{folder}: wanted an adapter that can be merged into weights, found "
            f"{config.peft_type.value}, which adds tokens to each text"
        )
    config.task_type = None  # its wrappers want methods that the class of another head lacks
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Found missing adapter keys")
        wrapped = peft.PeftModel.from_pretrained(model, str(folder), config=config)
    found = _weights(folder)
    wanted = peft.get_peft_model_state_dict(wrapped, save_embedding_layers=False)
    if others := sorted({*found} ^ {*wanted}):
        raise UserError(
            f"{folder}: wanted the weights of an adapter of {type(model).__name__}, found "
            f"{others[0]} and {len(others) - 1} more on one side alone"
        )
    for name in found:
        for lacking in [one for one in fresh if name.endswith(f".{one}")]:
            del fresh[lacking]
    return wrapped


def checksums_of_base(model: PreTrainedModel) -> dict[str, int]:
    """Return the CRC-32 of every weight and buffer by its name in the model without an adapter.

    PEFT keeps the base's own in modules ``base_layer`` and ``original_module``.
    """
    import torch

    found = {}
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        stored = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
        found[_WRAPPED.sub("", name)] = zlib.crc32(stored)
    return found


def merged(model: PreTrainedModel, folder: Path, fresh: dict[str, str]) -> PreTrainedModel:
    """Return `model` with an adapter in its weights, as `attached` puts it into its modules."""
    whole: Any = attached(model, folder, fresh).merge_and_unload()
    return whole


def _config(folder: Path) -> dict[str, Any]:
    config = read_json(folder / ADAPTER)
    if not isinstance(config, dict):
        raise UserError(f"{folder / ADAPTER}: wanted a JSON object, found {config!r:.40}")
    return config


def _weights(folder: Path) -> dict[str, Tensor]:
    from peft.utils import load_peft_weights

    return load_peft_weights(str(folder), device="cpu")
