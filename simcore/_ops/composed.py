"""What operators that are composed of torch's operations have in common."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def full_float32() -> Iterator[None]:
    """Compute float32 products in full float32, whatever precision the program has chosen."""
    chosen = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(chosen)


def in_full_float32(function: Callable[..., object]) -> Callable[..., object]:
    """Return the function without derivatives, and with products in full float32."""

    @functools.wraps(function)
    def wrapped(*arguments: object) -> object:
        with torch.no_grad(), full_float32():
            return function(*arguments)

    return wrapped


def centred_columns(layer: Tensor) -> tuple[Tensor, Tensor]:
    """Return centred float64 columns, scaled to entries near 1, and the power of two divided by."""
    x = layer.double()
    shifted = x - x[0]  # constant columns become exactly 0
    centred = shifted - shifted.mean(0)
    largest = centred.abs().max()
    exponent = torch.frexp(torch.where(largest > 0, largest, 1.0)).exponent
    power = torch.ldexp(torch.ones_like(largest), exponent)
    return centred / power, power
