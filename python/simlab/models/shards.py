"""The weights of a model in safetensors files: read a part of them into the model, and free it.

A model that `empty_model` makes has parameters without values, on torch's device ``meta``. `Shards`
gives values to the parameters of one module, and takes them away again. The names and types that
the files and the model give the same weight differ between versions of transformers, and experts
are stored apart and computed as one tensor. So transformers' own loader converts each part; it gets
the tensors of this part alone, and reads no other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from simlab.errors import UserError, argument
from simlab.models.damage import load_errors, require_finite
from simlab.models.files import weight_files

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig, PreTrainedModel

    from simlab.models.sources import ModelSource

OFFLOAD = "offload"  # the device of models whose blocks are read one at a time
SAFETENSORS = ".safetensors"
# Types of floating point: how files of safetensors name them, and how torch does.
_TYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float64"}


def empty_model(
    auto_class: Any, config: PreTrainedConfig, dtype: torch.dtype, **how: Any
) -> PreTrainedModel:
    """Return a model of `auto_class` with its buffers, and with parameters on device ``meta``."""
    import torch
    from accelerate import init_empty_weights

    # Modules draw weights before they lie on ``meta``; the loader of transformers draws none.
    with torch.random.fork_rng(), init_empty_weights(include_buffers=False):
        model: PreTrainedModel = auto_class.from_config(config, dtype=dtype, **how)
    return model


def draw_weights(model: PreTrainedModel, names: Iterable[str]) -> None:
    """Draw the weights `names` as transformers draws weights that files lack."""
    import torch
    from accelerate.utils import set_module_tensor_to_device

    wanted, names = model.state_dict(), set(names)
    for name in names:
        values = torch.empty_like(wanted[name], device="cpu")
        set_module_tensor_to_device(model, name, "cpu", value=values)
    for module in model.modules():
        module.__dict__.pop("_is_hf_initialized", None)
    for name, weight in model.state_dict(keep_vars=True).items():
        weight._is_hf_initialized = name not in names
    model.initialize_weights()


def weight_shapes(source: ModelSource) -> dict[str, tuple[list[int], str]]:
    """Return shape and type of each tensor in the files of a model, by its name.

    The headers of the files are read, and no weight. Types are named as in torch.
    """
    import torch
    from safetensors import safe_open

    shapes: dict[str, tuple[list[int], str]] = {}
    for file in weight_files(source.path):
        with load_errors(source, "whole weights"):
            if file.suffix != SAFETENSORS:
                # A pickle may hold more than tensors.
                loaded = torch.load(file, map_location="meta", weights_only=True).items()
                tensors = {n: one for n, one in loaded if isinstance(one, torch.Tensor)}
                shapes |= {
                    name: ([*one.shape], str(one.dtype).removeprefix("torch."))
                    for name, one in tensors.items()
                }
                continue
            with safe_open(file, "pt") as opened:
                slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
                shapes |= {
                    name: (one.get_shape(), _TYPES.get(one.get_dtype(), one.get_dtype()))
                    for name, one in slices.items()
                }
    return shapes


class Shards:
    """The safetensors files of a model, and which of their tensors each parameter is made of.

    `model` is a model of `empty_model`; weights that it has already were drawn, and are not read.
    """

    def __init__(self, model: PreTrainedModel, source: ModelSource) -> None:
        from transformers.conversion_mapping import get_model_conversion_mapping

        self.model, self.source = model, source
        other = [file.name for file in weight_files(source.path) if file.suffix != SAFETENSORS]
        if other:
            raise UserError(
                f"{argument('device', OFFLOAD)}: wanted weights in safetensors files, which can be "
                f"read in parts, found {other[0]} in {source.path}; `save_pretrained` writes them"
            )
        self._mapping = get_model_conversion_mapping(model)
        self._wanted = model.state_dict()
        self._sources: dict[str, dict[str, Path]] = {}  # of each parameter: tensors and their files
        self._shapes: dict[str, list[int]] = {}  # of tensors that are not converted
        with load_errors(source, "whole weights"):
            self._map_names()
        drawn = [name for name, weight in model.named_parameters() if not weight.is_meta]
        for name in drawn:
            self._sources.pop(name, None)
            self._shapes.pop(name, None)
        # Weights that the files lack or have in another shape, as `load.load_weights` gives them.
        self.fresh = dict.fromkeys(drawn, "") | self._missing()

    def load(self, names: Iterable[str], device: str | torch.device) -> None:
        """Give the parameters `names` their values on `device`; NaN and infinity are refused."""
        from safetensors import safe_open

        files: dict[Path, list[str]] = {}
        names = list(names)
        for name in names:
            for tensor, file in self._sources.get(name, {}).items():
                files.setdefault(file, []).append(tensor)
        with ExitStack() as opened, load_errors(self.source, "whole weights"):
            slices: dict[str, Any] = {}
            for file, tensors in files.items():
                reader = opened.enter_context(safe_open(file, "pt"))
                slices |= {tensor: reader.get_slice(tensor) for tensor in tensors}
            self._convert(slices, device)
        own = self.model.state_dict()
        require_finite(((name, own[name]) for name in names), self.source)

    def free(self, names: Iterable[str]) -> None:
        """Take the values of the parameters `names` away, and give their memory back."""
        from accelerate.utils import set_module_tensor_to_device

        for name in names:
            set_module_tensor_to_device(self.model, name, "meta")

    def draw_fresh(self) -> dict[str, str]:
        """Draw the parameters in `fresh` as transformers draws missing weights; return `fresh`."""
        draw_weights(self.model, self.fresh)
        return self.fresh

    def move(self, device: str | torch.device) -> None:
        """Move drawn parameters and buffers to `device`."""
        from accelerate.utils import set_module_tensor_to_device

        for name in self.fresh:
            set_module_tensor_to_device(self.model, name, device)
        for name, buffer in list(self.model.named_buffers()):
            if not buffer.is_meta:
                set_module_tensor_to_device(self.model, name, device, value=buffer)

    def _map_names(self) -> None:
        """Find the parameters that each tensor of the files is a part of."""
        from safetensors import safe_open

        for file in weight_files(self.source.path):
            with safe_open(file, "pt") as tensors:
                for tensor in tensors.keys():  # noqa: SIM118
                    names, is_whole = self._names_of(tensor)
                    for name in names:
                        self._sources.setdefault(name, {})[tensor] = file
                    if is_whole:
                        self._shapes[names[0]] = tensors.get_slice(tensor).get_shape()

    def _names_of(self, tensor: str) -> tuple[list[str], bool]:
        """Return the parameters that a tensor of the files belongs to, and whether it is the one.

        Otherwise it is converted: parameters are cut from it, or it is a part of a parameter.
        """
        from transformers.core_model_loading import (
            WeightConverter,
            WeightRenaming,
            rename_source_key,
        )

        renamings = [one for one in self._mapping if isinstance(one, WeightRenaming)]
        converters = [one for one in self._mapping if isinstance(one, WeightConverter)]
        prefix = self.model.base_model_prefix
        renamed, pattern = rename_source_key(tensor, renamings, converters, prefix, self._wanted)
        if renamed not in self._wanted and tensor in self._wanted:
            renamed, pattern = rename_source_key(tensor, [], [], prefix, self._wanted)
        if pattern is None:
            return [renamed], True
        # The loader names a tensor of several parts after the first part.
        converter = next(one for one in converters if pattern in one.source_patterns)
        first, *_ = converter.target_patterns
        return [renamed.replace(first, part) for part in converter.target_patterns], False

    def _convert(self, slices: Mapping[str, Any], device: str | torch.device) -> None:
        """Let transformers put tensors into the model."""
        from transformers.core_model_loading import convert_and_load_state_dict_in_model
        from transformers.modeling_utils import LoadStateDictConfig

        dtype = self.model.dtype
        how = LoadStateDictConfig(
            device_map={"": device},
            dtype=dtype,
            dtype_plan=self.model._get_dtype_plan(dtype),
            weight_mapping=cast(Any, self._mapping),
        )
        report, _ = convert_and_load_state_dict_in_model(self.model, dict(slices), how)
        if report.mismatched_keys or report.conversion_errors or report.error_msgs:
            name, found, wanted = next(iter(report.mismatched_keys), ("?", "?", "?"))
            raise UserError(
                f"model {self.source.name}: wanted weights that fit its configuration, found "
                f"{name} of shape {list(found)} in place of {list(wanted)}"
            )

    def _missing(self) -> dict[str, str]:
        """Return the parameters that no file has a tensor for, or a tensor of another shape."""
        tied = getattr(self.model, "all_tied_weights_keys", {})
        may_lack = re.compile("|".join(self.model._keys_to_ignore_on_load_missing or ["$^"])).search
        missing = {}
        for name, wanted in sorted(self._wanted.items()):
            found = self._shapes.get(name)
            if found is not None and found != list(wanted.shape):
                missing[name] = f" (wanted {list(wanted.shape)}, found {found})"
            elif not (name in self._sources or name in tied or may_lack(name)):
                missing[name] = ""
        return missing


def stored_type(source: ModelSource) -> str:
    """Return the name of the type of the first tensor of floating point in the files of a model.

    As transformers does for the type ``auto`` where the configuration names none.
    """
    types = (dtype for _, dtype in weight_shapes(source).values())
    return next((name for name in types if name in _TYPES.values()), "float32")
