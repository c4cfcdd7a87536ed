"""Grids of neighbours, distances and matched neurons as one composes them from plain torch.

Every layer is prepared once, every unordered pair computed once, and pairs in one product where
there is one. Functions take a stack ``[L, n, p]`` float32 and return ``[L, L]``. torch has no
assignments, which are scipy's.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

K = 10  # neighbours


def _unit_rows(x: Tensor) -> Tensor:
    return torch.nn.functional.normalize(x, dim=-1)


def _unordered(count: int, pair: Callable[[int, int], Tensor | float], own: float) -> Tensor:
    grid = torch.full((count, count), own)
    for i in range(count):
        for j in range(i + 1, count):
            grid[i, j] = grid[j, i] = pair(i, j)
    return grid


def _inner(parts: list[Tensor]) -> Tensor:
    """Inner products of all pairs of equally shaped tensors, ``[L, L]``."""
    flat = torch.stack([part.flatten() for part in parts])
    return flat @ flat.T


# Neighbours


def _lists(products: Tensor) -> Tensor:
    """Places of the K largest products of every row with other rows, largest first."""
    return products.clone().fill_diagonal_(-torch.inf).topk(K, dim=1).indices


def _mask(products: Tensor) -> Tensor:
    """``[n, n]``: 1 where a row is a neighbour."""
    return torch.zeros_like(products).scatter_(1, _lists(products), 1.0)


def _masks(x: Tensor) -> list[Tensor]:
    """The masks of all layers, by cosines."""
    return [_mask(layer @ layer.T) for layer in _unit_rows(x)]


def mutual(x: Tensor) -> Tensor:
    """All masks in one product."""
    return _inner(_masks(x)) / (x.shape[1] * K)


def jaccard(x: Tensor) -> Tensor:
    """The shared neighbours of each row, from products of masks."""
    masks = _masks(x)

    def pair(i: int, j: int) -> Tensor:
        shared = torch.linalg.vecdot(masks[i], masks[j])
        return (shared / (2 * K - shared)).mean()

    return _unordered(len(x), pair, 1.0)


def rank(x: Tensor) -> Tensor:
    """The ranks of one layer, looked up at the neighbours of another."""
    lists = [_lists(layer @ layer.T) for layer in _unit_rows(x)]
    ranks = torch.arange(1.0, K + 1)
    harmonic = torch.cat([torch.ones(1), (1 / ranks).cumsum(0)])
    places = [
        torch.zeros(len(own), len(own)).scatter_(1, own, ranks.expand_as(own)) for own in lists
    ]

    def pair(i: int, j: int) -> Tensor:
        others = places[j].gather(1, lists[i])
        common = others > 0
        terms = 2 / ((1 + (ranks - others).abs()) * (ranks + others))
        return ((terms * common).sum(1) / harmonic[common.sum(1)]).mean()

    return _unordered(len(x), pair, 1.0)


def second_order(x: Tensor) -> Tensor:
    """Cosines of the distances to the neighbours in either layer."""
    distances, masks = [], []
    for layer in _unit_rows(x):
        products = layer @ layer.T
        masks.append(_mask(products))
        distances.append((1 - products).fill_diagonal_(0))

    def pair(i: int, j: int) -> Tensor:
        either = torch.maximum(masks[i], masks[j])
        v, w = distances[i] * either, distances[j] * either
        return torch.nn.functional.cosine_similarity(v, w, dim=1).mean()

    return _unordered(len(x), pair, 1.0)


def _unbiased(k: Tensor, l: Tensor) -> Tensor:
    """Unbiased HSIC of two matrices with zero diagonals, and of the second with the first, ``[2]``.

    The product of the matrices is only summed, so that their row and column sums do.
    """
    n = len(k)
    crossed = torch.stack([k.sum(0) @ l.sum(1), l.sum(0) @ k.sum(1)])
    sums = k.sum() * l.sum() / ((n - 1) * (n - 2))
    return ((k * l.T).sum() + sums - 2 * crossed / (n - 2)) / (n * (n - 3))


def cknna(x: Tensor) -> Tensor:
    """The products of rows that are neighbours in both layers, in both directions."""
    products = [(layer @ layer.T).fill_diagonal_(0) for layer in x]
    masks = [_mask(k) for k in products]
    grid = torch.empty(len(x), len(x))
    for i in range(len(x)):
        for j in range(i, len(x)):
            both = masks[i] * masks[j]
            grid[i, j], grid[j, i] = _unbiased(both * products[i], both * products[j])
    lengths = grid.diagonal().sqrt()
    return grid / lengths / lengths[:, None]


# Distances and descriptors


def _distances(x: Tensor) -> list[Tensor]:
    return [torch.cdist(layer, layer) for layer in x - x.mean(dim=1, keepdim=True)]


def distance_correlation(x: Tensor) -> Tensor:
    """All double-centred distances in one product."""
    centred = []
    for d in _distances(x):
        means = d.mean(0)
        centred.append(d - means - means[:, None] + means.mean())
    covariances = _inner(centred)
    deviations = covariances.diagonal().sqrt()
    return (covariances / deviations / deviations[:, None]).clamp(min=0).sqrt()


def rsm_difference(x: Tensor) -> Tensor:
    """Distances of the flattened distance matrices."""
    flat = torch.stack([d.flatten() for d in _distances(x)])
    return torch.cdist(flat, flat, compute_mode="donot_use_mm_for_euclid_dist")


def rsm_difference_spectral(x: Tensor) -> Tensor:
    """Eigenvalues of the symmetric differences."""
    d = _distances(x)
    return _unordered(len(x), lambda i, j: torch.linalg.eigvalsh(d[i] - d[j]).abs().max(), 0.0)


def gulp(x: Tensor, ridge: float = 0.1) -> Tensor:
    """Grams of the whitened layers, all in one product."""
    n = x.shape[1]
    grams = []
    for layer in x - x.mean(dim=1, keepdim=True):
        scaled = layer * (n**0.5 / layer.norm())
        covariance = scaled.T @ scaled / n
        covariance.diagonal().add_(ridge)
        factor = torch.linalg.cholesky(covariance)
        whitened = torch.linalg.solve_triangular(factor, scaled.T, upper=False)
        grams.append(whitened.T @ whitened / n)
    inner = _inner(grams)
    own = inner.diagonal()
    return (own + own[:, None] - 2 * inner).fill_diagonal_(0)


def eigenspace_overlap(x: Tensor) -> Tensor:
    """Projections on the columns of layers, all in one product."""
    projections = []
    for layer in x:
        values, vectors = torch.linalg.eigh(layer.T @ layer)
        kept = values > values[-1] * (max(layer.shape) * torch.finfo(x.dtype).eps) ** 2
        basis = layer @ vectors[:, kept] / values[kept].sqrt()
        projections.append(basis @ basis.T)
    return _inner(projections) / x.shape[2]


def _differences(values: list[Tensor]) -> Tensor:
    of_layers = torch.stack(values)
    return (of_layers - of_layers[:, None]).abs()


def uniformity(x: Tensor) -> Tensor:
    """One distance matrix a layer."""
    return _differences([(-2 * d.square()).exp_().mean().log() for d in _distances(x)])


def magnitude(x: Tensor) -> Tensor:
    """One mean row a layer, in float64: float32 means lose the difference of two."""
    means = [torch.stack([rows.double().sum(0) for rows in layer.split(128)]) for layer in x]
    return _differences([mean.sum(0).norm() / x.shape[1] for mean in means])


def concentricity(x: Tensor) -> Tensor:
    """Cosines with the mean row."""
    means = x.mean(dim=1, keepdim=True)
    return _differences(list(torch.nn.functional.cosine_similarity(x, means, dim=2).mean(1)))


def _nuclear(x: Tensor) -> Tensor:
    def pair(i: int, j: int) -> Tensor:
        return torch.linalg.svdvals(x[i].T @ x[j]).sum()

    grid = _unordered(len(x), pair, 0.0)
    grid.diagonal().copy_(x.square().sum((1, 2)))
    return grid


def _scaled(x: Tensor) -> Tensor:
    x = x - x.mean(dim=1, keepdim=True)
    return x / x.norm(dim=(1, 2), keepdim=True)


def procrustes_distance(x: Tensor) -> Tensor:
    """One svdvals for every unordered pair, here and below."""
    return (2 - 2 * _nuclear(_scaled(x))).clamp(min=0).sqrt()


def procrustes_angular(x: Tensor) -> Tensor:
    return _nuclear(_scaled(x)).clamp(max=1).acos()


def size_and_shape(x: Tensor) -> Tensor:
    nuclear = _nuclear(x - x.mean(dim=1, keepdim=True))
    squares = nuclear.diagonal()
    return (squares + squares[:, None] - 2 * nuclear).clamp(min=0).sqrt()


def cosine(x: Tensor) -> Tensor:
    """All unit rows in one product."""
    return _inner(list(_unit_rows(x))) / x.shape[1]


def angular(x: Tensor) -> Tensor:
    """The cosines of all layers row by row, one batched product."""
    rows = _unit_rows(x).transpose(0, 1)
    return (rows @ rows.mT).clamp(-1, 1).acos().mean(0) / torch.pi


def disagreement(x: Tensor) -> Tensor:
    places = x.argmax(dim=2)
    return (places != places[:, None]).float().mean(2)


def output_divergence(x: Tensor) -> Tensor:
    """Entropies of mixtures, less the entropies of layers."""
    p = x.softmax(dim=2)
    own = torch.special.entr(p).sum(2)

    def pair(i: int, j: int) -> Tensor:
        mixed = torch.special.entr((p[i] + p[j]) / 2).sum(1)
        return (mixed - (own[i] + own[j]) / 2).mean() / torch.tensor(2.0).log()

    return _unordered(len(x), pair, 0.0)


# Matched neurons and rotated layers


def _correlations(x: Tensor) -> Tensor:
    x = x - x.mean(dim=1, keepdim=True)
    return x / x.norm(dim=1, keepdim=True)


def _assigned(products: Tensor) -> Tensor:
    """The products of matched columns."""
    return products[linear_sum_assignment(products.cpu().numpy(), maximize=True)]


def match_hard(x: Tensor) -> Tensor:
    """One product and one assignment for every unordered pair, here and below."""
    z = _correlations(x)
    return _unordered(len(x), lambda i, j: _assigned(z[i].T @ z[j]).mean(), 1.0)


def match_soft(x: Tensor) -> Tensor:
    """The largest of the rows and columns of one product for every unordered pair."""
    z = _correlations(x)

    def pair(i: int, j: int) -> Tensor:
        r = z[i].T @ z[j]
        return (r.amax(0).mean() + r.amax(1).mean()) / 2

    return _unordered(len(x), pair, 1.0)


def permutation_procrustes(x: Tensor) -> Tensor:
    """The least distances of layers whose neurons are permuted."""
    squares = x.square().sum((1, 2))

    def pair(i: int, j: int) -> Tensor:
        matched = _assigned(x[i].T @ x[j]).sum()
        return (squares[i] + squares[j] - 2 * matched).clamp(min=0).sqrt()

    return _unordered(len(x), pair, 0.0)


def permutation_angular(x: Tensor) -> Tensor:
    return (
        2 * (permutation_procrustes(x / x.norm(dim=(1, 2), keepdim=True)) / 2).clamp(max=1).asin()
    )


def match_transport(x: Tensor) -> Tensor:
    """The assignment, which is the optimal transport of layers of one width."""
    return match_hard(x)


def transport_distance(x: Tensor) -> Tensor:
    return permutation_procrustes(x) / x.shape[2] ** 0.5


def aligned_cosine(x: Tensor) -> Tensor:
    """One svd for every unordered pair."""

    def pair(i: int, j: int) -> Tensor:
        u, _, vt = torch.linalg.svd(x[i].T @ x[j])
        return torch.nn.functional.cosine_similarity(x[i] @ (u @ vt), x[j], dim=1).mean()

    return _unordered(len(x), pair, 1.0)
