"""Which devices this build of simcore has kernels for, and what memory they may take."""

import torch
from torch import Tensor

import simcore._C as _C

DEFAULT_SHARE = 4  # of the free memory of a CUDA device
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


def memory_bound(max_memory: int, layer: Tensor) -> int:
    """The bytes that a bound of 0, the default, or more stands for, where `layer` lies."""
    if max_memory > 0 or layer.device.type != "cuda":
        return _C.memory_bound(max_memory)
    free, _ = torch.cuda.mem_get_info(layer.device)
    return free // DEFAULT_SHARE
