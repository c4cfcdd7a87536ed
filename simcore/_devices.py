"""Which devices this build of simcore has kernels for."""

from torch import Tensor

from simcore import _C


def check_device(layer: Tensor) -> None:
    """A ValueError unless this build has kernels for the device of X[0]."""
    known = ("cpu", "cuda") if _C.build_info()["cuda"] else ("cpu",)
    if layer.device.type not in known:
        built = "" if "cuda" in known else " (this build of simcore has no CUDA kernels)"
        raise ValueError(f"X[0]: wanted device {' or '.join(known)}, got {layer.device}{built}")
