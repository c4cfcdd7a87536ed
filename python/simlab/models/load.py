"""Load Hugging Face models from local folders, and make their randomly initialised twins."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from simlab.errors import UserError, argument
from simlab.models import adapters
from simlab.models.architectures import COUNT, text_config
from simlab.models.classes import (
    JIANT,
    classifier_class,
    head_of,
    match_head,
    replace_head,
    set_head,
)
from simlab.models.damage import note_left_out, require_encoder, require_finite
from simlab.models.hub import CONFIG, has_vocabulary
from simlab.models.place import OFFLOAD, PRECISIONS, SPREAD, empty_model, spread_over, stored_type
from simlab.models.recognise import attend_the_same, padding_side, position_limit
from simlab.models.sources import ModelSource, load_errors, resolve
from simlab.models.tokens import EMBEDDINGS, agree_on_padding, give_padding
from simlab.store.console import note
from simlab.store.files import read_json
from simlab.store.runtime import quiet_libraries

_MASK, _TYPES = "attention_mask", "token_type_ids"
_OWN: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}  # no code is run

if TYPE_CHECKING:
    import torch
    from peft import PeftModel
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

    from simlab.tasks import Task


def read_config(file: Path) -> dict[str, Any]:
    """Read a ``config.json`` as a dict."""
    config = read_json(file)
    if not isinstance(config, dict):
        raise UserError(f"{file}: wanted a JSON object, found {config!r:.40}")
    return config


def load_config(source: ModelSource) -> PreTrainedConfig:
    """Load the configuration of `source`."""
    quiet_libraries()
    from transformers import AutoConfig

    if (source.path / CONFIG).is_file():
        read_config(source.path / CONFIG)  # transformers' error messages do not name the file
    with load_errors(source, "a configuration"):
        config = AutoConfig.from_pretrained(source.path, **_OWN)
    count = getattr(text_config(config), COUNT, 1)
    if isinstance(count, int) and count < 1:
        raise UserError(f"model {source.name}: wanted one layer or more, found {COUNT} {count}")
    if source.adapter is not None:
        with load_errors(source, "an adapter"):
            adapters.set_outputs(config, source.adapter)
    config.return_dict = True  # outputs are read by their names
    return config


def load_tokenizer(source: ModelSource) -> PreTrainedTokenizerBase:
    """Load the tokenizer of `source`.

    The tokenizer pads on the side where the head reads no token, and its ``model_max_length`` is at
    most the number of positions of the model.
    """
    quiet_libraries()
    from transformers import AutoTokenizer

    config = load_config(source)
    text = text_config(config)
    with load_errors(source, "tokenizer files (tokenizer.json, vocab.txt)"):
        tokenizer = AutoTokenizer.from_pretrained(source.path, **_OWN)
    # For a folder without them, transformers makes a tokenizer that knows no word. A tokenizer of
    # bytes or characters (ByT5, CANINE) has none.
    if not has_vocabulary(source.path) and getattr(tokenizer, "vocab_files_names", None):
        raise UserError(
            f"model {source.name}: wanted tokenizer files (tokenizer.json, vocab.txt), found none "
            f"in {source.path}; `tokenizer.save_pretrained` writes them"
        )
    tokenizer.padding_side = padding_side(config)
    names = [*tokenizer.model_input_names]
    if _MASK not in names:  # FNet, whose model takes none: pools need it
        names.append(_MASK)
    if _TYPES in names and getattr(text, "type_vocab_size", 2) in (0, 1):
        names.remove(_TYPES)  # of BERT's tokenizer, beside a RoBERTa
    tokenizer.model_input_names = names
    give_padding(tokenizer, source.name)
    if (count := getattr(text, "vocab_size", None)) is not None:
        EMBEDDINGS[tokenizer] = count
    if (limit := position_limit(config)) is not None:
        tokenizer.model_max_length = min(tokenizer.model_max_length, limit)
    return tokenizer


def load_model(name: str | Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load an encoder and its tokenizer by the name that commands take.

    Parameters
    ----------
    name
        ``minilm`` (the offline model), a folder, or a model of the hub, also ``name@revision``.

    Returns
    -------
    tuple of a model and a tokenizer of transformers
        The model has no head, and is in evaluation mode, in float32, on the CPU.

    Raises
    ------
    UserError
        There is no such model, or its files are damaged or missing.

    Examples
    --------
    >>> from simlab import load_model
    >>> model, tokenizer = load_model("minilm")
    """
    source = resolve(name)
    return load_encoder(source), load_tokenizer(source)


