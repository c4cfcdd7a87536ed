"""The memory that is free on a device, and what `max_memory` means there."""

import torch
from torch import Tensor

import simcore._C as _C

DEFAULT_SHARE = 4  # the default is 1 / 4 of the free memory; memory_bound in csrc/cpu is the same


def free_memory(device: str | torch.device = "cpu") -> int:
    """Return the bytes that a computation on ``device`` could take now.

    A quarter of them is the default of every ``max_memory``. On the CPU the number is the smallest
    of the memory that the machine has available (``MemAvailable`` of /proc/meminfo) and the memory
    that each control group of the process (a container, a batch job, a service) has left up to its
    limit. Page cache that the kernel could take back counts as left. On a CUDA device the number is
    the free memory that the driver reports, and the memory that torch keeps for later tensors.

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
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + kept


def memory_bound(max_memory: int, layer: Tensor) -> int:
    """Resolve ``max_memory``: 0 means a quarter of the free memory of the layer's device."""
    if max_memory > 0 or layer.device.type != "cuda":
        return _C.memory_bound(max_memory)
    return free_memory(layer.device) // DEFAULT_SHARE


def require_memory(needed: int, bound: int, purpose: str) -> None:
    if needed > bound:
        raise ValueError(f"max_memory: wanted at least {needed} bytes for {purpose}, got {bound}")


# The plans of CUDA kernels ask for it (csrc/torch/runtime_cuda.h).
_library = torch.library.Library("simcore", "FRAGMENT")
_library.define("free_memory(Device device) -> int")
_library.impl("free_memory", free_memory, "CompositeExplicitAutograd")
