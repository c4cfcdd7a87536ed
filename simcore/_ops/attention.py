"""The operator for the similarity of attention heads: its name and the shape of its result."""

from collections.abc import Sequence

import torch
from torch import Tensor

attention_similarity = torch.ops.simcore.attention_similarity


@torch.library.register_fake("simcore::attention_similarity")
def _fake_attention_similarity(
    x: Sequence[Tensor],
    y: Sequence[Tensor],
    sentences: int,
    measure: str,
    causal: bool,
    max_memory: int,
) -> tuple[Tensor, Tensor]:
    shape = (len(x) // sentences, len(y or x) // sentences)
    layers = (len(x) + len(y)) // sentences
    grid = x[0].new_empty(shape, dtype=torch.float64)
    return grid, torch.empty(layers, dtype=torch.int64, device="cpu")
