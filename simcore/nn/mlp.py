"""Batches of independent multi-layer perceptrons."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from simcore._grid.options import check_choice, check_count

Activation = Literal["gelu", "relu", "selu", "silu", "tanh"]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": nn.functional.gelu,
    "relu": torch.relu,
    "selu": nn.functional.selu,
    "silu": nn.functional.silu,
    "tanh": torch.tanh,
}


class BatchedLinear(nn.Module):
    """A batch of independent linear layers, computed by one batched matrix product.

    Initial weights and biases are uniform in ``+-gain / sqrt(in_features)``, as in
    `torch.nn.Linear`.

    Parameters
    ----------
    in_features, out_features : int
    batch : int
    gain : float
        Scale of the initial weights and biases; with 0 the output is 0 until training.

    Attributes
    ----------
    weight : ``[batch, in_features, out_features]``
    bias : ``[batch, out_features]``
    """

    def __init__(
        self, in_features: int, out_features: int, *, batch: int = 1, gain: float = 1.0
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(batch, in_features, out_features))
        self.bias = nn.Parameter(torch.empty(batch, out_features))
        bound = gain / math.sqrt(in_features)
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[batch, n, in_features]`` to ``[batch, n, out_features]``."""
        return torch.baddbmm(self.bias[:, None], x, self.weight)

    def extra_repr(self) -> str:
        """Return the sizes, for ``print(module)``."""
        batch, rows, columns = self.weight.shape
        return f"in_features={rows}, out_features={columns}, batch={batch}"


class BatchedMLP(nn.Module):
    """A batch of independent perceptrons with ``depth`` hidden layers each.

    Parameters
    ----------
    in_features, out_features : int
    hidden : int
        Width of the hidden layers.
    depth : int
        Number of hidden layers.
    activation : {"gelu", "relu", "selu", "silu", "tanh"}
        Function behind every hidden layer.
    batch : int
    output_gain : float
        ``gain`` of the last layer.
    """

    def __init__(
        self,
        in_features: int,
        hidden: int,
        out_features: int,
        *,
        depth: int = 1,
        activation: Activation = "gelu",
        batch: int = 1,
        output_gain: float = 1.0,
    ) -> None:
        super().__init__()
        self.activation = check_choice(activation, "activation", Activation)
        hidden, depth = check_count(hidden, "hidden"), check_count(depth, "depth")
        batch = check_count(batch, "batch")
        widths = [check_count(in_features, "in_features"), *[hidden] * depth]
        self.trunk = nn.ModuleList(BatchedLinear(i, o, batch=batch) for i, o in pairwise(widths))
        out_features = check_count(out_features, "out_features")
        self.head = BatchedLinear(hidden, out_features, batch=batch, gain=output_gain)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[batch, n, in_features]`` to ``[batch, n, out_features]``."""
        activation = ACTIVATIONS[self.activation]
        for layer in self.trunk:
            x = activation(layer(x))
        return self.head(x)