def load_encoder(
    source: ModelSource,
    random_init_seed: int | None = None,
    *,
    attention: bool = False,
    weights: str = PRECISIONS[0],
    device: str | None = None,
    scratch: Path | None = None,
) -> PreTrainedModel:
    """Load the encoder of `source` without a head, in evaluation mode.

    With `random_init_seed`, only the configuration is read, and the weights are drawn: the random
    twin. `attention` loads a model that can return its attention weights, which fused attention
    never computes. On `device` ``spread`` or ``offload``, accelerate places the model
    (`place.spread_over`); on any other, it comes in the memory of the host.
    """
    from transformers import AutoModel

    config = load_config(source)
    how: dict[str, Any] = {"attn_implementation": "eager"} if attention else {}
    with load_errors(source, "an encoder"):
        if random_init_seed is not None:
            if device in (OFFLOAD, SPREAD):
                raise UserError(
                    f"{argument('device', device)}: wanted a model whose weights are in files, "
                    f"found {argument('random_init_seed', random_init_seed)}"
                )
            model = random_twin(AutoModel, config, random_init_seed, **how)
            model.to(_precision(weights, config, source))  # rounds the weights of the float32 twin
        else:
            how |= {"device": device, "scratch": scratch}
            stored = _stored_class(source, config)
            model, fresh, unused = load_weights(stored or AutoModel, source, config, weights, **how)
            require_encoder(model, fresh, unused, source)
            model = model if stored is None else cast("Any", model).base_model
    return _ready(model)


def load_switched(source: ModelSource, weights: str) -> tuple[PreTrainedModel, PeftModel] | None:
    """Load an adapter and its base in one copy of the weights.

    The encoder is the adapted one; inside ``disable_adapter()`` of PEFT's model, which comes with
    it, it is the base. None stands for adapters that change the base itself: trained biases, and
    PiSSA and its kind, which take a part out of the weights.
    """
    assert source.adapter is not None
    auto_class = adapters.trained_class(source.adapter)
    with load_errors(source, "an encoder"):
        base, config = replace(source, adapter=None), load_config(source)
        model, fresh, unused = load_weights(auto_class, base, config, weights)
        before = adapters.checksums_of_base(model)
        switch = adapters.attached(model, source.adapter, fresh)
        require_encoder(model, fresh, unused, source)
        require_finite(model, fresh, source)
    if not before.items() <= adapters.checksums_of_base(model).items():
        return None
    return _ready(cast("Any", model).base_model), switch


def _stored_class(source: ModelSource, config: PreTrainedConfig) -> Any:
    """Return the class whose names of weights an adapter or torchao's files have; else None."""
    import transformers

    if source.adapter is not None:
        return adapters.trained_class(source.adapter)
    if getattr(config, "quantization_config", None) and config.architectures:
        return getattr(transformers, config.architectures[0], None)
    return None


