"""A batch of a loader as arguments of a model, and a pass that leaves no trace in a training."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from simcore.recording.wrappers import wrapped_in

Forward = Callable[[nn.Module, Any], Any]


def call(model: nn.Module, batch: Any) -> Any:
    """Call a model with a batch, moved to the device on which the model begins.

    A dictionary holds arguments by name. A tuple or list holds all positional arguments, or, for a
    model of one argument, the argument and what else a data set has, such as labels.
    """
    batch = moved(batch, device_of(model))
    if isinstance(batch, Mapping):
        return model(**batch)
    if isinstance(batch, str):
        raise TypeError(
            "loader: wanted batches that the model takes, such as those of a tokenizer, got a text"
        )
    if isinstance(batch, list | tuple):
        return model(*_positional(model, batch))
    return model(batch)


def moved(batch: Any, device: torch.device | None) -> Any:
    """Return the batch with its tensors on `device`."""
    if device is None:
        return batch
    if isinstance(batch, Tensor) or hasattr(batch, "to"):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {name: moved(value, device) for name, value in batch.items()}
    if isinstance(batch, list | tuple):
        return [moved(value, device) for value in batch]
    return batch


def device_of(model: nn.Module) -> torch.device | None:
    """Return the device of the first parameter, or where accelerate runs offloaded modules.

    None if neither says it.
    """
    first = next(model.parameters(), None)
    if first is None or first.device.type != "meta":
        return None if first is None else first.device
    for module in model.modules():
        hook = getattr(module, "_hf_hook", None)
        for one in getattr(hook, "hooks", [hook]):  # accelerate chains several in one
            place = getattr(one, "execution_device", None)
            if place is not None:
                return torch.device(place)
    return None


def _positional(model: nn.Module, batch: list[Any] | tuple[Any, ...]) -> list[Any]:
    *_, core = wrapped_in(model)
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    all_parameters = inspect.signature(core.forward).parameters.values()
    parameters = [p for p in all_parameters if p.kind in kinds]
    required = [p for p in parameters if p.default is p.empty]
    if len(batch) == len(required) or len(batch) == 1:
        return list(batch)
    if len(parameters) == 1 and len(parameters) == len(all_parameters):
        return [batch[0]]
    names = ", ".join(p.name for p in all_parameters)
    raise ValueError(
        f"forward: wanted a function (model, batch), because a batch of {len(batch)} values could "
        f"be several of the arguments ({names}) of {type(core).__name__}, got none; such as "
        "lambda model, batch: model(batch[0])"
    )


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Evaluate `model` without gradients inside the block; restore modes and random states.

    The global random states of the CPU and of the CUDA devices of the model are restored.
    """
    modes = [(module, module.training) for module in model.modules()]
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    devices.add(device_of(model) or torch.device("cpu"))
    cuda = sorted({device.index or 0 for device in devices if device.type == "cuda"})
    # Not inference mode: training must be able to use tensors that a module caches here.
    with torch.random.fork_rng(cuda), torch.no_grad():
        model.eval()
        try:
            yield
        finally:
            for module, training in modes:
                module.training = training
