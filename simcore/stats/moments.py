"""Moments of the permutation distribution of ``<K, P L P'>`` in closed form.

For symmetric ``K`` and ``L`` (``[n, n]``) with zero row sums and a uniformly random permutation
``r``, let ``T = sum_ij K_ij L_{r(i) r(j)}``. The m-th power of T is a sum over 2m indices. Sorted
by the indices that coincide, that is, by the set partitions of 2m places,

    E[T^m] = sum over partitions P of  S_P(K) S_P(L) / (n (n-1) ... (n - |P| + 1)),

where ``S_P`` is the sum over distinct values of the blocks: a permutation sends distinct indices to
any other distinct indices with equal probability. Moebius inversion on the lattice of partitions
expresses ``S_P`` by sums without that restriction. Each of these is a graph: blocks are vertices,
factors ``K_ij`` are edges. Zero row sums make every graph with a vertex of degree 1 vanish.

``K`` and ``L`` get a zero trace first: ``tr(K) / (n-1)`` times the centring matrix is subtracted,
which changes T by a constant. The moments are then central without a difference of large numbers,
and graphs with a lone loop vanish too. The remaining graphs are the invariants in `SECOND` and
`THIRD`.

References
----------
Kazi-Aoual, Hitier, Sabatier and Lebreton 1995, *Refined approximations to permutation tests for
multivariate inference* (the moments); Josse, Pages and Husson 2008, *Testing the significance of
the RV coefficient* (the Pearson type III tail).
"""

import math
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from simcore._grid.inputs import on_host
from simcore._ops.composed import full_float32
from simcore._ops.hsic import gram_power_sums
from simcore.stats.grams import BLOCK_ROWS, CkaMeasure

# (loops, vertices) of the graphs that do not vanish, in the order of the invariants.
SECOND = ((2, 1), (0, 2))  # sum K_ii^2, sum K_ij^2
THIRD = ((3, 1), (2, 2), (1, 2), (0, 2), (0, 3))
# sum K_ii^3, sum K_ii K_ij K_jj, sum K_ii K_ij^2, sum K_ij^3, tr K^3

# Sums of squares that lose more than this factor by centring are formed in float64.
MOST_LOST = 16.0
# For a smaller skewness the gamma distribution of shape 4 / skewness^2 is normal to 8 digits or
# more.
NORMAL_SKEWNESS = 1e-7


class Distribution(NamedTuple):
    """Moments of the permutation distribution of CKA, ``[Lx, Ly]``."""

    mean: Tensor
    std: Tensor
    skewness: Tensor


class Invariants(NamedTuple):
    """The sums over the centred Gram matrices K of all layers that determine the moments."""

    trace: Tensor  # [L] tr K
    norm: Tensor  # [L] sum K_ij^2
    second: Tensor  # [L, 2] of K with a zero trace, as `SECOND`
    third: Tensor  # [L, 5], as `THIRD`


def partitions(count: int) -> Iterator[tuple[int, ...]]:
    """Yield all set partitions of ``count`` places, as the number of each place's block."""

    def extend(prefix: tuple[int, ...], blocks: int) -> Iterator[tuple[int, ...]]:
        if len(prefix) == count:
            yield prefix
            return
        for block in range(blocks + 1):
            yield from extend((*prefix, block), max(blocks, block + 1))

    return extend((), 0)


def _invariant(ends: tuple[int, ...]) -> tuple[int, int] | None:
    """Return (loops, vertices) of the graph with edges 0-1, 2-3, 4-5; None if it vanishes."""
    edges = list(zip(ends[::2], ends[1::2], strict=True))
    vertices = set(ends)
    if any(ends.count(vertex) == 1 for vertex in vertices):
        return None  # a vertex of degree 1: a row sum, which is 0
    lone = [i for i, j in edges if i == j and ends.count(i) == 2]
    if lone:
        return None  # a lone loop: the trace, which is 0
    return sum(i == j for i, j in edges), len(vertices)


