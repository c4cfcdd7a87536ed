"""Which devices this build of simcore has kernels for, and what memory is free on them."""

import torch
from torch import Tensor

import simcore._C as _C

DEFAULT_SHARE = 4  # of the free memory; csrc/cpu/memory.cpp for the CPU
KNOWN_DEVICES = ("cpu", "cuda") if _C.build_info()["cuda"] else ("cpu",)


def check_device(layer: Tensor, name: str) -> None:
    """A ValueError unless this build has kernels for the device of `layer`."""
    if layer.device.type not in KNOWN_DEVICES:
        built = "" if "cuda" in KNOWN_DEVICES else " (this build of simcore has no CUDA kernels)"
        wanted = " or ".join(KNOWN_DEVICES)
        raise ValueError(f"{name}: wanted device {wanted}, got {layer.device}{built}")


def check_on_cpu(layer: Tensor, name: str, what: str) -> None:
    """A ValueError unless `layer` is on the CPU, for what has no CUDA kernels."""
    if layer.device.type != "cpu":
        raise ValueError(f"{name}: wanted device cpu for {what}, got {layer.device}")


def free_memory(device: str | torch.device = "cpu") -> int:
    """Bytes that a computation on `device` could take now: a quarter is the default `max_memory`.

    On the CPU the least of what the machine has available (``MemAvailable`` of /proc/meminfo) and
    of what every control group that the process is in (a container, a batch job, a service) has
    left up to its limit, page cache that could be given back counted as left. On a CUDA device what
    the driver calls free.

    Parameters
    ----------
    device : str or torch.device

    Examples
    --------
    >>> from simcore import free_memory
    >>> free_memory() > 0
    True
    """
    if torch.device(device).type != "cuda":
        free: int = _C.free_memory()
        return free
    return torch.cuda.mem_get_info(device)[0]


def memory_bound(max_memory: int, layer: Tensor) -> int:
    """Resolve `max_memory`: 0 means a quarter of the free memory of the layer's device."""
    if max_memory > 0 or layer.device.type != "cuda":
        return _C.memory_bound(max_memory)
    return free_memory(layer.device) // DEFAULT_SHARE
