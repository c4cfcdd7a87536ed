"""The flow of Ren et al.'s code: blocks of two couplings that share their networks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from simcore.nn import BatchedMLP
from simcore.nn.mlp import Activation


class PairedCouplings(nn.Module):
    r"""One block, or ``batch`` independent ones: couplings of the even and of the odd columns.

    With m the mask of the even columns (1 there, 0 elsewhere), the first coupling is

    .. math:: y = m x + (1 - m) (x \exp(s) + t), \quad
              s = \tanh(S(m x)), \quad t = T(m x)

    and the second is the same with 1 - m for m, and with the same two networks S and T. Each is a
    perceptron from all ``dim`` columns to all ``dim`` columns.

    This is the block ``Nonlinear(dim, "RealNVP")`` of the package INN (INNLab), which Ren et al.
    use. The package adds 1e-8 to the factor exp(s); this module does not. ``dim`` is at least 2,
    and S and T have ``depth`` hidden layers of width ``hidden``.
    """

    mask: Tensor

    def __init__(
        self, dim: int, hidden: int, *, depth: int, activation: Activation, batch: int
    ) -> None:
        super().__init__()
        self.register_buffer("mask", (torch.arange(dim) + 1) % 2)
        # A network S that gives 0 makes the factor exp(s) one.
        self.log_scale, self.shift = (
            BatchedMLP(
                dim,
                hidden,
                dim,
                depth=depth,
                activation=activation,
                batch=batch,
                output_gain=0.0,
            )
            for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[batch, n, dim]``."""
        for mask in (self.mask, 1 - self.mask):
            kept = mask * x
            factor = self.log_scale(kept).tanh().exp()
            x = kept + (1 - mask) * (x * factor + self.shift(kept))
        return x

    def inverse(self, y: Tensor) -> Tensor:
        """Return the x that `forward` maps to y."""
        for mask in (1 - self.mask, self.mask):
            kept = mask * y
            factor = self.log_scale(kept).tanh().exp()
            y = kept + (1 - mask) * (y - self.shift(kept)) / factor
        return y


class PairedFlow(nn.Sequential):
    """Blocks of `PairedCouplings`, one after the other."""

    def inverse(self, y: Tensor) -> Tensor:
        """Return the x that `forward` maps to y."""
        for block in reversed(list(self)):
            assert isinstance(block, PairedCouplings)
            y = block.inverse(y)
        return y