@cache
def _pair_matrices(order: int, invariants: tuple[tuple[int, int], ...]) -> tuple[Tensor, ...]:
    """Return ``M_k = sum of s_P s_P'`` over partitions P of ``2 * order`` places with k blocks."""
    matrices = [torch.zeros(len(invariants), len(invariants), dtype=torch.float64)]
    matrices *= 2 * order + 1
    for partition in partitions(2 * order):
        blocks = max(partition) + 1
        coefficients = torch.zeros(len(invariants), dtype=torch.float64)  # [invariants]
        for merged in partitions(blocks):
            graph = _invariant(tuple(merged[block] for block in partition))
            if graph is None:
                continue
            sizes = [merged.count(block) for block in set(merged)]
            moebius = math.prod((-1) ** (size - 1) * math.factorial(size - 1) for size in sizes)
            coefficients[invariants.index(graph)] += moebius
        matrices[blocks] = matrices[blocks] + torch.outer(coefficients, coefficients)
    return tuple(matrices)


def moment(left: Tensor, right: Tensor, order: int, n: int) -> Tensor:
    """Return ``E[T^order]`` ``[Lx, Ly]`` from the invariants ``[Lx, k]`` and ``[Ly, k]``.

    The invariants are `Invariants.second` for order 2, and `Invariants.third` for order 3.
    """
    invariants = SECOND if order == 2 else THIRD
    matrices = _pair_matrices(order, invariants)
    form = sum(
        (matrices[k] / float(math.perm(n, k)) for k in range(1, min(2 * order, n) + 1)),
        torch.zeros_like(matrices[0]),
    )
    return left @ form.to(left.device) @ right.T  # [Lx, Ly]


def pearson3_tail(z: Tensor, skewness: Tensor) -> Tensor:
    """Return P(Z >= z) for the Pearson type III variable of mean 0, variance 1 and this skewness.

    Z has a shifted gamma distribution of shape ``4 / skewness^2``, mirrored for negative skewness,
    and the normal distribution for skewness 0.
    """
    normal = 0.5 * torch.special.erfc(z / math.sqrt(2))
    curved = skewness.abs() > NORMAL_SKEWNESS
    skewness = torch.where(curved, skewness, 1.0)
    shape = 4 / skewness.square()
    place = (shape + 2 * z / skewness).clamp(min=0)
    upper = torch.special.gammaincc(shape, place)
    tail = torch.where(skewness > 0, upper, torch.special.gammainc(shape, place))
    return torch.where(curved, tail, normal)


def _row_blocks(rows: int) -> Iterator[slice]:
    return (slice(r, min(r + BLOCK_ROWS, rows)) for r in range(0, rows, BLOCK_ROWS))


def trace_of_cube(matrix: Tensor) -> Tensor:
    """Return ``tr M^3`` of a symmetric matrix in n^3 / 3 operations.

    ``M_ij M_jk M_ki`` is the same for every order of i, j and k. The sum therefore runs over blocks
    I <= J <= K, each counted as often as it has orders: 6, 3 or 1 times.
    """
    total = matrix.new_zeros((), dtype=torch.float64)
    for middle in _row_blocks(len(matrix)):
        left = matrix[: middle.stop, middle]  # M_IJ for all I <= J
        for factor, outer in ((2, slice(middle.stop, None)), (1, middle)):  # J < K, J = K
            product = (matrix[: middle.stop, outer] @ matrix[outer, middle]).mul_(left)
            below, equal = product[: middle.start].sum(), product[middle.start :].sum()
            total += 3 * factor * below + (2 * factor - 1) * equal
    return total


def _symmetric_product(x: Tensor) -> Tensor:
    """Return ``x' x`` at half the cost of the full product."""
    product = x.new_empty(x.shape[1], x.shape[1])  # [p, p]
    for rows in _row_blocks(x.shape[1]):
        product[rows, rows.start :] = x[:, rows].T @ x[:, rows.start :]
        product[rows.stop :, rows] = product[rows, rows.stop :].T
    return product


