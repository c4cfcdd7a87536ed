"""Attention grids as one writes them in plain torch: heads broadcast against heads.

All functions take ``[L, S, H, T, T]`` and return ``[L, L]`` in its dtype. The loop over layer pairs
is not compiled: unrolled, its graph would have thousands of nodes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Pair = Callable[[Tensor, Tensor], Tensor]


def _best(heads: Tensor) -> Tensor:
    """Mean over the rows of ``[H, H']`` of the max over the columns."""
    return heads.amax(dim=1).mean()


def js_pair(p: Tensor, q: Tensor) -> Tensor:
    """Head to head ``[H, H']`` of layers ``[S, H, T, T]``, by both Kullback-Leibler divergences."""
    p, q = p[:, :, None], q[:, None]
    m = ((p + q) / 2).clamp(min=torch.finfo(p.dtype).tiny)
    divergence = torch.xlogy(p, p / m) + torch.xlogy(q, q / m)
    return 1 - divergence.sum(dim=-1).mean(dim=(0, 3)) / 2


def js_mixture(p: Tensor, q: Tensor) -> Tensor:
    """The mixture's entropy ``[H, H']``, the part of the divergence that depends on the pair."""
    m = (p[:, :, None] + q[:, None]) / 2
    return -torch.xlogy(m, m).sum(dim=-1).mean(dim=(0, 3))


def js_broadcast(x: Tensor, pair: Pair = js_pair) -> Tensor:
    """Apply the definition to every ordered pair of layers."""
    return torch.stack([torch.stack([_best(pair(a, b)) for b in x]) for a in x])


def js_entropies(x: Tensor, pair: Pair = js_mixture) -> Tensor:
    """Compute heads' entropies once, one logarithm a pair, and every unordered pair once."""
    entropies = -torch.xlogy(x, x).sum(dim=-1).mean(dim=(1, 3))  # [L, H]
    grid = x.new_empty(len(x), len(x))
    for i, a in enumerate(x):
        for j in range(i, len(x)):
            own = (entropies[i][:, None] + entropies[j][None]) / 2
            heads = 1 - (pair(a, x[j]) - own)
            grid[i, j], grid[j, i] = _best(heads), _best(heads.T)
    return grid


def _best_of_all(heads: Tensor, layers: int) -> Tensor:
    """``[L, L]`` from all heads against all, ``[L H, L H]``."""
    blocks = heads.view(layers, -1, layers, heads.shape[1] // layers)
    return blocks.amax(dim=3).mean(dim=1)


def pearson_product(x: Tensor) -> Tensor:
    """Scale centred rows to unit length; multiply all heads of all layers in one product."""
    x = x - x.mean(dim=-1, keepdim=True)
    x = x / x.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    flat = x.transpose(1, 2).flatten(0, 1).flatten(1)  # [L H, S T T]
    words = x.shape[1] * x.shape[3]
    return _best_of_all(flat @ flat.T / words, len(x))


def frobenius_cdist(x: Tensor) -> Tensor:
    """Compute distances of all heads by sentence; with matrix products digits would cancel."""
    flat = x.permute(1, 0, 2, 3, 4).flatten(3).flatten(1, 2)  # [S, L H, T T]
    distance = torch.cdist(flat, flat, compute_mode="donot_use_mm_for_euclid_dist")
    return _best_of_all(1 - distance.mean(dim=0), len(x))