def load_classifier(
    source: ModelSource,
    task: Task | None = None,
    *,
    seed: int = 0,
    random_init: bool = False,
    head: str | None = None,
    device: str | None = None,
    scratch: Path | None = None,
) -> PreTrainedModel:
    """Load a sequence classifier, a regressor or a multiple-choice model in float32 for evaluation.

    With a `task`, the model gets a new random head of kind `head` (`classes.HEADS`), also in place
    of the checkpoint's; without one, the checkpoint's head stays, and `load_scored` matches it with
    a task. `seed` draws the new head, and all weights if `random_init`; `device` and `scratch` are
    as for `load_encoder`.
    """
    import torch

    config = load_config(source)
    if config.is_encoder_decoder:
        raise UserError(
            f"model {source.name}: wanted an encoder or a decoder, found an encoder-decoder "
            f"({config.model_type}), whose head no experiment reads; "
            f"{argument('modules', of='extract')} records its encoder"
        )
    agree_on_padding(config, load_tokenizer(source))
    if task is not None:
        set_head(config, task, head or head_of(config))
    with load_errors(source, "a model with a head for a task"):
        auto_class, wanted = classifier_class(config, task)
    with load_errors(source, wanted), seeded(seed):
        if random_init:
            return _ready(auto_class.from_config(config, dtype=torch.float32))
        how: dict[str, Any] = {"device": device, "scratch": scratch}
        model, fresh, unused = load_weights(auto_class, source, config, **how)
    require_encoder(model, fresh, unused, source)
    if task is not None:
        with seeded(seed):
            fresh = replace_head(model, fresh, f"model {source.name}", seed)
    pooler = f"{model.base_model_prefix}.pooler."
    if head_of(config) == JIANT and any(name.startswith(pooler) for name in fresh):
        note(
            f"model {source.name}: its files have no pooler, so that the head of jiant reads a "
            f"random one, which fine-tuning trains and {argument('modes', 'tuned-orig')} does not"
        )
    if task is None and fresh:
        raise UserError(
            f"model {source.name}: wanted a checkpoint with a head, found no weights, or weights "
            f"of another shape, for {', '.join(f'{name}{why}' for name, why in fresh.items())}"
        )
    if task is not None:
        task.note_taken()
    return _ready(model)


def load_scored(source: ModelSource, task: Task, **where: Any) -> PreTrainedModel:
    """Load a checkpoint with its own head, matched with `task` (`match_head`).

    `where` are `device` and `scratch` of `load_classifier`.
    """
    model = load_classifier(source, **where)
    match_head(model, source, task)
    task.note_taken()
    return model


def random_twin(auto_class: Any, config: PreTrainedConfig, seed: int, **how: Any) -> Any:
    """Return a model of `auto_class` in float32, drawn by its own initialisation."""
    import torch

    with seeded(seed):
        return auto_class.from_config(config, dtype=torch.float32, **how)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's random generator inside the block, and restore its state at the end."""
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def _ready(model: PreTrainedModel) -> PreTrainedModel:
    """Return `model` in evaluation mode; a decoder keeps no cache of keys and values."""
    config = text_config(model.config)
    # Nothing here generates, and a model without some of its layers may have no fitting cache.
    if getattr(config, "use_cache", False):
        config.use_cache = False
    return attend_the_same(model).eval()


def _precision(weights: str, config: PreTrainedConfig, source: ModelSource) -> torch.dtype:
    """Return the type of `weights`; ``auto`` is the configuration's, else that in the files."""
    import torch

    named = config.dtype or stored_type(source) if weights == PRECISIONS[-1] else weights
    return getattr(torch, str(named).removeprefix("torch."), torch.float32)


def load_weights(
    auto_class: Any,
    source: ModelSource,
    config: PreTrainedConfig,
    dtype: str = PRECISIONS[0],
    device: str | None = None,
    scratch: Path | None = None,
    **how: Any,
) -> tuple[PreTrainedModel, dict[str, str], list[str]]:
    """Load a model in `dtype`, and find the weights that its files lack or have in another shape.

    The text of such a weight is empty if the weight is missing, and has both shapes if its shape is
    another. The weights of the files that have no place in the model come last.
    """
    if device in (OFFLOAD, SPREAD):
        if source.adapter is not None:
            raise UserError(
                f"{argument('device', device)}: wanted a whole model, found an adapter, "
                f"{source.adapter}, which is merged in the memory of the host"
            )
        empty = empty_model(auto_class, config, _precision(dtype, config, source), **how)
        how |= spread_over(empty, source, device, scratch)
    with warnings.catch_warnings():
        # A parameter of the model itself is in the map of devices without a module of its name.
        warnings.filterwarnings("ignore", message="The following device_map keys")
        model, report = auto_class.from_pretrained(
            source.path,
            config=config,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            dtype=dtype,
            **_OWN,
            **how,
        )
    fresh = dict.fromkeys(report["missing_keys"], "") | {
        name: f" (wanted {list(wanted)}, found {list(found)})"
        for name, found, wanted in report["mismatched_keys"]
    }
    if source.adapter is not None:
        model = adapters.merged(model, source.adapter, fresh)
    require_finite(model, fresh, source)
    unused = sorted(report["unexpected_keys"])
    note_left_out(model, unused, source)
    return model, dict(sorted(fresh.items())), unused