def dense_invariants(gram: Tensor) -> Invariants:
    """Return the invariants of one centred Gram matrix ``[n, n]``, which is overwritten."""
    n = len(gram)
    trace = gram.diagonal().sum(dtype=torch.float64)  # []
    shift = trace / (n - 1)
    diagonal = gram.diagonal().double() - shift * (1 - 1 / n)  # [n]
    gram += (shift / n).to(gram.dtype)
    gram.diagonal().copy_(diagonal)
    squares, cubes = torch.zeros_like(diagonal), torch.zeros_like(trace)
    for rows in _row_blocks(n):
        block = gram[rows].square()  # [rows, n]
        squares[rows] = block.sum(1).double()  # [rows]
        block *= gram[rows]
        cubes += block.sum()
    bilinear = diagonal @ (gram @ diagonal.to(gram.dtype)).double()  # []
    return _invariants(trace, shift, diagonal, squares, cubes, bilinear, trace_of_cube(gram))


class PowerSums(NamedTuple):
    """Sums over the Gram matrix K of one layer's centred features."""

    lengths: Tensor  # [n] K_ii
    squares: Tensor  # [n] sum_{j != i} K_ij^2
    cubes: Tensor  # sum_{i != j} K_ij^3


def linear_invariants(x: Tensor, sums: PowerSums, estimator: str) -> Invariants:
    """Return the invariants of ``K = x x'`` for centred features ``[n, p]``.

    K is not formed where p < n. Both centrings of K, less the trace, are ``M = H (K - D) H`` with a
    diagonal D: the multiple ``tr(K) / (n-1)`` of the identity (biased), or the D that makes
    ``M_ii = 0`` (unbiased). Because ``K 1 = 0``, M is ``K - H D H``, which is ``K_ij + a_i + a_j``
    off the diagonal.
    """
    n = len(x)
    lengths = sums.lengths  # [n]
    total = lengths.sum()  # []
    if estimator == "biased":
        trace = total
        delta = (total / (n - 1)).expand(n)  # [n]
        diagonal = lengths - total / (n - 1) * (1 - 1 / n)
    else:
        trace = torch.zeros_like(total)
        delta = n / (n - 2) * lengths - total / ((n - 1) * (n - 2))  # [n]
        diagonal = torch.zeros_like(lengths)
    mean = delta.mean()  # []
    a = delta / n - mean / (2 * n)  # [n]

    def product(v: Tensor) -> Tensor:  # K v
        return (x @ (v.to(x.dtype) @ x)).double()

    squares, cubes = _shifted_sums(sums, a, product(a))
    squares = squares + diagonal.square()
    cubes = cubes + diagonal.pow(3).sum()
    bilinear = diagonal @ product(diagonal) - delta @ (diagonal - diagonal.mean()).square()
    if x.shape[1] < n:
        cube = _linear_trace_of_cube(x, delta, diagonal, squares, product(delta))
    else:
        m = (x @ x.T).add_(a.to(x.dtype)[:, None]).add_(a.to(x.dtype))  # [n, n]
        m.diagonal().copy_(diagonal)
        cube = trace_of_cube(m)
    return _invariants(trace, trace / (n - 1), diagonal, squares, cubes, bilinear, cube)


