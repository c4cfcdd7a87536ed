"""Layers as grids take them: on the CPU or a GPU, or as bases on disk, which many grids read."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simlab.errors import UserError, argument
from simlab.models.place import AUTO, CPU, check_device
from simlab.representations.folder import Representations

if TYPE_CHECKING:
    import torch

    from simcore import Basis

# Layers take at most half of the free memory of a GPU (a grid works in a quarter of it), and a GPU
# is taken where half of its memory is free: others may work on it otherwise.
_HALF = 0.5
# Measures that decompose layers, and compute the pairs from bases alone.
BASED = ("cca", "svcca", "pwcca")
FILE = "bases.safetensors"
_PARTS = ("vectors", "components", "spectrum")
_EXPONENTS = "exponents"


def choose_device(wanted: str, layers: Sequence[Any]) -> str:
    """Return ``cpu`` or the GPU for a grid of `layers`.

    ``auto`` is the GPU with the most free memory, if half of its memory is free and the layers take
    no more than half of that; else the CPU.
    """
    check_device(wanted)
    if wanted != AUTO:
        return wanted
    import torch

    if not torch.cuda.is_available():
        return CPU
    memory = [torch.cuda.mem_get_info(index) for index in range(torch.cuda.device_count())]
    best = max(range(len(memory)), key=lambda index: memory[index][0])
    free, total = memory[best]
    fits = sum(map(_nbytes, layers)) <= _HALF * free
    return f"cuda:{best}" if fits and free >= _HALF * total else CPU


def too_large(device: str) -> UserError:
    """Return the error of a grid for which a device has too little memory."""
    return UserError(
        f"{argument('device')}: wanted a device with room for the grid, such as cpu, found "
        f"{device} out of memory"
    )


def name_of(device: str) -> str:
    """Return the device as rows name it: ``cpu``, or the name of the GPU."""
    if device == CPU:
        return CPU
    import torch

    return torch.cuda.get_device_name(torch.device(device))


def _nbytes(layer: Any) -> int:
    if isinstance(layer, list | tuple):
        return sum(map(_nbytes, layer))
    return int(layer.nbytes)


def on_device(layers: Sequence[Any], device: str) -> list[Any]:
    """Return layers, lists of attention or bases on a device; on the CPU as they are."""
    return list(layers) if device == CPU else [_moved(layer, device) for layer in layers]


def _moved(layer: Any, device: str) -> Any:
    import torch

    if isinstance(layer, list | tuple):
        return [_moved(part, device) for part in layer]
    if dataclasses.is_dataclass(layer):  # a basis
        parts = {name: value for name, value in vars(layer).items() if torch.is_tensor(value)}
        moved = {name: value.to(device) for name, value in parts.items()}
        return dataclasses.replace(layer, **moved)  # type: ignore[type-var]
    if torch.is_tensor(layer):
        return layer.to(device)
    return torch.from_numpy(np.array(layer)).to(device)  # a copy: files are mapped for reading


def as_array(grid: np.ndarray | torch.Tensor) -> np.ndarray:
    """Return a grid of any device as an array."""
    import torch

    return grid.cpu().numpy() if isinstance(grid, torch.Tensor) else np.asarray(grid)


def arrays_of(result: Any) -> Any:
    """Return a record of statistics with arrays in place of tensors."""
    import torch

    arrays = {name: value for name, value in vars(result).items() if torch.is_tensor(value)}
    return dataclasses.replace(result, **{name: as_array(value) for name, value in arrays.items()})


def store_bases(side: Representations, folder: Path, standardize: bool) -> None:
    """Write the bases of all layers of `side` into a folder, which is made.

    If `standardize`, the columns of a layer are divided by their standard deviations first.
    """
    from safetensors.torch import save_file

    import simcore

    try:
        bases: Sequence[Basis] = simcore.bases(side.layers, standardize=standardize)
    except ValueError as error:
        raise UserError(f"bases of {side.folder}: {error}") from None
    tensors = {
        f"{part}.{number}": getattr(basis, part).contiguous()
        for number, basis in enumerate(bases)
        for part in _PARTS
    }
    exponents = json.dumps([basis.exponent for basis in bases])
    folder.mkdir(parents=True)
    save_file(tensors, folder / FILE, {_EXPONENTS: exponents})


def load_bases(folder: Path) -> list[Basis]:
    """Return the bases of all layers that `store_bases` has written."""
    from safetensors import safe_open

    from simcore import Basis

    with safe_open(folder / FILE, framework="pt") as file:
        exponents = json.loads(file.metadata()[_EXPONENTS])
        tensors: list[Any] = [
            [file.get_tensor(f"{part}.{number}") for part in _PARTS]
            for number in range(len(exponents))
        ]
    return [
        Basis(u, vt, s, exponent) for (u, vt, s), exponent in zip(tensors, exponents, strict=True)
    ]
