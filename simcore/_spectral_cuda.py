"""The spectral operators on a CUDA device, in batches of torch's own matrix products.

Nothing here is particular to a device: the tests run these functions on CPU tensors against the
CPU's operators. Singular values of thousands of small matrices are what GPUs are slow at:
float32 nuclear norms come from a polar decomposition by matrix products alone (`polar_steps`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from simcore._devices import memory_bound
from simcore._inputs import check_finite

# Of an interval: its least lower end, as a share of the upper, and what is added for rounding.
CUSHION, SLACK, ROUNDING = 0.05, 0.02, 1e-6
LOWEST = 1e-8  # singular values, over the Frobenius norm, that the polar iteration brings to 1
MOST_JACOBI = 128  # rows and columns that csrc/cuda/jacobi.cu takes
MAX_BATCH = 4096  # matrices at a time: enough to fill any device


@functools.cache
def polar_steps(lowest: float = LOWEST) -> tuple[tuple[tuple[float, float, float], ...], float]:
    """Odd polynomials whose composition is 1 on [lowest, 1], up to an error that is also returned.

    Each ``a x + b x^3 + c x^5`` is the best of its form (Remez) on a little more than the interval
    [low, high] that the former ones map [lowest, 1] to, but for low below a share of high: the best
    would come down to nearly 0 in between, from where rounding reaches the other side. It rises
    from 0 to low, so that the composition stays within [0, 1 + error] on [0, lowest].

    Applied to the singular values of M by ``X <- a X + (b A + c A A) X``, ``A = X X'``, it gives
    the polar factor P of M: ``|<P, M> - ||M||_*| <= error ||M||_* + lowest * rank`` for singular
    values in [0, 1].

    References
    ----------
    Nakatsukasa & Freund 2016 (compositions of minimax functions for the polar factor); Higham 2008,
    chapter 8.
    """
    steps = []
    low, high, error = lowest, 1 + SLACK, 1.0
    while error > np.finfo(np.float32).eps:
        (a, b, c), error = _best_quintic(max(low, CUSHION * high), high)
        steps.append((a, b, c))
        # What lies at an upper end is magnified tenfold by every step, and lost once it is beyond:
        # rounding must not get it there.
        slack = SLACK * error + ROUNDING
        low = min(a * low + b * low**3 + c * low**5, 1 - error) * (1 - slack)
        high = 1 + error + slack
    return tuple(steps), error


def _best_quintic(low: float, high: float) -> tuple[tuple[float, float, float], float]:
    """The odd quintic nearest to 1 on [low, high], and its error, by Remez's exchange."""
    inner = low + (high - low) * np.array([1 / 4, 3 / 4])
    signs = np.array([1.0, -1.0, 1.0, -1.0])
    for _ in range(100):
        points = np.array([low, *inner, high])
        system = np.stack([points, points**3, points**5, signs], axis=1)
        a, b, c, error = np.linalg.solve(system, np.ones(4))
        # Its extrema: a + 3 b x^2 + 5 c x^4 = 0.
        root = np.sqrt(max(9 * b * b - 20 * a * c, 0.0))
        extrema = np.sqrt(np.maximum(np.array([-3 * b - root, -3 * b + root]) / (10 * c), 0))
        moved = np.abs(extrema - inner).max()
        inner = np.clip(np.sort(extrema), low, high)
        if moved <= 1e-12 * high:
            break
    return (float(a), float(b), float(c)), abs(float(error))


def nuclear_norms_of(m: Tensor) -> Tensor:
    """Nuclear norms of matrices ``[B, k, l]``, float64.

    float64 matrices by their singular values; float32 ones by `polar_steps`, within
    ``(1e-7 + 1e-8 k) ||M||_F`` and rounding of a few float32 eps of ``||M||_*``.
    """
    if m.dtype == torch.float64:
        return torch.linalg.svdvals(m).sum(-1)
    if m.shape[1] > m.shape[2]:
        m = m.mT
    norms = torch.linalg.vector_norm(m, dim=(1, 2), keepdim=True, dtype=torch.float64)
    m = (m / norms.clamp_min(torch.finfo(torch.float64).tiny)).to(m.dtype)
    x = m
    for a, b, c in polar_steps()[0]:
        gram = torch.bmm(x, x.mT)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    traces = (x.double() * m.double()).sum((1, 2))
    return traces * norms.flatten()