def _shifted_sums(sums: PowerSums, a: Tensor, product: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``sum_j M_ij^2`` and ``sum_ij M_ij^3`` of ``M_ij = K_ij + a_i + a_j``, i not j."""
    # The powers are multiplied out and simplified by ``K 1 = 0``; ``product`` is ``K a``.
    n, lengths = len(a), sums.lengths
    a1, a2, a3 = a.sum(), a.square().sum(), a.pow(3).sum()  # [] each
    squares = sums.squares + 2 * (product - 2 * a * lengths)
    squares = squares + (n - 4) * a.square() + 2 * a * a1 + a2
    cubes = sums.cubes + 6 * (a @ sums.squares) + 6 * (a @ product - 2 * lengths @ a.square())
    return squares, cubes + (2 * n - 8) * a3 + 6 * a1 * a2


def _linear_trace_of_cube(
    x: Tensor, delta: Tensor, diagonal: Tensor, squares: Tensor, product: Tensor
) -> Tensor:
    """Return ``tr M^3`` from ``tr (x' x)^3 = tr (M + H D H)^3``; ``product`` is ``K delta``."""
    n, mean = len(x), delta.mean()
    delta2, delta3 = delta.square().sum(), delta.pow(3).sum()
    bilinear = delta @ product - delta @ (delta - mean).square()  # delta' M delta
    cube_of_d = (1 - 3 / n) * delta3 + 3 / n * mean * delta2 - mean**3  # tr (H D H)^3
    return (
        trace_of_cube(_symmetric_product(x))
        - 3 * delta @ squares
        - 3 * (diagonal @ delta.square() - bilinear / n)
        - cube_of_d
    )


def _invariants(
    trace: Tensor,
    shift: Tensor,
    diagonal: Tensor,
    squares: Tensor,
    cubes: Tensor,
    bilinear: Tensor,
    cube: Tensor,
) -> Invariants:
    n = len(diagonal)
    norm = squares.sum()  # []
    second = torch.stack([diagonal.square().sum(), norm])  # as `SECOND`
    third = torch.stack([diagonal.pow(3).sum(), bilinear, diagonal @ squares, cubes, cube])
    return Invariants(trace, norm + shift.square() * (n - 1), second, third)


def stack(invariants: list[Invariants]) -> Invariants:
    """Return the invariants of all layers as one, with a leading layer axis."""
    return Invariants(*(torch.stack(values) for values in zip(*invariants, strict=True)))


@torch.no_grad()
@full_float32()
def distribution(measure: CkaMeasure) -> Distribution:
    """Return the moments of the permutation distribution of CKA."""
    if measure.kernel == "linear":
        invariants = _of_linear_kernel(measure)
    else:
        layers = enumerate(measure.x + measure.y)
        invariants = [dense_invariants(measure.centred_gram(layer, i)) for i, layer in layers]
    n = measure.n
    x, y = stack(invariants[: len(measure.x)]), stack(invariants[measure.first_column :])
    scale = torch.sqrt(x.norm[:, None] * y.norm)  # [Lx, Ly]
    # For n = 2 the variance is 0, or below 0 by rounding.
    std = torch.sqrt(moment(x.second, y.second, 2, n).clamp(min=0))
    skewness = moment(x.third, y.third, 3, n) / std**3  # [Lx, Ly]
    return Distribution(x.trace[:, None] * y.trace / (n - 1) / scale, std / scale, skewness)


def loses_digits(sums: PowerSums, invariants: Invariants) -> Tensor:
    """Return whether centring takes nearly all of the sums of squares of a Gram matrix.

    The rounding of float32 sums is a share of the sums before; a row far out adds the square of the
    way by which it moves the mean to every entry.
    """
    return sums.squares.sum() > MOST_LOST * invariants.norm


def _of_linear_kernel(measure: CkaMeasure) -> list[Invariants]:
    """Return the invariants of all layers, x then y."""
    layers = measure.x + measure.y
    sums = gram_power_sums(measure.x, measure.y, measure.estimator, measure.max_memory)[3:]
    found = [_of_layer(measure, layer, *own) for layer, *own in zip(layers, *sums, strict=True)]
    invariants = [one for _, one in found]
    if measure.dtype != torch.float64:
        (lost,) = on_host([torch.stack([loses_digits(*one) for one in found])])
        for i in lost.nonzero().flatten().tolist():
            wide = layers[i].double()
            own = gram_power_sums([wide], [], measure.estimator, measure.max_memory)[3:]
            _, invariants[i] = _of_layer(measure, wide, *(values[0] for values in own))
    return invariants


def _of_layer(
    measure: CkaMeasure, layer: Tensor, squares: Tensor, cubes: Tensor, exponent: Tensor
) -> tuple[PowerSums, Invariants]:
    x, scale = measure.features(layer)
    units = torch.exp2(exponent) / scale  # a unit of the operator, in units of x
    sums = PowerSums(x.double().square().sum(1), squares * units**4, cubes * units**6)
    return sums, linear_invariants(x, sums, measure.estimator)
