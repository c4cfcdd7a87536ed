"""Layers whose distances between rows need float64."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from simcore._grid.scale import InRange

# A squared distance comes from squared lengths of centred rows and their dot product, which float32
# rounds to 2^-24. At this ratio of length to distance (a mean of rows that one of them moves far
# away from the others) the RBF CKA of random layers is off by 3e-6, and by .02 at 2^16.
LARGEST_RATIO = 2.0**10
SAMPLED_ROWS = 64
SAMPLED_ENTRIES = 2**22  # of the layers that are looked at together


def resolved(layers: list[Tensor]) -> InRange:
    """Return the layers, in float64 where float32 would lose the distances between rows.

    Nothing is scaled: all exponents are 0.
    """
    narrow = [i for i, layer in enumerate(layers) if layer.dtype != torch.float64]
    groups = list(_alike(layers, narrow))
    facts = [_need_float64([layers[i].detach() for i in group]) for group in groups]
    # One wait for the device, however many layers there are.
    known = torch.cat(facts).tolist() if facts else []
    result, nbytes = list(layers), 0
    for i, is_wide in zip((i for group in groups for i in group), known, strict=True):
        if is_wide:
            result[i] = layers[i].double()
            nbytes += result[i].nbytes
    return InRange(result, [0] * len(layers), nbytes)


def _alike(layers: Sequence[Tensor], members: Sequence[int]) -> Iterator[list[int]]:
    """Yield members of one shape and dtype whose samples have `SAMPLED_ENTRIES` together."""
    by_kind: dict[tuple[torch.Size, torch.dtype], list[int]] = {}
    for i in members:
        by_kind.setdefault((layers[i].shape, layers[i].dtype), []).append(i)
    for (shape, _), alike in by_kind.items():
        most = max(1, SAMPLED_ENTRIES // (SAMPLED_ROWS * shape[1]))
        yield from (alike[start : start + most] for start in range(0, len(alike), most))


def _need_float64(layers: list[Tensor]) -> Tensor:
    """Return ``[L]``: whether rows are far longer than their distances, by squared medians."""
    step = -(-len(layers[0]) // SAMPLED_ROWS)
    means = torch.stack([rows.mean(0, dtype=torch.float32) for rows in layers]).double()
    sample = torch.stack([rows[::step] for rows in layers]).double()
    first = sample[:, :1].clone()
    sample -= first
    lengths = (sample - (means[:, None] - first)).square().sum(2).median(1).values
    i, j = torch.triu_indices(sample.shape[1], sample.shape[1], 1, device=sample.device)
    exact = "donot_use_mm_for_euclid_dist"
    distances = torch.cdist(sample, sample, compute_mode=exact)[:, i, j].square().median(1).values
    return (distances > 0) & (lengths > LARGEST_RATIO * distances)
