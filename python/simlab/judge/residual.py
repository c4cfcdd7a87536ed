"""The block of the small ResNets that are trained on digits, here and in ``examples/studies``."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(before, after, 3, stride, padding=1)
        self.two = nn.Conv2d(after, after, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(after) for _ in range(2))
        self.shortcut = nn.Conv2d(before, after, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return [b, after, height / stride, width / stride]."""
        inner = functional.relu(self.norms[0](self.one(x)))
        return functional.relu(self.shortcut(x) + self.norms[1](self.two(inner)))
