"""Kernel or composed form: the choice of every call, and its registration for CUDA devices.

``SIMCORE_KERNELS`` decides: ``off`` takes the composed forms, ``on`` the kernels, unchecked, and
``auto`` (the default) a kernel that has passed its self-check here and is the faster form.
"""

from __future__ import annotations

import contextlib
import functools
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from simcore._extension import PURE
from simcore._grid.accuracy import FLOAT64_BANDWIDTH
from simcore._kernels import cuda_extension as cuda_extension  # registers the kernels
from simcore._kernels import verdicts
from simcore._ops import gram_composed, spectral_batched
from simcore._ops.attention import composed_similarity
from simcore._ops.composed import in_full_float32
from simcore._ops.coupling import composed_coupling, composed_coupling_backward

SETTINGS = ("auto", "on", "off")
VARIABLE = "SIMCORE_KERNELS"
LEAST_GAIN = 1.5  # times as fast as the composed form: for less, no kernel is written


@dataclass(frozen=True)
class Kernel:
    """An operator that has a kernel of ours and a composed form."""

    family: str  # as in `simcore._ops`
    composed: Callable[..., Any]  # arguments and results are the operator's
    # Whether the kernel is for given arguments; all others take the composed form.
    covers: Callable[..., bool] = lambda *arguments: True


def _in_float32(
    x: list[Tensor], y: list[Tensor], kernel: str, estimator: str, bandwidth: float, *_: Any
) -> bool:
    """Whether HSIC may be computed in float32: by its dtypes, and by the bandwidth of an RBF."""
    wide = kernel == "rbf" and bandwidth >= FLOAT64_BANDWIDTH
    return not wide and all(layer.dtype != torch.float64 for layer in (*x, *y))


def _no_product(x: list[Tensor], y: list[Tensor], sentences: int, measure: str, *_: Any) -> bool:
    """Whether a similarity of attention is no matrix product, as Pearson's correlation is."""
    return measure != "pearson"


KERNELS = {
    # Tensor cores at three float16 products for one of float32.
    "gram_terms": Kernel("hsic", in_full_float32(gram_composed.gram_terms), _in_float32),
    # One launch; the composed form solves eigenproblems in float64, in one call of cuSOLVER.
    "small_svd": Kernel("spectral", in_full_float32(spectral_batched.composed_small_svd)),
    # No array of heads x heads x words is written; the composed form writes it in float64.
    "attention_similarity": Kernel("attention", in_full_float32(composed_similarity), _no_product),
    # One pass over memory instead of seven, forward and backward.
    "affine_coupling": Kernel("coupling", in_full_float32(composed_coupling)),
    "affine_coupling_backward": Kernel("coupling", in_full_float32(composed_coupling_backward)),
}
FAMILIES = tuple(dict.fromkeys(kernel.family for kernel in KERNELS.values()))


def operators_of(family: str) -> list[str]:
    return [name for name, kernel in KERNELS.items() if kernel.family == family]


def setting() -> str:
    value = os.environ.get(VARIABLE, "auto")
    if value not in SETTINGS:
        raise ValueError(f"{VARIABLE}: wanted 'auto', 'on' or 'off', got {value!r}")
    return value


def launcher(name: str) -> Callable[..., Any] | None:
    """Return the kernel that this build has for an operator, as a function; None without one."""
    return _LAUNCHERS.get(name)


def _find_launchers() -> dict[str, Callable[..., Any]]:
    """Return the kernels that the extension has registered, before Python registers the choice."""
    key = torch._C.DispatchKey.CUDA
    keys = torch._C.DispatchKeySet(key)
    launchers: dict[str, Callable[..., Any]] = {}
    for name in KERNELS:
        operator = f"simcore::{name}"
        if torch._C._dispatch_has_kernel_for_dispatch_key(operator, "CUDA"):
            kernel: Any = torch.library.get_kernel(operator, "CUDA")
            launchers[name] = functools.partial(kernel.call_boxed, keys)
    return launchers


def is_capturing() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def takes_kernel(name: str, device: torch.device) -> bool:
    """Return whether a call on ``device`` takes the kernel of an operator."""
    # A capture of a CUDA graph cannot check a kernel first: that needs a process of its own.
    chosen = setting()
    if launcher(name) is None:
        if chosen == "on":
            raise RuntimeError(
                f"{VARIABLE}: wanted 'auto' or 'off' in a build without CUDA kernels, got 'on'"
            )
        return False
    if chosen != "auto":
        return chosen == "on"
    kernel = KERNELS[name]
    verdict = verdicts.known(kernel.family, device)
    if verdict is None and not verdicts.is_faster(name):
        return False
    if verdict is None:
        if is_capturing():
            raise RuntimeError(
                f"{name}: wanted a kernel that was checked on {device} before a CUDA graph is "
                f"captured; call the function once before, or set {VARIABLE}=off or on"
            )
        verdict = verdicts.ask(kernel.family, device, operators_of(kernel.family))
    return verdict.takes(name)


def _first_tensor(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _first_tensor(value)


def _chosen(name: str) -> Callable[..., Any]:
    """Return the function that is registered for an operator: the kernel or the composed form."""

    def call(*arguments: Any) -> Any:
        device = next(_first_tensor(arguments)).device
        if KERNELS[name].covers(*arguments) and takes_kernel(name, device):
            launch = launcher(name)
            assert launch is not None  # `takes_kernel` has looked
            with contextlib.suppress(NotImplementedError):  # values that the kernel does not cover
                return launch(*arguments)
        return KERNELS[name].composed(*arguments)

    return call


spectral_batched.takes_kernel = takes_kernel
_LAUNCHERS = _find_launchers()
_library = torch.library.Library("simcore", "IMPL")
with warnings.catch_warnings():
    # torch warns that Python replaces the kernels of C++, which are called from here.
    warnings.filterwarnings("ignore", "Warning only once for all operators", UserWarning)
    for _name in KERNELS:
        _library.impl(_name, _chosen(_name), "CUDA")
        if PURE:
            _library.impl(_name, KERNELS[_name].composed, "CPU")
