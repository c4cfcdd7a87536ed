"""What every grid accepts: sequences or stacks of arrays, checked once and worded once."""

import sys
import warnings
from collections.abc import Sequence
from numbers import Real

import numpy as np
import torch
from torch import Tensor

from simcore._devices import check_device

Array = np.ndarray | Tensor
Layers = Sequence[Array] | Array
BLOCK_ENTRIES = 2**16  # of a layer that are looked at, or copied, at a time
DEVICE_BLOCK_ENTRIES = 2**22  # on a device, where every look is a launch


def as_tensor(layer: object, name: str) -> Tensor:
    """A torch tensor or numpy array as a dense floating-point tensor that shares its memory."""
    tensor = _view_as_tensor(layer, name)
    if not tensor.is_floating_point():
        raise TypeError(f"{name}: wanted a floating-point dtype, got {tensor.dtype}")
    if tensor.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        raise TypeError(f"{name}: wanted float16, bfloat16, float32 or float64, got {tensor.dtype}")
    if tensor.layout != torch.strided:
        raise TypeError(f"{name}: wanted a dense tensor, got layout {tensor.layout}")
    return tensor


def _view_as_tensor(layer: object, name: str) -> Tensor:
    if isinstance(layer, Tensor):
        return layer
    if not isinstance(layer, np.ndarray):
        raise TypeError(f"{name}: wanted a torch tensor or numpy array, got {type(layer).__name__}")
    if isinstance(layer, np.ma.MaskedArray):
        raise TypeError(f"{name}: wanted a plain numpy array, got a masked one")
    if layer.dtype not in (np.float16, np.float32, np.float64):
        raise TypeError(
            f"{name}: wanted a floating-point dtype (16, 32 or 64 bits), got {layer.dtype}"
        )
    if not layer.dtype.isnative:
        raise TypeError(f"{name}: wanted native byte order, got {layer.dtype.str}")
    if any(stride % layer.itemsize or stride < 0 for stride in layer.strides):
        layer = layer.copy()  # torch has no negative strides; a view of record fields may be odd
    if layer.flags.writeable:
        return torch.from_numpy(layer)
    with warnings.catch_warnings():  # torch warns about read-only memory; we only read
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(layer)


def as_layers(layers: Layers, name: str) -> tuple[list[Tensor], bool]:
    """Layers as a list of 2-D tensors that share the caller's memory, and whether numpy came in.

    Parameters
    ----------
    layers : sequence of ``[n, p_i]`` arrays, or one ``[L, n, p]`` array
        torch tensors or numpy arrays.
    name : str
        The argument's name, for messages.

    Raises
    ------
    TypeError
        Something that is no array, or a dtype that is not floating point.
    ValueError
        No layers, a wrong number of dimensions, no rows or no columns.
    """
    if isinstance(layers, Tensor | np.ndarray):
        if layers.ndim != 3:
            shape = tuple(layers.shape)
            raise ValueError(f"{name}: wanted one [L, n, p] array or a list, got shape {shape}")
    elif not isinstance(layers, Sequence):
        raise TypeError(f"{name}: wanted a sequence of arrays, got {type(layers).__name__}")
    if len(layers) == 0:
        raise ValueError(f"{name}: wanted at least one layer, got none")
    tensors = [as_tensor(layer, f"{name}[{i}]") for i, layer in enumerate(layers)]
    for i, tensor in enumerate(tensors):
        _check_layer(tensor, f"{name}[{i}]")
    return tensors, all(isinstance(layer, np.ndarray) for layer in layers)


def _check_layer(layer: Tensor, name: str) -> None:
    if layer.ndim != 2:
        raise ValueError(f"{name}: wanted shape [n, p], got {tuple(layer.shape)}")
    if layer.shape[1] == 0:
        raise ValueError(f"{name}: wanted at least 1 column, got shape {tuple(layer.shape)}")


