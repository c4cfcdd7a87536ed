"""One affine coupling layer as a module, and the checks of the rows that modules take."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn

from simcore._grid.options import check_count, check_number
from simcore._ops.coupling import affine_coupling
from simcore.nn.mlp import Activation, BatchedMLP

MAX_CLAMP = 40.0  # float32 holds exp(s) and its square

Halves = tuple[Tensor, Tensor]


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


def check_clamp(clamp: float) -> float:
    """Return ``clamp`` if it lies in (0, `MAX_CLAMP`], else raise a ValueError."""
    wanted = f"a number in (0, {MAX_CLAMP:g}]"
    return check_number(clamp, "clamp", wanted, lambda v: 0 < v <= MAX_CLAMP)


class AffineCoupling(nn.Module):
    r"""One affine coupling layer, or ``batch`` independent ones.

    A row of ``dim`` columns is cut in two, the first half with ``dim - dim // 2`` columns. One
    half, x1, passes unchanged and determines how the other half, x2, changes:

    .. math:: y_1 = x_1, \quad y_2 = x_2 \exp(s) + t, \quad
              s = c \tanh(s_\mathrm{raw} / c), \quad (s_\mathrm{raw}, t) = \mathrm{MLP}(x_1)

    Both s_raw and t come from one perceptron with a shared trunk. The soft clamp, s as a function
    of s_raw, is near the identity around 0 and bounds the factor exp(s) to between exp(-c) and
    exp(c), 0.37 and 2.7 for the default c = 1. With a large c, trained maps may squeeze directions
    so far that float32 cannot restore them.

    Parameters
    ----------
    dim : int
        Columns of a row, at least 2.
    hidden : int
        Width of the perceptron's hidden layers.
    depth : int
        Number of the perceptron's hidden layers.
    activation : {"gelu", "relu", "selu", "silu", "tanh"}
        Function behind each hidden layer.
    clamp : float
        The bound c, in (0, 40].
    flip : bool
        Whether the second half passes and the first half changes.
    batch : int
        Number of independent layers.
    output_gain : float
        Scale of the initial weights of the perceptron's last layer: 0 makes the initial map the
        identity, 1 a random map.

    Raises
    ------
    TypeError, ValueError
        An argument is of another type or out of range.

    Notes
    -----
    Parameters may be float32 or float64. With half-precision parameters, or under autocast, the
    perceptron runs in half precision; the half that changes is kept in float32.

    References
    ----------
    Dinh et al. 2017, section 3.4; Ren et al. 2023, section 3.4.
    """

    def __init__(
        self,
        dim: int,
        hidden: int,
        *,
        depth: int = 2,
        activation: Activation = "gelu",
        clamp: float = 1.0,
        flip: bool = False,
        batch: int = 1,
        output_gain: float = 0.0,
    ) -> None:
        super().__init__()
        self.dim, self.batch = check_count(dim, "dim", 2), check_count(batch, "batch")
        self.clamp, self.flip = check_clamp(clamp), flip
        self.split = self.dim - self.dim // 2
        passive, active = self.split, self.dim - self.split
        if flip:
            passive, active = active, passive
        self.conditioner = BatchedMLP(
            passive,
            hidden,
            2 * active,
            depth=depth,
            activation=activation,
            batch=self.batch,
            output_gain=output_gain,
        )

    @on_rows
    def forward(self, x: Tensor) -> Tensor:
        """Return y, of the shape of x.

        Parameters
        ----------
        x : ``[n, dim]``, or ``[batch, n, dim]``
            Rows, in the dtype of the parameters.
        """
        return torch.cat(self.couple(self.halves(x))[0], dim=-1)

    @on_rows
    def inverse(self, y: Tensor) -> Tensor:
        """Return the x that `forward` maps to y."""
        return torch.cat(self.couple(self.halves(y), inverse=True)[0], dim=-1)

    @on_rows
    def log_abs_det(self, x: Tensor) -> Tensor:
        """Return the logarithm of the Jacobian's absolute determinant at every row, ``[n]``."""
        return self.couple(self.halves(x))[1]

    def halves(self, x: Tensor) -> Halves:
        """Return views of both halves of ``[..., dim]``."""
        return x[..., : self.split], x[..., self.split :]

    def condition(self, passive: Tensor) -> Tensor:
        """Return s_raw and t side by side, ``[batch, n, 2 k]``, from the half that passes."""
        return self.conditioner(passive.to(self.conditioner.head.weight.dtype))

    def couple(self, halves: Halves, *, inverse: bool = False) -> tuple[Halves, Tensor]:
        """Apply the coupling, or its inverse, to halves ``[batch, n, ...]`` that are already split.

        Returns the new halves and the log-determinant of every row. The half that passes is
        returned as the same tensor, so that a stack of layers copies nothing.
        """
        passive, active = halves[::-1] if self.flip else halves
        params = self.condition(passive)
        active, log_det = affine_coupling(active, params, self.clamp, inverse)
        return ((active, passive) if self.flip else (passive, active)), log_det
