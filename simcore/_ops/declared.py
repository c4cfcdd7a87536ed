"""Operators by name: declared by the compiled library, or, in the form of pure torch, here."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from simcore._extension import PURE

# Where the operations of torch compute the operators. The compiled library has those of the CPU.
KEYS = ("CUDA", "CPU") if PURE else ("CUDA",)
_LIBRARY = torch.library.Library("simcore", "FRAGMENT")


def operator(shapes: Callable[..., Any]) -> Any:
    """Return torch's operator of the function's name; the function makes results of its shapes."""
    # In the form of pure torch, the signature of the function is the schema of the operator.
    name = shapes.__name__
    if PURE:
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