@contextmanager
def _full_float32() -> Iterator[None]:
    """float32 products as float32, whatever the program has chosen for its own."""
    chosen = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(chosen)


def _in_full_float32(function: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(function)
    def wrapped(*arguments: object) -> object:
        with torch.no_grad(), _full_float32():
            return function(*arguments)

    return wrapped


def _centred(layer: Tensor) -> tuple[Tensor, Tensor]:
    """Centred columns in float64 with entries near 1, and the power of two they were divided by."""
    x = layer.double()
    shifted = x - x[0]  # constant columns become exactly 0
    centred = shifted - shifted.mean(0)
    largest = centred.abs().max()
    exponent = torch.frexp(torch.where(largest > 0, largest, 1.0)).exponent
    power = torch.ldexp(torch.ones_like(largest), exponent)
    return centred / power, power


def _descending(eigenvalues: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    return eigenvalues.clamp_min(0).sqrt().flip(-1), vectors.flip(-1)


def _reciprocals(s: Tensor) -> Tensor:
    return torch.where(s > 0, s.reciprocal(), 0.0)


def _decompose(layers: Sequence[Tensor], standardize: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Thin SVDs of layers of one shape and dtype: ``[B, n, r]``, ``[B, r]``, ``[B, r, p]``.

    As csrc/torch/principal_components_cpu.cpp: eigenvectors of the smaller side's products for
    what is float32 or less, whose rank rule cuts what squaring loses; else the SVD itself.
    """
    parts = [_centred(layer) for layer in layers]
    x = torch.stack([values for values, _ in parts])
    powers = torch.stack([power for _, power in parts])
    if standardize:
        x = x * _reciprocals(x.square().mean(1, keepdim=True).sqrt())
        powers = torch.ones_like(powers)
    n, p = x.shape[1:]
    if layers[0].dtype == torch.float64:
        u, s, vt = torch.linalg.svd(x, full_matrices=False)
    elif p <= n:
        s, v = _descending(*torch.linalg.eigh(x.mT @ x))
        u, vt = x @ (v * _reciprocals(s)[:, None, :]), v.mT
    else:
        s, u = _descending(*torch.linalg.eigh(x @ x.mT))
        vt = _reciprocals(s)[:, :, None] * (u.mT @ x)
    # Rounding would give a constant column variance again in vectors diag(s) components.
    vt = vt.masked_fill((x == 0).all(1)[:, None, :], 0.0)
    return u, s * powers[:, None], vt


def principal_components(
    x: Sequence[Tensor], standardize: bool
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """``simcore::principal_components``: layers of one shape are decomposed together."""
    check_finite(x, "X")
    groups: dict[tuple[torch.Size, torch.dtype], list[int]] = {}
    for i, layer in enumerate(x):
        groups.setdefault((layer.shape, layer.dtype), []).append(i)
    empty = x[0].new_empty(0)
    u, s, vt = ([empty] * len(x) for _ in range(3))
    for (_, dtype), members in groups.items():
        kept = torch.float64 if dtype == torch.float64 else torch.float32
        parts = _decompose([x[i] for i in members], standardize)
        for i, left, values, right in zip(members, *parts, strict=True):
            u[i], s[i], vt[i] = left.to(kept).contiguous(), values, right.to(kept).contiguous()
    return u, s, vt


def _batches(widths: Sequence[int], members: Sequence[int], most: int) -> Iterator[list[int]]:
    """Members of equal width together, at most `most` at a time."""
    by_width: dict[int, list[int]] = {}
    for j in members:
        by_width.setdefault(widths[j], []).append(j)
    for group in by_width.values():
        for first in range(0, len(group), most):
            yield group[first : first + most]


def _most_matrices(k: int, width: int, n: int, entry: int, bound: int) -> int:
    """How many products [k, width] fit, with what is made of them and of their layers."""
    bytes_each = entry * (4 * k * width + 3 * min(k, width) ** 2 + 2 * n * width)
    return max(1, min(MAX_BATCH, bound // bytes_each))


def nuclear_norms(
    x: Sequence[Tensor], y: Sequence[Tensor], max_memory: int
) -> tuple[Tensor, Tensor, Tensor]:
    """``simcore::nuclear_norms``: a row of pairs at a time, layers of one width together."""
    dtype = torch.float64 if any(t.dtype == torch.float64 for t in (*x, *y)) else torch.float32
    check_finite(x, "X")
    check_finite(y, "Y")
    columns = y or x
    bound = memory_bound(max_memory, x[0])
    xy = torch.full((len(x), len(columns)), float("nan"), dtype=torch.float64, device=x[0].device)
    norm_x, norm_y = (
        torch.stack([part.norm() * power for part, power in map(_centred, side)])
        for side in (x, columns)
    )
    widths = [layer.shape[1] for layer in columns]
    for i, layer in enumerate(x):
        left, power = _centred(layer)
        left = left.to(dtype)
        n, k = left.shape
        most = _most_matrices(k, max(widths), n, left.element_size(), bound)
        for members in _batches(widths, range(0 if y else i, len(columns)), most):
            parts = [_centred(columns[j]) for j in members]
            right = torch.stack([part.to(dtype) for part, _ in parts])
            powers = torch.stack([power for _, power in parts]) * power
            products = torch.matmul(left.mT, right)
            xy[i, members] = nuclear_norms_of(products) * powers
            if not y:
                xy[members, i] = xy[i, members]
    undefined = (norm_x == 0)[:, None] | (norm_y == 0)[None, :]
    return xy.masked_fill(undefined, float("nan")), norm_x, norm_y


def singular_systems(m: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Thin SVDs ``[B, k, l]`` as `torch.linalg.svd` gives them; small ones by our own kernel."""
    if not m.is_cuda or m.dtype != torch.float32 or max(m.shape[1:]) > MOST_JACOBI:
        return torch.linalg.svd(m, full_matrices=False)
    if m.shape[1] < m.shape[2]:
        v, s, u = torch.ops.simcore.small_svd(m.mT.contiguous())
    else:
        u, s, v = torch.ops.simcore.small_svd(m.contiguous())
    return u, s, v.mT


def _weighted_means(directions: Tensor, rho: Tensor, weighted: Tensor) -> Tensor:
    a = (directions @ weighted).abs().sum(-1).double()
    return (a * rho).sum(-1) / a.sum(-1)  # 0 / 0: no variance


def pwcca(
    u_x: Sequence[Tensor], weighted_x: Sequence[Tensor], u_y: Sequence[Tensor], max_memory: int
) -> Tensor:
    """``simcore::pwcca`` by batches of singular value decompositions."""
    columns = u_y or u_x
    bound = memory_bound(max_memory, u_x[0])
    grid = torch.ones((len(u_x), len(columns)), dtype=torch.float64, device=u_x[0].device)
    widths = [basis.shape[1] for basis in columns]
    for i, basis in enumerate(u_x):
        most = _most_matrices(basis.shape[1], max(widths), len(basis), 8, bound)
        for members in _batches(widths, range(0 if u_y else i + 1, len(columns)), most):
            right = torch.stack([columns[j] for j in members])
            dtype = torch.promote_types(basis.dtype, right.dtype)
            products = torch.matmul(basis.to(dtype).mT, right.to(dtype))
            p, rho, rt = singular_systems(products)
            rho = rho.double().clamp_max(1)
            grid[i, members] = _weighted_means(p.mT, rho, weighted_x[i].to(dtype))
            if u_y:
                continue
            for at, j in enumerate(members):  # components of different layers differ in width
                grid[j, i] = _weighted_means(rt[at], rho[at], weighted_x[j].to(dtype))
    return grid


# Registered in simcore/_ops.py.
OPERATORS: dict[str, Callable[..., object]] = {
    "principal_components": _in_full_float32(principal_components),
    "nuclear_norms": _in_full_float32(nuclear_norms),
    "pwcca": _in_full_float32(pwcca),
}
