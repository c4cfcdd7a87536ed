"""The end of every grid: its warnings, and the array that the caller gets back."""

import sys
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from simcore._grid.inputs import Array


def warn_caller(message: str, category: type[UserWarning] = UserWarning) -> None:
    """Issue a warning at the line that called simcore, from any depth inside simcore."""
    # Between that line and this function there may be frames of torch, and frames of code that
    # torch.compile wrote, which belongs to no module.
    level, frame = 1, sys._getframe()
    inside = ("simcore", "torch", "")
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in inside:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def warn_undefined(
    function: str, undefined_x: Tensor, undefined_y: Tensor | None, why: str = "no variance"
) -> None:
    """Warn once, naming all layers whose row or column of the grid is ``nan``."""
    # The masks, bool ``[Lx]`` and ``[Ly]``, are True for layers without a value, and
    # ``undefined_y`` is None if the layers of Y are the layers of X.
    count = len(undefined_x)
    both = undefined_x if undefined_y is None else torch.cat([undefined_x, undefined_y])
    # One synchronisation with the device for all layers.
    layers = [
        f"X[{i}]" if i < count else f"Y[{i - count}]"
        for i, undefined in enumerate(both.tolist())
        if undefined
    ]
    if layers:
        warn_caller(f"{function}: nan for {', '.join(layers)}: {why}")


def warn_left_out(
    function: str, what: str, labels: Sequence[str], counts: Tensor, wholes: Sequence[int]
) -> None:
    """Warn once of the rows or neurons that are left out, in layers that have others."""
    partly = [
        f"{count} of {label}"  # one synchronisation with the device for all layers
        for label, count, whole in zip(labels, counts.tolist(), wholes, strict=True)
        if 0 < count < whole
    ]
    if partly:
        warn_caller(f"{function}: {what} are left out: {', '.join(partly)}")


def masked(grid: Tensor, undefined_x: Tensor, undefined_y: Tensor) -> Tensor:
    """Return the grid with ``nan`` in the rows and columns of undefined layers."""
    return torch.where(undefined_x[:, None] | undefined_y[None, :], float("nan"), grid)


def as_given(result: Tensor, from_numpy: bool) -> Array:
    return result.numpy() if from_numpy else result
