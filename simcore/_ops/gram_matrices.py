"""HSIC of Gram matrices that were made elsewhere, in torch's own operations, in float64."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

ROUNDING = 16 * torch.finfo(torch.float64).eps  # of an entry, relative to the largest


def hsic_of_matrices(grams: Iterable[Tensor], estimator: str) -> Tensor:
    """Return the HSIC of all pairs of matrices ``[n, n]``, each scaled to a largest entry of 1.

    With centred matrices, biased HSIC is the mean product of their entries, but for a factor. The
    unbiased estimator (Song et al. 2012, equation 5) is the same sum for matrices without diagonal
    that are centred as Székely and Rizzo 2014 do, over n (n - 3). A matrix whose entries vary by no
    more than rounding has an HSIC of 0.
    """
    centred = [centred_gram(gram, estimator) for gram in grams]
    n = len(centred[0])
    rows = torch.stack(centred).flatten(1)
    return rows @ rows.T / (n * (n - 3.0) if estimator == "unbiased" else (n - 1.0) ** 2)


def centred_gram(gram: Tensor, estimator: str) -> Tensor:
    """Return the matrix scaled and centred, to products that are HSIC; zeros if it is constant."""
    n = len(gram)
    scaled = gram / gram.abs().max().clamp(min=torch.finfo(torch.float64).tiny)
    if estimator == "unbiased":
        scaled = scaled.fill_diagonal_(0.0)
        sums = scaled.sum(0)
        total = sums.sum() / ((n - 1.0) * (n - 2.0))
        centred = scaled - (sums / (n - 2.0))[:, None] - sums / (n - 2.0) + total
        centred.fill_diagonal_(0.0)
    else:
        means = scaled.mean(0)
        centred = scaled - means[:, None] - means + means.mean()
    return torch.where(torch.linalg.vector_norm(centred) > ROUNDING * n, centred, 0.0)
