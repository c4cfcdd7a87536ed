"""Moments of the permutation distribution of ``<K, P L P'>`` in closed form.

For symmetric ``K`` and ``L`` (``[n, n]``) with zero row sums and a uniformly random permutation
``r``, ``T = sum_ij K_ij L_{r(i) r(j)}``. The m-th power of T is a sum over 2m indices. Sorted by
which of them coincide, that is by set partitions of 2m places,

    E[T^m] = sum over partitions P of  S_P(K) S_P(L) / (n (n-1) ... (n - |P| + 1)),

where ``S_P`` runs over distinct values of the blocks: a permutation sends distinct indices to any
distinct ones with equal probability. Moebius inversion on the lattice of partitions gives ``S_P``
by sums without that restriction, each of which is a graph: blocks are vertices, factors ``K_ij``
edges. Zero row sums make every graph with a vertex of degree 1 vanish.

``K`` and ``L`` are given a zero trace first, by taking ``tr(K) / (n-1)`` times the centring matrix
off, which changes T by a constant: the moments are then central without a difference of large
numbers, and a lone loop vanishes too. What remains are the invariants in `SECOND` and `THIRD`.

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

from simcore.stats.grams import BLOCK_ROWS

# (loops, vertices) of the graphs that do not vanish, in the order of the invariants.
SECOND = ((2, 1), (0, 2))  # sum K_ii^2, sum K_ij^2
THIRD = ((3, 1), (2, 2), (1, 2), (0, 2), (0, 3))
# sum K_ii^3, sum K_ii K_ij K_jj, sum K_ii K_ij^2, sum K_ij^3, tr K^3

# Below this a gamma distribution of 4 / skewness^2 degrees is a normal one to 8 digits and more.
NORMAL_SKEWNESS = 1e-7


class Invariants(NamedTuple):
    """What the moments need to know of each layer's centred Gram matrix."""

    trace: Tensor  # [L] tr K
    norm: Tensor  # [L] sum K_ij^2
    second: Tensor  # [L, 2] of K with a zero trace, as `SECOND`
    third: Tensor  # [L, 5], as `THIRD`


def partitions(count: int) -> Iterator[tuple[int, ...]]:
    """All set partitions of ``count`` places; each place gets the number of its block."""

    def extend(prefix: tuple[int, ...], blocks: int) -> Iterator[tuple[int, ...]]:
        if len(prefix) == count:
            yield prefix
            return
        for block in range(blocks + 1):
            yield from extend((*prefix, block), max(blocks, block + 1))

    return extend((), 0)


def _invariant(ends: tuple[int, ...]) -> tuple[int, int] | None:
    """(loops, vertices) of the graph whose edges join ends 0-1, 2-3, 4-5; None if it vanishes."""
    edges = list(zip(ends[::2], ends[1::2], strict=True))
    vertices = set(ends)
    if any(ends.count(vertex) == 1 for vertex in vertices):
        return None  # a row sum
    lone = [i for i, j in edges if i == j and ends.count(i) == 2]
    if lone:
        return None  # a trace
    return sum(i == j for i, j in edges), len(vertices)


@cache
def _pair_matrices(order: int, invariants: tuple[tuple[int, int], ...]) -> tuple[Tensor, ...]:
    """``M_k = sum of s_P s_P'`` over partitions P of 2 order places with k blocks.

    ``s_P`` holds the coefficients of ``S_P`` in the invariants.
    """
    matrices = [torch.zeros(len(invariants), len(invariants), dtype=torch.float64)]
    matrices *= 2 * order + 1
    for partition in partitions(2 * order):
        blocks = max(partition) + 1
        coefficients = torch.zeros(len(invariants), dtype=torch.float64)
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
    """``E[T^order]``, ``[Lx, Ly]``, from the invariants ``[Lx, k]`` and ``[Ly, k]`` of each side.

    Parameters
    ----------
    left, right : Tensor, float64
        `Invariants.second` for order 2, `Invariants.third` for order 3.
    n : int
        Examples.
    """
    invariants = SECOND if order == 2 else THIRD
    matrices = _pair_matrices(order, invariants)
    form = sum(
        (matrices[k] / float(math.perm(n, k)) for k in range(1, min(2 * order, n) + 1)),
        torch.zeros_like(matrices[0]),
    )
    return left @ form @ right.T


def pearson3_tail(z: Tensor, skewness: Tensor) -> Tensor:
    """P(Z >= z) for the Pearson type III variable of mean 0, variance 1 and the given skewness.

    A shifted gamma distribution with ``4 / skewness^2`` degrees, mirrored for negative skewness;
    the normal distribution for none.
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
    """``tr M^3`` of a symmetric matrix in n^3 / 3 operations.

    ``sum_ijk M_ij M_jk M_ki`` is the same for every order of i, j and k: blocks I <= J <= K stand
    for the up to six orders of theirs.
    """
    total = torch.zeros((), dtype=torch.float64)
    for middle in _row_blocks(len(matrix)):
        left = matrix[: middle.stop, middle]  # M_IJ for all I <= J
        for factor, outer in ((2, slice(middle.stop, None)), (1, middle)):  # J < K, J = K
            product = (matrix[: middle.stop, outer] @ matrix[outer, middle]).mul_(left)
            below, equal = product[: middle.start].sum(), product[middle.start :].sum()
            total += 3 * factor * below + (2 * factor - 1) * equal
    return total


def _symmetric_product(x: Tensor) -> Tensor:
    """``x' x``, at half its cost."""
    product = x.new_empty(x.shape[1], x.shape[1])
    for rows in _row_blocks(x.shape[1]):
        product[rows, rows.start :] = x[:, rows].T @ x[:, rows.start :]
        product[rows.stop :, rows] = product[rows, rows.stop :].T
    return product


