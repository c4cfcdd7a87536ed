"""Models that Python builds: ``timm:NAME``, ``torchvision:NAME``, or ``module:function``.

Such a model is a torch module without a folder. Its fingerprint is a hash of its weights and of its
description, because a name may stand for other weights tomorrow.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlab.errors import UserError, argument, first_line
from simlab.results.results import ORIG, RANDOM, Side
from simlab.store.files import hash_file, hash_json

if TYPE_CHECKING:
    import torch
    from torch import nn

TIMM, TORCHVISION = "timm:", "torchvision:"
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@dataclass(frozen=True)
class BuiltModel:
    """A model, and what prepares its inputs."""

    name: str
    model: nn.Module  # in evaluation mode
    # A function from an image of PIL to a tensor, or a tokenizer of transformers; None if the model
    # takes the values of images as they are.
    prepare: Any = None
    source: Path | None = None  # the file of the function that built the model

    @cached_property
    def fingerprint(self) -> str:
        """Return a hash of the weights, the description and the source."""
        digest = hashlib.sha256()
        for name, value in sorted(self.model.state_dict(keep_vars=False).items()):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(_bytes(value))
        described = [_ADDRESS.sub("", repr(one)) for one in (self.model, self.prepare)]
        code = None if self.source is None else hash_file(self.source)
        return hash_json([digest.hexdigest(), *described, code])

    def side(
        self, label: str, seed: int | None = None, random_init_seed: int | None = None
    ) -> Side:
        """Return how rows name the model, as `Checkpoint.side` does; it is a base itself."""
        return Side(label, seed, self.name, ORIG if random_init_seed is None else RANDOM)


def is_built(name: object) -> bool:
    """Return whether a model's name is one of this module's.

    >>> is_built("timm:resnet18"), is_built("my.nets:small"), is_built("runs/ft-1")
    (True, True, False)
    """
    text = str(name)
    has_form = text.startswith((TIMM, TORCHVISION)) or _FUNCTION.fullmatch(text) is not None
    return has_form and not Path(text).is_dir()


def build_model(name: str, random_init_seed: int | None = None) -> BuiltModel:
    """Build the model ``timm:NAME``, ``torchvision:NAME`` or ``module:function``.

    The function, whose module is searched in the working directory too, takes no arguments and
    returns a module, or a module and what prepares its inputs (`BuiltModel.prepare`). It is called
    with torch seeded by `random_init_seed`, or by 0.
    """
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(random_init_seed or 0)
        pretrained = random_init_seed is None
        if name.startswith(TIMM):
            built = _from_timm(name, pretrained)
        elif name.startswith(TORCHVISION):
            built = _from_torchvision(name, pretrained)
        else:
            built = _from_function(name)
    built.model.eval()
    return built


def _from_timm(name: str, pretrained: bool) -> BuiltModel:
    timm = _library(name, "timm")
    _library(name, "torchvision")  # timm's transforms are made of torchvision's
    model_name = name.removeprefix(TIMM)
    if not (timm.is_model(model_name) or model_name.startswith("hf")):
        near = ", ".join(timm.list_models(f"*{model_name}*")[:5]) or "none like it"
        raise UserError(f"model {name}: wanted a name of timm.list_models(), found {near}")
    with _no_weights(name):
        model = timm.create_model(model_name, pretrained=pretrained)
    config = timm.data.resolve_model_data_config(model)
    return BuiltModel(name, model, timm.data.create_transform(**config, is_training=False))


def _from_torchvision(name: str, pretrained: bool) -> BuiltModel:
    models = _library(name, "torchvision").models
    model_name = name.removeprefix(TORCHVISION)
    if model_name not in models.list_models():
        near = ", ".join(models.list_models(include=f"*{model_name}*")[:5]) or "none like it"
        raise UserError(f"model {name}: wanted a name of torchvision.models, found {near}")
    weights = models.get_model_weights(model_name).DEFAULT
    with _no_weights(name):
        model = models.get_model(model_name, weights=weights if pretrained else None)
    return BuiltModel(name, model, weights.transforms())


def _library(name: str, library: str) -> Any:
    """Import timm or torchvision."""
    try:
        return importlib.import_module(library)
    except (ModuleNotFoundError, RuntimeError) as error:  # none, or one for another torch
        from simcore._optional import install_command

        raise UserError(
            f"model {name}: wanted {library}, found: {first_line(error)}; "
            f"`{install_command('vision')}`"
        ) from error


@contextmanager
def _no_weights(name: str) -> Iterator[None]:
    """Turn errors of a download into a UserError of one line."""
    try:
        yield
    except Exception as error:  # clients raise errors of any type without a connection
        reason = first_line(error)
        raise UserError(
            f"model {name}: wanted its pretrained weights, found: {reason}; "
            f"{argument('random_init_seed')} draws random ones"
        ) from error


def _from_function(name: str) -> BuiltModel:
    from torch import nn

    function = _function(name)
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise UserError(
            f"model {name}: wanted a function without arguments, found: {error}"
        ) from error
    except ValueError:  # written in another language: no signature to check
        pass
    built = function()
    model, prepare = built if isinstance(built, tuple) and len(built) == 2 else (built, None)
    if not isinstance(model, nn.Module):
        raise UserError(
            f"model {name}: wanted a function that returns a torch module, or a module and what "
            f"prepares its inputs, found one that returns {type(model).__name__}"
        )
    try:
        file = inspect.getsourcefile(inspect.unwrap(function))
    except TypeError:  # no function of its own, such as functools.partial
        file = sys.modules[name.partition(":")[0]].__file__
    return BuiltModel(name, model, prepare, None if file is None else Path(file))


def _function(name: str) -> Callable[[], Any]:
    """Import a function by name."""
    place, _, attribute = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise  # the module exists, and lacks another one
        raise UserError(
            f"model {name}: wanted a module {place} in the working directory or installed, found "
            "none"
        ) from error
    finally:
        sys.path.remove(str(Path.cwd()))
    function = getattr(module, attribute, None)
    if not callable(function):
        names = [one for one, value in vars(module).items() if inspect.isfunction(value)]
        raise UserError(
            f"model {name}: wanted a function {attribute} in {place}, found "
            f"{', '.join(names) or 'none'}"
        )
    return function


def _bytes(value: torch.Tensor) -> memoryview:
    import torch

    flat = value.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data
