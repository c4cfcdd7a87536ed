"""Layers whose distances between rows need float64."""

from __future__ import annotations

import torch
from torch import Tensor

from simcore._grid.scale import InRange

# A squared distance comes from squared lengths of centred rows and their dot product, which float32
# rounds to 2^-24. At this ratio of length to distance (a mean of rows that one of them moves far
# away from the others) the RBF CKA of random layers is off by 3e-6, and by .02 at 2^16.
LARGEST_RATIO = 2.0**10
SAMPLED_ROWS = 64


def resolved(layers: list[Tensor]) -> InRange:
    """Return the layers, in float64 where float32 would lose the distances between rows.

    Nothing is scaled: all exponents are 0.
    """
    narrow = [i for i, layer in enumerate(layers) if layer.dtype != torch.float64]
    facts = [_needs_float64(layers[i]) for i in narrow]
    # One wait for the device, however many layers there are.
    wide = torch.stack(facts).tolist() if facts else []
    result = list(layers)
    for i, is_wide in zip(narrow, wide, strict=True):
        if is_wide:
            result[i] = layers[i].double()
    nbytes = sum(8 * layers[i].numel() for i, is_wide in zip(narrow, wide, strict=True) if is_wide)
    return InRange(result, [0] * len(layers), nbytes)


def _needs_float64(layer: Tensor) -> Tensor:
    """Return whether the median squared length of rows is far above that of distances."""
    rows = layer.detach()
    first, mean = rows[0].double(), rows.mean(0, dtype=torch.float32).double()
    sample = rows[:: -(-len(rows) // SAMPLED_ROWS)].double() - first
    length = (sample - (mean - first)).square().sum(1).median()
    distance = torch.pdist(sample).square().median()
    return (distance > 0) & (length > LARGEST_RATIO * distance)
