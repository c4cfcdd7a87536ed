"""The measures beyond CKA as one composes them from plain torch, every layer decomposed once.

All functions centre first, take a stack ``[L, n, p]`` and return ``[L, L]`` in its dtype.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

SHARE = 0.99


def centred(x: Tensor) -> Tensor:
    return x - x.mean(dim=1, keepdim=True)


def basis(c: Tensor, share: float | None) -> tuple[Tensor, Tensor]:
    """``U [n, k]`` and ``diag(s) V' [k, p]`` of a centred layer by one eigh of its covariance."""
    values, vectors = torch.linalg.eigh(c.T @ c)
    values, vectors = values.flip(0).clamp(min=0), vectors.flip(1)
    eps = torch.finfo(c.dtype).eps
    keep = int((values.sqrt() > values[0].sqrt() * max(c.shape) * eps).sum())
    if share is not None:
        keep = min(keep, int((values.cumsum(0) < share * values.sum()).sum()) + 1)
    s, v = values[:keep].sqrt(), vectors[:, :keep]
    return c @ v / s, s[:, None] * v.T


def _pairs(count: int, pair: Callable[[int, int], tuple[Tensor, Tensor]], x: Tensor) -> Tensor:
    """Make a grid from both directions of every unordered pair; 1 on the diagonal."""
    grid = torch.eye(count, dtype=x.dtype)
    for i in range(count):
        for j in range(i + 1, count):
            grid[i, j], grid[j, i] = pair(i, j)
    return grid


def cca(x: Tensor) -> Tensor:
    """SVCCA without truncation."""
    return svcca(x, None)


def cca_r2(x: Tensor) -> Tensor:
    """One product for every unordered pair."""
    bases = [basis(c, None)[0] for c in centred(x)]

    def pair(i: int, j: int) -> tuple[Tensor, Tensor]:
        smaller = min(bases[i].shape[1], bases[j].shape[1])
        mean = (bases[i].T @ bases[j]).square().sum() / smaller
        return mean, mean

    return _pairs(len(x), pair, x)


def _dissimilarities(layer: Tensor) -> Tensor:
    upper = torch.triu_indices(len(layer), len(layer), 1)
    return 1 - torch.corrcoef(layer)[upper[0], upper[1]]


def rsa(x: Tensor) -> Tensor:
    """The upper triangles of all layers, and their correlation matrix."""
    return torch.corrcoef(torch.stack([_dissimilarities(layer) for layer in x]))


def rsa_spearman(x: Tensor) -> Tensor:
    """Compute `rsa` of ranks; equal dissimilarities do not share a rank."""
    stacked = torch.stack([_dissimilarities(layer) for layer in x])
    return torch.corrcoef(stacked.argsort(1).argsort(1).to(x.dtype))


def svcca(x: Tensor, share: float | None = SHARE) -> Tensor:
    """One svdvals for every unordered pair."""
    bases = [basis(c, share)[0] for c in centred(x)]

    def pair(i: int, j: int) -> tuple[Tensor, Tensor]:
        mean = torch.linalg.svdvals(bases[i].T @ bases[j]).mean()
        return mean, mean

    return _pairs(len(x), pair, x)


def pwcca(x: Tensor) -> Tensor:
    """One svd for every unordered pair, weights of both directions from it."""
    bases = [basis(c, None) for c in centred(x)]

    def pair(i: int, j: int) -> tuple[Tensor, Tensor]:
        (a, weighted_a), (b, weighted_b) = bases[i], bases[j]
        u, rho, vt = torch.linalg.svd(a.T @ b, full_matrices=False)
        of_a, of_b = (u.T @ weighted_a).abs().sum(1), (vt @ weighted_b).abs().sum(1)
        return of_a @ rho / of_a.sum(), of_b @ rho / of_b.sum()

    return _pairs(len(x), pair, x)


