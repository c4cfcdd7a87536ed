"""The operator for the similarity of attention heads: its name and the shape of its result."""

from collections.abc import Sequence

import torch
from torch import Tensor

from simcore._ops.attention_composed import layers_of
from simcore._ops.declared import operator


@operator
def attention_similarity(
    x: Sequence[Tensor],
    y: Sequence[Tensor],
    words: Sequence[int],
    measure: str,
    causal: bool,
    max_memory: int,
) -> tuple[Tensor, Tensor]:
    layers_x, layers_y = (len(layers_of(side, len(words))) for side in (x, y))
    grid = x[0].new_empty((layers_x, layers_y or layers_x), dtype=torch.float64)
    return grid, torch.empty(layers_x + layers_y, dtype=torch.int64, device="cpu")
