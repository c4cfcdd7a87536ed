"""Helpers of the operators that are composed of torch's operations."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from simcore._grid.inputs import centred

Given = ParamSpec("Given")
Result = TypeVar("Result")
# torch multiplies float32 matrices with cuBLAS on CUDA devices, with oneDNN on the CPU.
_ONEDNN: Any = torch.backends.mkldnn  # a module of dynamic attributes
PRODUCTS: tuple[Any, ...] = (torch.backends.cuda.matmul, _ONEDNN.matmul)


class _FullFloat32:
    """Holds float32 products at full precision, as long as somebody needs it."""

    # The precision belongs to the process and not to a thread: the first holder notes what the
    # program has chosen, and the last holder restores it, in whatever order threads come and go.
    #
    # torch has two interfaces for the precision, and raises an error where the older one
    # (`torch.set_float32_matmul_precision`, ``allow_tf32``) is read while the newer one
    # (``fp32_precision``) contradicts it. A choice that was made through the older one is therefore
    # lowered and restored through it. The newer one can always be read and written.

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._chosen: list[str] = []
        self._restore: Callable[[], None] | None = None

    def hold(self) -> None:
        with self._lock:
            if self._holders == 0:
                self._chosen = [product.fp32_precision for product in PRODUCTS]
                self._restore = _leave_older_interface()
                for product in PRODUCTS:
                    product.fp32_precision = "ieee"
            self._holders += 1

    def release(self) -> None:
        with self._lock:
            self._holders -= 1
            if self._holders > 0:
                return
            if self._restore is not None:
                self._restore()
            for product, chosen in zip(PRODUCTS, self._chosen, strict=True):
                # "none" stands for the precision of all operations, which may change later.
                product.fp32_precision = "none"
                if product.fp32_precision != chosen:
                    product.fp32_precision = chosen


def _leave_older_interface() -> Callable[[], None] | None:
    """Choose full float32 through the older interface, if it holds another choice."""
    matmul = PRODUCTS[0]
    try:
        chosen = torch.get_float32_matmul_precision()
    except RuntimeError:  # the newer interface was used, or the one of CUDA devices alone
        try:
            if not matmul.allow_tf32:
                return None
        except RuntimeError:
            return None
        matmul.allow_tf32 = False
        return functools.partial(setattr, matmul, "allow_tf32", True)
    if chosen == "highest":
        return None
    torch.set_float32_matmul_precision("highest")
    return functools.partial(torch.set_float32_matmul_precision, chosen)


_full = _FullFloat32()


@contextmanager
def full_float32() -> Iterator[None]:
    """Compute float32 products in full float32, whatever precision the program has chosen."""
    # The whole process computes so until the block ends: torch has no such setting for one thread.
    _full.hold()
    try:
        yield
    finally:
        _full.release()


def is_full_float32() -> bool:
    """Whether float32 products of the CPU are computed in full float32."""
    precise: bool = _ONEDNN.matmul.fp32_precision in ("ieee", "none")
    return precise


def in_full_float32(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Return the function without derivatives and autocast, with products in full float32."""

    @functools.wraps(function)
    def wrapped(*arguments: Given.args, **options: Given.kwargs) -> Result:
        on_cpu, on_cuda = (torch.autocast(device, enabled=False) for device in ("cpu", "cuda"))
        with torch.no_grad(), full_float32(), on_cpu, on_cuda:
            return function(*arguments, **options)

    return wrapped


def centred_columns(layer: Tensor) -> tuple[Tensor, Tensor]:
    """Return centred float64 columns, scaled to entries near 1, and the power of two divided by."""
    columns = centred(layer)  # [n, p]
    largest = torch.maximum(columns.amax(), -columns.amin())  # []
    exponent = torch.frexp(torch.where(largest > 0, largest, 1.0)).exponent
    power = torch.ldexp(torch.ones_like(largest), exponent)
    return columns.div_(power), power