def _basis_by_svd(c: Tensor, share: float | None) -> tuple[Tensor, Tensor]:
    """Compute `basis` by the SVD of the layer itself, as the public libraries do."""
    u, s, vt = torch.linalg.svd(c, full_matrices=False)
    keep = int((s > s[0] * max(c.shape) * torch.finfo(c.dtype).eps).sum())
    if share is not None:
        keep = min(keep, int((s.square().cumsum(0) < share * s.square().sum()).sum()) + 1)
    return u[:, :keep], s[:keep, None] * vt[:keep]


def svcca_per_pair(x: Tensor) -> Tensor:
    """Decompose both layers anew for each pair, as the libraries that know pairs only do."""
    layers = centred(x)

    def pair(i: int, j: int) -> tuple[Tensor, Tensor]:
        (a, _), (b, _) = (_basis_by_svd(layers[k], SHARE) for k in (i, j))
        mean = torch.linalg.svdvals(a.T @ b).mean()
        return mean, mean

    return _pairs(len(x), pair, x)


def pwcca_per_pair(x: Tensor) -> Tensor:
    """Decompose both layers anew for each pair, as the libraries that know pairs only do."""
    layers = centred(x)

    def pair(i: int, j: int) -> tuple[Tensor, Tensor]:
        (a, weighted_a), (b, weighted_b) = (_basis_by_svd(layers[k], None) for k in (i, j))
        u, rho, vt = torch.linalg.svd(a.T @ b, full_matrices=False)
        of_a, of_b = (u.T @ weighted_a).abs().sum(1), (vt @ weighted_b).abs().sum(1)
        return of_a @ rho / of_a.sum(), of_b @ rho / of_b.sum()

    return _pairs(len(x), pair, x)


def procrustes(x: Tensor) -> Tensor:
    """One svdvals for every unordered pair of layers of unit norm."""
    layers = [c / c.norm() for c in centred(x)]

    def pair(i: int, j: int) -> tuple[Tensor, Tensor]:
        total = torch.linalg.svdvals(layers[i].T @ layers[j]).sum()
        return total, total

    return _pairs(len(x), pair, x)


def _best_partners(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    strength = (a.T @ b).abs()
    return strength.amax(1).mean(), strength.amax(0).mean()


def neuronsim(
    x: Tensor, of_pair: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = _best_partners
) -> Tensor:
    """One correlation matrix for every unordered pair, reduced both ways."""
    c = centred(x)
    z = c / c.norm(dim=1, keepdim=True)
    return _pairs(len(x), lambda i, j: of_pair(z[i], z[j]), x)


def neuronsim_compiled() -> Callable[[Tensor], Tensor]:
    """Return `neuronsim` whose formula for a pair of layers is compiled."""
    return functools.partial(neuronsim, of_pair=torch.compile(_best_partners, dynamic=False))


def mixedsim(x: Tensor) -> Tensor:
    """One product for every ordered pair."""
    c = centred(x)
    bases = [basis(layer, None)[0] for layer in c]
    norms = c.norm(dim=1)
    return torch.stack(
        [
            torch.stack([((q.T @ c[i]).norm(dim=0) / norms[i]).mean() for q in bases])
            for i in range(len(x))
        ]
    )


def linreg(x: Tensor) -> Tensor:
    """One product for every ordered pair."""
    c = centred(x)
    bases = [basis(layer, None)[0] for layer in c]
    return torch.stack(
        [
            torch.stack([(q.T @ layer).square().sum() for q in bases]) / layer.square().sum()
            for layer in c
        ]
    )


def bare_unordered(x: Tensor) -> Tensor:
    """Compute one product for every unordered pair and nothing else; no measure."""
    for i in range(len(x)):
        for j in range(i + 1, len(x)):
            x[i].T @ x[j]
    return torch.full((len(x), len(x)), float("nan"))


def bare_ordered(x: Tensor) -> Tensor:
    """Compute one decomposition a layer and one product for every ordered pair; no measure."""
    bases = [basis(c, None)[0] for c in centred(x)]
    for q in bases:
        for layer in x:
            q.T @ layer
    return torch.full((len(x), len(x)), float("nan"))
