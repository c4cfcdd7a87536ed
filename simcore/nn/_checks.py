"""Checks of the rows that the modules take."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor


def as_batch(x: object, name: str, dim: int, batch: int, dtype: torch.dtype) -> Tensor:
    """Return a checked view of ``x`` as ``[batch, n, dim]``; a batch of one may be ``[n, dim]``."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}: wanted a torch tensor, got {type(x).__name__}")
    if x.dtype != dtype:
        raise TypeError(f"{name}: wanted {dtype} as the parameters have, got {x.dtype}")
    one = batch == 1 and x.ndim == 2
    if not (one or (x.ndim == 3 and x.shape[0] == batch)) or x.shape[-1] != dim:
        wanted = f"[n, {dim}]" if batch == 1 else f"[{batch}, n, {dim}]"
        raise ValueError(f"{name}: wanted shape {wanted}, got {list(x.shape)}")
    return x[None] if one else x


def on_rows(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make a method check its argument against ``dim``, ``batch`` and the dtype of its module.

    The method receives ``[batch, n, dim]``. If the caller passed ``[n, dim]``, the results lose
    their first axis again.
    """
    (name,) = method.__code__.co_varnames[1 : method.__code__.co_argcount]

    @wraps(method)
    def checked(self: Any, x: Tensor) -> Any:
        dtype = next(self.parameters()).dtype
        result = method(self, as_batch(x, name, self.dim, self.batch, dtype))
        if x.ndim == 3:
            return result
        return tuple(r[0] for r in result) if isinstance(result, tuple) else result[0]

    return checked
