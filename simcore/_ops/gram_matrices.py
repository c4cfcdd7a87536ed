"""HSIC of Gram matrices that were made elsewhere, in torch's own operations, in float64."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from simcore._grid.side import Sides

ROUNDING = 16 * torch.finfo(torch.float64).eps  # of an entry, relative to the largest


def terms_of_matrices(sides: Sides, estimator: str, scaled: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return the HSIC of all pairs of layers, and of every layer with itself."""
    # Matrices are divided by their largest entries, which stays so where the terms are ``scaled``.
    # With centred matrices, biased HSIC is the mean product of their entries, but for a factor. The
    # unbiased estimator (Song et al. 2012, equation 5) is the same sum for matrices without
    # diagonal that are centred as Székely and Rizzo 2014 do, over n (n - 3). A matrix whose entries
    # vary by no more than rounding has an HSIC of 0.
    n = sides.n
    centred, largest = zip(
        *(centred_gram(gram, estimator) for gram in grams_of(sides)), strict=True
    )
    flat = torch.stack(centred).flatten(1)  # [L, n * n]
    hsic = flat @ flat.T / (n * (n - 3.0) if estimator == "unbiased" else (n - 1.0) ** 2)  # [L, L]
    if not scaled:
        hsic = hsic * torch.stack(largest)[:, None] * torch.stack(largest)
    rows, columns = slice(len(sides.x)), sides.columns
    return hsic[rows, columns], hsic.diagonal()[rows], hsic.diagonal()[columns]


def grams_of(sides: Sides) -> Iterator[Tensor]:
    """Yield a Gram matrix ``[n, n]`` of each layer, float64."""
    for layer in sides.matrices:
        if not isinstance(layer, Tensor):
            yield layer.values
            continue
        wide = layer.double()
        centred = wide - wide.mean(0)
        yield centred @ centred.T  # [n, n]


def centred_gram(gram: Tensor, estimator: str) -> tuple[Tensor, Tensor]:
    """Return the centred matrix over its largest entry, zeros if constant, and the entry."""
    # The sums of products of two such matrices are their HSIC, up to a factor.
    n = len(gram)
    largest = gram.abs().max().clamp(min=torch.finfo(torch.float64).tiny)  # []
    scaled = gram / largest
    if estimator == "unbiased":
        scaled = scaled.fill_diagonal_(0.0)
        sums = scaled.sum(0)  # [n]
        total = sums.sum() / ((n - 1.0) * (n - 2.0))  # []
        centred = scaled - (sums / (n - 2.0))[:, None] - sums / (n - 2.0) + total
        centred.fill_diagonal_(0.0)
    else:
        means = scaled.mean(0)  # [n]
        centred = scaled - means[:, None] - means + means.mean()
    varies = torch.linalg.vector_norm(centred) > ROUNDING * n
    return torch.where(varies, centred, 0.0), largest
