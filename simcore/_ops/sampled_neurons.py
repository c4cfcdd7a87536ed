"""HSIC of layers whose neurons are a sample: the pairs of a neuron with itself are left out.

The linear Gram matrix of a layer is the sum of those of its neurons, so that HSIC is a sum over all
pairs of a neuron of X and one of Y. Where both are the same neuron, the expectation is another one
than of two neurons that were drawn apart (Chun et al. 2025).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from simcore._grid.inputs import centred
from simcore._grid.memory import memory_bound
from simcore._grid.one_operator import is_traced
from simcore._grid.side import Sides
from simcore._ops.hsic_derivatives import Terms

COPIES = 6  # arrays of the size of a block of neurons of all layers


def check_widths(sides: Sides, neurons: str) -> None:
    """Raise a ValueError unless the layers have the numbers of columns that ``neurons`` wants."""
    first = sides.x.layers[0].shape[1]
    for name, side in (("X", sides.x), ("Y", sides.y)):
        for i, layer in enumerate(side.layers):
            width = layer.shape[1]
            if width < 2:
                raise ValueError(
                    f"{name}[{i}]: wanted at least 2 columns for neurons={neurons!r}, got {width}"
                )
            if neurons == "paired" and width != first:
                raise ValueError(
                    f"{name}[{i}]: wanted {first} columns as in X[0] for neurons='paired', got "
                    f"{width}"
                )


def of_other_neurons(
    whole: Terms, x: Sequence[Tensor], y: Sequence[Tensor], max_memory: int, neurons: str
) -> Terms:
    """Return HSICs without the pairs of a neuron with itself that ``neurons`` leaves out."""
    if neurons == "all":
        return whole
    xy, xx, yy = whole
    if neurons == "paired":  # column a of all layers is one neuron
        xy = _without_same(xy, x, y or x, max_memory)
    layers, selves = [*x, *y], torch.cat([xx, yy]) if y else xx
    own = torch.stack(
        [
            _without_same(one, [layer], [layer], max_memory)[0, 0]
            for one, layer in zip(selves, layers, strict=True)
        ]
    )  # [Lx + Ly]
    return xy, own[: len(x)], own[len(x) :] if y else own


def _without_same(
    whole: Tensor, x: Sequence[Tensor], y: Sequence[Tensor], max_memory: int
) -> Tensor:
    """Return HSICs ``[Lx, Ly]`` without the pairs of column a of x and column a of y.

    The Gram matrix of one centred column v has the trace of its square v'v and the row sums 0.
    """
    n, neurons = x[0].shape
    total: Tensor | float = 0.0
    both = (x, y) if x is not y else (x,)
    for columns in _blocks(x[0], len(x) + len(y), max_memory):
        blocks = [torch.stack([centred(layer[:, columns]) for layer in side]) for side in both]
        # [L, n, columns] to [columns, L, n]
        left, right = (block.permute(2, 0, 1) for block in (blocks[0], blocks[-1]))
        squares_left, squares_right = left.square(), right.square()
        products = left @ right.mT  # [columns, Lx, Ly]
        fourth = squares_left @ squares_right.mT  # [columns, Lx, Ly]
        lengths = squares_left.sum(2)[:, :, None] * squares_right.sum(2)[:, None, :]
        sums = products.square() + lengths / ((n - 1) * (n - 2)) - fourth * (n / (n - 2))
        total = total + sums.sum(0)  # [Lx, Ly]
    assert isinstance(total, Tensor)
    return (whole - total / (n * (n - 3))) * (neurons / (neurons - 1))


def _blocks(layer: Tensor, layers: int, max_memory: int) -> Iterator[slice]:
    n, width = layer.shape
    if is_traced(layer):
        yield slice(0, width)
        return
    bound = memory_bound(max_memory, layer)
    step = max(1, min(width, bound // (8 * COPIES * n * layers)))
    for start in range(0, width, step):
        yield slice(start, min(start + step, width))
