"""Representational similarity analysis as a grid over all layer pairs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from simcore import _C
from simcore._devices import check_on_cpu
from simcore._inputs import (
    Array,
    Layers,
    as_layer_pair,
    check_choice,
    check_finite,
    check_max_memory,
)
from simcore._one_operator import one_operator
from simcore._ops import hsic_terms
from simcore._progress import progress_bar
from simcore._sides import warn_undefined

# Dissimilarities of random rows vary by 1 / sqrt(p): beyond, little of that is left in float32.
WIDEST_FLOAT32 = 4096
# Covariances [Lx, Ly] and variances [Lx], [Ly].
Moments = tuple[Tensor, Tensor, Tensor]


@one_operator()
def rsa_grid(
    X: Layers,
    Y: Layers | None = None,
    *,
    correlation: str = "pearson",
    max_memory: int | None = None,
    progress: bool = False,
) -> Array:
    """Correlation of the layers' representational dissimilarity matrices.

    A dissimilarity is 1 minus the Pearson correlation of two rows (examples); grids correlate the
    upper triangles. With ``correlation="pearson"`` no n x n matrix is formed: the correlations of
    rows are a Gram matrix, and sums over its entries are HSIC's.

    Parameters
    ----------
    X, Y : sequence of ``[n, p_i]`` arrays, or one ``[L, n, p]`` array
        Representations as in `cka_grid`, p_i of at least 2.
    correlation : {"pearson", "spearman"}
        ``spearman`` ranks the n (n - 1) / 2 dissimilarities of every layer in float64 (equal ones
        share their mean rank) and holds the ranks of all layers.
    max_memory : int, optional
        Bytes that may be allocated beyond the inputs; default a quarter of the free memory.
        ``pearson`` holds a standardised copy of every layer, ``spearman`` n^2 / 2 ranks of each.
    progress : bool
        Show a progress bar on stderr.

    Returns
    -------
    array ``[len(X), len(Y)]``, float64
        numpy if all inputs are numpy, else a torch tensor. ``nan`` in the row and column of a layer
        that has a row without variance, or all of whose dissimilarities are equal, with one
        warning. Not differentiable.

    Raises
    ------
    TypeError, ValueError
        As `cka_grid`; fewer than 3 rows; layers or ranks that do not fit into `max_memory`.

    References
    ----------
    Kriegeskorte et al. 2008.

    Examples
    --------
    >>> import torch
    >>> from simcore import rsa_grid
    >>> x = torch.randn(30, 8)
    >>> float(rsa_grid([x], [2 * x + 1], correlation="spearman"))
    1.0
    """
    check_choice(correlation, "correlation", ("pearson", "spearman"))
    x, y, from_numpy = as_layer_pair(X, Y, 3, "a dissimilarity matrix")
    check_on_cpu(x[0], "X[0]", "rsa_grid")
    x, y = ([t.detach() for t in side] for side in (x, y))
    for name, side in (("X", x), ("Y", y)):
        check_finite(side, name)
        _check_widths(side, name)
    bound = _C.memory_bound(check_max_memory(max_memory))
    with progress_bar("rsa_grid", progress) as report:
        if correlation == "pearson":
            moments = _pearson_moments(x, y, bound)
        else:
            moments = _spearman_moments(x, y, bound, report)
    xy, xx, yy = moments
    defined_x, defined_y = _defined(xx, x), _defined(yy, y or x)
    why = "no variance in a row or between the dissimilarities"
    warn_undefined("rsa_grid", ~defined_x, ~defined_y if y else None, why)
    scale = torch.sqrt(xx[:, None] * yy[None, :])
    defined = defined_x[:, None] & defined_y[None, :]
    grid = torch.where(defined, xy / scale, float("nan")).clamp(-1.0, 1.0)
    return grid.numpy() if from_numpy else grid


def _defined(variances: Tensor, layers: list[Tensor]) -> Tensor:
    """Which variances, in units of a mean squared, are more than rounding (and no ``nan``)."""
    eps = torch.tensor([torch.finfo(_computed_in(layer)).eps for layer in layers])
    return variances > 16 * eps


def _computed_in(layer: Tensor) -> torch.dtype:
    wide = layer.shape[1] > WIDEST_FLOAT32
    return torch.float64 if wide or layer.dtype == torch.float64 else torch.float32


def _check_widths(layers: list[Tensor], name: str) -> None:
    for i, layer in enumerate(layers):
        if layer.shape[1] < 2:
            raise ValueError(f"{name}[{i}]: wanted at least 2 columns to correlate rows, got 1")


def _check_bound(needed: int, bound: int, what: str) -> None:
    if needed > bound:
        raise ValueError(f"max_memory: wanted at least {needed} bytes for {what}, got {bound}")


def _centred_rows(layer: Tensor) -> tuple[Tensor, Tensor]:
    """``c_i = z_i`` minus their mean for standardised rows z_i, and ``a_i = c_i'c_i / 2``; float64.

    The dissimilarity of two rows is ``|z_i - z_j|^2 / 2 = a_i + a_j - c_i'c_j``: small numbers make
    small ones, however close to 1 all correlations are. ``nan`` for a constant row.
    """
    x = layer.to(torch.float64, copy=True)
    constant = (x == x[:, :1]).all(1, keepdim=True)
    largest = torch.linalg.vector_norm(x, ord=float("inf"), dim=1, keepdim=True)
    x /= largest.clamp_(min=torch.finfo(torch.float64).tiny)
    x -= x.mean(1, keepdim=True)
    x -= x.mean(1, keepdim=True)
    x /= torch.linalg.vector_norm(x, dim=1, keepdim=True)
    x.masked_fill_(constant, float("nan"))
    x -= x.mean(0)
    return x, 0.5 * torch.linalg.vector_norm(x, dim=1).square()


def _row_bytes(layers: list[Tensor]) -> int:
    """What the largest layer takes beside what is kept of it: float64, and a mask or float32."""
    return 12 * max(layer.numel() for layer in layers)


def _standardised(layer: Tensor) -> tuple[Tensor, Tensor]:
    """c and a of `_centred_rows` in units of the mean dissimilarity, c in the compute dtype."""
    c, a = _centred_rows(layer)
    scale = a.mean().sqrt()
    c.div_(scale).nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
    return c.to(_computed_in(layer)), a / scale.square()


def _centred_ranks(layer: Tensor, upper: Tensor) -> Tensor:
    """Ranks of the dissimilarities of pairs `upper` over their number, minus the mean."""
    c, a = _centred_rows(layer)
    sums = a[upper[0]] + a[upper[1]]
    values = sums - (c @ c.T)[upper[0], upper[1]]
    # Pairs of equal rows tie, but not in the last bits of a matrix product.
    rounding = 16 * torch.finfo(torch.float64).eps * sums.mean()
    ranks = _mean_ranks(values, rounding).div_(len(values))
    return ranks.sub_(ranks.mean())


def _pearson_moments(x: list[Tensor], y: list[Tensor], bound: int) -> Moments:
    """Covariances and variances of the dissimilarities, each layer's in units of its mean.

    With c_i and a_i of `_centred_rows`, rows of ``c c'`` sum to 0, so the sum over i, j of products
    of two layers' dissimilarities ``a_i + a_j - c_i'c_j`` is that of their ``c c'``, which is HSIC,
    plus terms in a alone.
    """
    layers = x + y
    n = len(x[0])
    held = sum(layer.numel() * _computed_in(layer).itemsize for layer in layers)
    needed = held + max(_row_bytes(layers), held)  # as much again for the products
    _check_bound(needed, bound, "standardised copies of the layers")
    centred, halves = zip(*(_standardised(layer) for layer in layers), strict=True)
    count = len(x)
    xy, xx, yy = hsic_terms(
        list(centred[:count]), list(centred[count:]), "linear", "biased", 1.0, "auto", bound - held
    )
    v = torch.stack(halves) - 1.0
    first, second = v[:count], v[count:] if y else v

    def moment(hsic: Tensor, products: Tensor) -> Tensor:
        total = (n - 1.0) ** 2 * hsic + 2.0 * n * products - 4.0 * n * n / (n - 1.0)
        return total / (n * (n - 1.0))

    return (
        moment(xy, first @ second.T),
        moment(xx, first.square().sum(1)),
        moment(yy, second.square().sum(1)),
    )


def _spearman_moments(
    x: list[Tensor], y: list[Tensor], bound: int, report: Callable[[float], None]
) -> Moments:
    """Covariances and variances of the ranks of dissimilarities, ranks being scaled to [0, 1]."""
    layers = x + y
    n = len(x[0])
    pairs = n * (n - 1) // 2
    needed = 8 * (len(layers) * pairs + 10 * n * n) + _row_bytes(layers)
    _check_bound(needed, bound, "ranks of all dissimilarities")
    upper = torch.triu_indices(n, n, 1)
    ranks = torch.empty(len(layers), pairs, dtype=torch.float64)
    for i, layer in enumerate(layers):
        ranks[i] = _centred_ranks(layer, upper)
        report((i + 1) / len(layers))
    first, second = ranks[: len(x)], ranks[len(x) :] if y else ranks
    return (
        first @ second.T / pairs,
        # Norms, because squares would be a second copy of all ranks.
        torch.linalg.vector_norm(first, dim=1).square() / pairs,
        torch.linalg.vector_norm(second, dim=1).square() / pairs,
    )


def _mean_ranks(values: Tensor, rounding: Tensor) -> Tensor:
    """Ranks from 1 on; neighbours at most `rounding` apart share their mean; ``nan`` if one is."""
    if bool(values.isnan().any()):
        return torch.full_like(values, float("nan"))
    ordered, order = values.sort()
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[1:] = ordered.diff() > rounding
    counts = torch.bincount(first.cumsum(0) - 1)
    last = counts.cumsum(0).double()
    shared = (last - (counts - 1) / 2).repeat_interleave(counts)
    return torch.empty_like(values).index_copy_(0, order, shared)
