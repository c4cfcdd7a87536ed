"""Operators by name: declared by the compiled library, or here where it has none of the name."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from simcore._extension import PURE

# Where the operations of torch compute the operators that the compiled library has for the CPU.
KEYS = ("CUDA", "CPU") if PURE else ("CUDA",)
_LIBRARY = torch.library.Library("simcore", "FRAGMENT")


def operator(shapes: Callable[..., Any]) -> Any:
    """Return torch's operator of the function's name; the function makes results of its shapes."""
    # Where the compiled library has no schema, the signature of the function is the operator's.
    name = shapes.__name__
    if not hasattr(torch.ops.simcore, name):
        _LIBRARY.define(name + torch.library.infer_schema(shapes, mutates_args=()))
    torch.library.register_fake(f"simcore::{name}")(shapes)
    return getattr(torch.ops.simcore, name)


def compose(forms: Mapping[str, Callable[..., Any]], keys: tuple[str, ...] = KEYS) -> None:
    """Register what computes operators by operations of torch."""
    for name, form in forms.items():
        for key in keys:
            _LIBRARY.impl(name, form, key)


def is_composed(device: torch.device) -> bool:
    return PURE or device.type != "cpu"