def dense_invariants(gram: Tensor) -> Invariants:
    """Invariants of one centred Gram matrix ``[n, n]``, which is overwritten."""
    n = len(gram)
    trace = gram.diagonal().sum(dtype=torch.float64)
    shift = trace / (n - 1)
    diagonal = gram.diagonal().double() - shift * (1 - 1 / n)
    gram += (shift / n).to(gram.dtype)
    gram.diagonal().copy_(diagonal)
    squares, cubes = torch.zeros(n, dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for rows in _row_blocks(n):
        block = gram[rows].square()
        squares[rows] = block.sum(1).double()
        block *= gram[rows]
        cubes += block.sum()
    bilinear = diagonal @ (gram @ diagonal.to(gram.dtype)).double()
    return _invariants(trace, shift, diagonal, squares, cubes, bilinear, trace_of_cube(gram))


class PowerSums(NamedTuple):
    """Sums over one layer's Gram matrix K of centred features, all in the same units."""

    lengths: Tensor  # [n] K_ii
    squares: Tensor  # [n] sum_{j != i} K_ij^2
    cubes: Tensor  # sum_{i != j} K_ij^3


def linear_invariants(x: Tensor, sums: PowerSums, estimator: str) -> Invariants:
    """The same of ``K = x x'`` for centred features ``[n, p]``, without K where p < n.

    Both centrings of K, with the trace taken off, are ``M = H (K - D) H`` with a diagonal
    D: ``D = tr(K) / (n-1)`` (biased), or what makes ``M_ii = 0`` (unbiased). With ``K 1 = 0``
    that is ``K - H D H``: off the diagonal ``K_ij + a_i + a_j``.
    """
    n = len(x)
    lengths = sums.lengths
    total = lengths.sum()
    if estimator == "biased":
        trace = total
        delta = torch.full_like(lengths, float(total / (n - 1)))
        diagonal = lengths - total / (n - 1) * (1 - 1 / n)
    else:
        trace = torch.zeros_like(total)
        delta = n / (n - 2) * lengths - total / ((n - 1) * (n - 2))
        diagonal = torch.zeros_like(lengths)
    mean = delta.mean()
    a = delta / n - mean / (2 * n)

    def product(v: Tensor) -> Tensor:  # K v
        return (x @ (v.to(x.dtype) @ x)).double()

    squares, cubes = _shifted_sums(sums, a, product(a))
    squares = squares + diagonal.square()
    cubes = cubes + diagonal.pow(3).sum()
    bilinear = diagonal @ product(diagonal) - delta @ (diagonal - diagonal.mean()).square()
    if x.shape[1] < n:
        cube = _linear_trace_of_cube(x, delta, diagonal, squares, product(delta))
    else:
        m = (x @ x.T).add_(a.to(x.dtype)[:, None]).add_(a.to(x.dtype))
        m.diagonal().copy_(diagonal)
        cube = trace_of_cube(m)
    return _invariants(trace, trace / (n - 1), diagonal, squares, cubes, bilinear, cube)


def _shifted_sums(sums: PowerSums, a: Tensor, product: Tensor) -> tuple[Tensor, Tensor]:
    """Off the diagonal ``sum_j M_ij^2`` and ``sum_ij M_ij^3`` of ``M_ij = K_ij + a_i + a_j``.

    Multiplied out, with ``K 1 = 0`` and `product` ``K a``.
    """
    n, lengths = len(a), sums.lengths
    a1, a2, a3 = a.sum(), a.square().sum(), a.pow(3).sum()
    squares = sums.squares + 2 * (product - 2 * a * lengths)
    squares = squares + (n - 4) * a.square() + 2 * a * a1 + a2
    cubes = sums.cubes + 6 * (a @ sums.squares) + 6 * (a @ product - 2 * lengths @ a.square())
    return squares, cubes + (2 * n - 8) * a3 + 6 * a1 * a2


def _linear_trace_of_cube(
    x: Tensor, delta: Tensor, diagonal: Tensor, squares: Tensor, product: Tensor
) -> Tensor:
    """``tr M^3`` from ``tr K^3 = tr (x' x)^3 = tr (M + H D H)^3``, `product` being ``K delta``."""
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
    norm = squares.sum()
    second = torch.stack([diagonal.square().sum(), norm])
    third = torch.stack([diagonal.pow(3).sum(), bilinear, diagonal @ squares, cubes, cube])
    return Invariants(trace, norm + shift.square() * (n - 1), second, third)


def stack(found: list[Invariants]) -> Invariants:
    """One layer's invariants after the other."""
    return Invariants(*(torch.stack(values) for values in zip(*found, strict=True)))