def as_layer_pair(
    x: Layers,
    y: Layers | None,
    min_rows: int,
    reason: str,
    names: tuple[str, str] = ("X", "Y"),
) -> tuple[list[Tensor], list[Tensor], bool]:
    """Both sides of a grid: same n, same device, enough rows; ``y=None`` gives an empty list.

    Parameters
    ----------
    x, y : as in `as_layers`
    min_rows : int
        The least n.
    reason : str
        What needs that many, for the message.
    names : pair of str
        What the caller calls the two arguments.
    """
    name_x, name_y = names
    layers_x, numpy_x = as_layers(x, name_x)
    layers_y, numpy_y = ([], True) if y is None else as_layers(y, name_y)
    n, device = layers_x[0].shape[0], layers_x[0].device
    named = [(f"{name_x}[{i}]", t) for i, t in enumerate(layers_x)]
    named += [(f"{name_y}[{i}]", t) for i, t in enumerate(layers_y)]
    for name, tensor in named:
        if tensor.shape[0] != n:
            raise ValueError(
                f"{name}: wanted n = {n} rows as in {name_x}[0], got {tensor.shape[0]}"
            )
        if tensor.device != device:
            raise ValueError(
                f"{name}: wanted device {device} as in {name_x}[0], got {tensor.device}"
            )
    check_device(layers_x[0], f"{name_x}[0]")
    if n < min_rows:
        raise ValueError(f"{name_x}[0]: wanted at least {min_rows} rows for {reason}, got {n}")
    return layers_x, layers_y, numpy_x and numpy_y


def warn_caller(message: str) -> None:
    """A UserWarning at the line that called simcore, however deep inside it this is.

    Between the two may be torch, and code that torch.compile wrote, which is in no module.
    """
    level, frame = 1, sys._getframe()
    inside = ("simcore", "torch", "")
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in inside:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, UserWarning, stacklevel=level)


def check_choice(value: str, name: str, choices: tuple[str, ...]) -> str:
    """`value` if it is one of `choices`, else a ValueError naming the argument."""
    if value not in choices:
        wanted = ", ".join(map(repr, choices[:-1])) + f" or {choices[-1]!r}"
        raise ValueError(f"{name}: wanted {wanted}, got {value!r}")
    return value


def check_flag(value: bool, name: str) -> bool:
    """`value` if it is True or False, else a TypeError naming the argument."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name}: wanted True or False, got {value!r}")
    return bool(value)


def check_max_memory(max_memory: int | None) -> int:
    """`max_memory` in bytes as the operators take it: 0 stands for the default."""
    real = isinstance(max_memory, Real) and 1 <= max_memory < 2**63
    if max_memory is not None and not real:
        raise ValueError(f"max_memory: wanted a positive number of bytes, got {max_memory!r}")
    return 0 if max_memory is None else int(max_memory)


def row_blocks(layer: Tensor) -> tuple[Tensor, ...]:
    """Views of some rows at a time: what is made of one is small beside any layer."""
    entries = BLOCK_ENTRIES if layer.device.type == "cpu" else DEVICE_BLOCK_ENTRIES
    return layer.split(max(1, entries // layer.shape[1]))


def check_finite(layers: Sequence[Tensor], name: str) -> None:
    """A ValueError naming the first layer that holds NaN or infinity, and how many."""
    finite_of_layers = [_finite_entries(layer) for layer in layers]
    # One synchronisation with a device, not one a layer.
    counts = torch.stack(finite_of_layers).tolist() if layers else []
    for i, (layer, finite) in enumerate(zip(layers, counts, strict=True)):
        if finite < layer.numel():
            raise ValueError(
                f"{name}[{i}]: wanted finite values, got {layer.numel() - finite} NaN or infinite "
                f"of {layer.numel()}"
            )


def check_finite_count(finite: Tensor, total: int, name: str) -> None:
    """A ValueError unless ``finite`` is ``total``; where torch traces, a RuntimeError later."""
    if torch.compiler.is_compiling():
        torch._assert_async(finite == total, f"{name}: wanted finite values, got NaN or infinite")
    elif finite < total:
        raise ValueError(
            f"{name}: wanted finite values, got {total - int(finite)} NaN or infinite of {total}"
        )


def _finite_entries(layer: Tensor) -> Tensor:
    return torch.stack([torch.isfinite(block).sum() for block in row_blocks(layer)]).sum()
