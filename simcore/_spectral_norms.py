"""Spectral norms of the differences of distance matrices, by Lanczos iterations.

Math      E = D_x - D_y is symmetric: its norm is its largest eigenvalue in magnitude. Lanczos
          builds an orthonormal basis Q of the span of v, E v, E^2 v, ... and the tridiagonal
          T = Q' E Q. An eigenvalue t of T with eigenvector s is within r = beta |s_last| of an
          eigenvalue of E, and within r^2 / gap if t is separated from the others by gap.
Plan      the distance matrices of two blocks of layers are held, and all pairs of the blocks
          advance together: D_x times the vectors of all its pairs is one matrix product. Every new
          vector is made orthogonal to all before it, twice.
Numerics  distances and vectors in the layers' dtype, T in float64. The pairs end when the largest
          eigenvalue of each is known to TOLERANCE, and the other end of its spectrum cannot exceed
          it. A pair that has not ended after STEPS takes all eigenvalues of E, in float64.
Devices   operations of torch on any device. The host reads every CHECKED steps whether the pairs of
          two blocks have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from simcore._grid.accuracy import distance_rounding
from simcore._grid.memory import require_memory
from simcore._grid.scale import InRange
from simcore._ops.composed import centred_columns
from simcore._ops.eigh import eigh

STEPS, CHECKED = 48, 6  # the most steps; steps from one check to the next
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-11}  # of the norm
VECTORS = STEPS + 8  # vectors of a pair that are held, products and copies included


def spectral_differences(
    scaled: InRange, count: int, bound: int, report: Callable[[float], None]
) -> tuple[Tensor, Tensor]:
    """Return ``||D_x - D_y||_2`` of layers [0, count) with the others; with themselves if all."""
    # The second value is the larger of float32's errors of D_x and D_y, as norms, of all pairs. At
    # most ``bound`` bytes are allocated.
    layers, n = scaled.layers, len(scaled.layers[0])
    same = count == len(layers)
    dtype = torch.float64 if any(t.dtype == torch.float64 for t in layers) else torch.float32
    columns = range(0 if same else count, len(layers))
    side = _side(n, max(count, len(columns)), dtype, bound)
    # One synchronisation with the device for all layers.
    sizes = torch.stack([_sizes(layer) for layer in layers])
    own = sizes[:, 0].tolist()
    # A device's logarithm of 8 may be a little less than 3.
    powers = [round(power) + e for power, e in zip(own, scaled.exponents, strict=True)]
    unit = max(powers)

    device = layers[0].device

    def distances(run: range) -> Tensor:
        made = torch.empty(len(run), n, n, dtype=dtype, device=device)
        for out, i in zip(made, run, strict=True):
            _distances(layers[i], out).mul_(2.0 ** max(powers[i] - unit, -1000))
        return made

    grid = torch.zeros(count, len(columns), dtype=torch.float64, device=device)
    blocks = [(a, b) for a in _runs(range(count), side) for b in _runs(columns, side)]
    held: tuple[range | None, Tensor | None] = (None, None)
    for done, (a, b) in enumerate(blocks, 1):
        if not same or a.start <= b.start:
            x = held[1] if held[0] == a and held[1] is not None else distances(a)
            held = (a, x)
            alone = same and a == b
            norms = _norms(x, None if alone else distances(b))
            grid[a.start : a.stop, b.start - columns.start : b.stop - columns.start] = norms
            if same and not alone:
                grid[b.start : b.stop, a.start : a.stop] = norms.T
        report(done / len(blocks))
    units = torch.tensor([2.0 ** max(power - unit, -1000) for power in powers], device=device)
    errors = sizes[:, 1] * units
    larger = torch.maximum(errors[:count, None], errors[columns.start :])
    return grid * 2.0**unit, larger * 2.0**unit


def _sizes(layer: Tensor) -> Tensor:
    """Return the logarithm of a layer's unit, and float32's error of distances in it, ``[2]``."""
    # The error is the norm of all.
    features, power = centred_columns(layer)
    error, *_ = distance_rounding(features, features.square().sum(1))
    return torch.stack([power.log2(), len(layer) * error])


def _runs(whole: range, side: int) -> Iterator[range]:
    return (range(i, min(i + side, whole.stop)) for i in range(whole.start, whole.stop, side))


def _side(n: int, most: int, dtype: torch.dtype, bound: int) -> int:
    """Return how many layers of either side are compared at a time."""

    def needed(side: int) -> int:
        matrices, pairs = (side + min(side, most - side) + 1) * n * n, side * side * VECTORS * n
        return int((matrices + pairs) * dtype.itemsize + 3 * 8 * n * n)

    require_memory(needed(1), bound, "two distance matrices")
    for side in range(most, 1, -1):
        if needed(side) <= bound:
            return side
    return 1


def _distances(layer: Tensor, out: Tensor) -> Tensor:
    """Write the distances between the rows of ``layer``, in units of its largest entry."""
    features = centred_columns(layer)[0].to(out.dtype)
    torch.mm(features, features.T, out=out)
    lengths = out.diagonal().clone()  # rounded as the products: equal rows are exactly 0 apart
    out.mul_(-2).add_(lengths[:, None]).add_(lengths).clamp_(min=0).sqrt_()
    out.diagonal().zero_()
    return out


def _norms(x: Tensor, y: Tensor | None) -> Tensor:
    """Return the norms ``[I, J]`` of all differences of x ``[I, n, n]`` and y, or x itself."""
    other = x if y is None else y
    i, j = torch.triu_indices(len(x), len(x), 1, device=x.device)
    if y is not None:
        every = torch.arange(len(x) * len(y), device=x.device)
        i, j = every // len(y), every % len(y)
    grid = torch.zeros(len(x), len(other), dtype=torch.float64, device=x.device)
    if len(i) == 0:
        return grid
    norms, certain = _lanczos(x, y, i, j)
    for pair, ended in enumerate(certain):
        if ended:
            continue
        difference = x[i[pair]].double() - other[j[pair]].double()
        norms[pair] = torch.linalg.eigvalsh(difference).abs().max()
    grid[i, j] = norms
    return grid + grid.T if y is None else grid


def _lanczos(x: Tensor, y: Tensor | None, i: Tensor, j: Tensor) -> tuple[Tensor, list[bool]]:
    """Return the norms of ``x[i] - y[j]`` of all pairs, and which of them are certain."""
    n, pairs = x.shape[1], len(i)
    steps = min(STEPS, n)
    generator = torch.Generator().manual_seed(0)
    start = 1 + torch.randn(n, generator=generator, dtype=torch.float64)  # no direction is left out
    vectors = torch.empty(pairs, steps + 1, n, dtype=x.dtype, device=x.device)
    vectors[:, 0] = (start / start.norm()).to(x.device)
    alpha, beta = torch.zeros(2, pairs, steps, dtype=torch.float64, device=x.device)
    apply = _Difference(x, y, i, j)
    for step in range(steps):
        product = apply(vectors[:, step])
        alpha[:, step] = (product * vectors[:, step]).sum(1, dtype=torch.float64)
        basis = vectors[:, : step + 1]
        for _ in range(2):
            shares = torch.bmm(basis, product[:, :, None])
            product = torch.baddbmm(product[:, None], shares.mT, basis, alpha=-1).squeeze(1)
        length = torch.linalg.vector_norm(product, dim=1, dtype=torch.float64)
        # The rounding error of a product within the span is no direction: T ends there.
        rounding = torch.finfo(x.dtype).eps * alpha[:, : step + 1].abs().amax(1)
        length = torch.where(length > rounding, length, 0.0)
        beta[:, step] = length
        scale = torch.where(length > 0, 1 / length, 0.0).to(x.dtype)
        vectors[:, step + 1] = product * scale[:, None]
        if (step + 1) % CHECKED == 0 or step + 1 == steps:
            norms, known = _largest(alpha[:, : step + 1], beta[:, : step + 1], TOLERANCE[x.dtype])
            certain: list[bool] = known.tolist()
            if all(certain):
                break
    return norms, certain


class _Difference:
    """The products of ``x[i] - y[j]`` with a vector of each pair."""

    def __init__(self, x: Tensor, y: Tensor | None, i: Tensor, j: Tensor) -> None:
        self.x, self.y, self.i, self.j = x, y, i, j
        across = len(x) if y is None else len(y)
        self.vectors = x.new_zeros(len(x), across, x.shape[1])

    def __call__(self, v: Tensor) -> Tensor:
        self.vectors[self.i, self.j] = v
        if self.y is None:
            self.vectors[self.j, self.i] = v
            products = torch.bmm(self.vectors, self.x)  # the matrices are symmetric
            return products[self.i, self.j] - products[self.j, self.i]
        of_x = torch.bmm(self.vectors, self.x)
        of_y = torch.bmm(self.vectors.transpose(0, 1), self.y)
        return of_x[self.i, self.j] - of_y[self.j, self.i]


def _largest(alpha: Tensor, beta: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
    """Return the largest eigenvalue in magnitude of T ``[P, k, k]``, and whether it is certain."""
    beyond = beta[:, :-1]
    t = torch.diag_embed(alpha) + torch.diag_embed(beyond, 1) + torch.diag_embed(beyond, -1)
    values, vectors = eigh(t)
    ends = values[:, [0, -1]]
    residuals = beta[:, -1:] * vectors[:, -1, [0, -1]].abs()
    gaps = (values[:, [1, -2]] - ends).abs() if values.shape[1] > 1 else torch.zeros_like(ends)
    errors = torch.minimum(residuals, residuals.square() / gaps.clamp(min=1e-300))
    sizes = ends.abs()
    largest = sizes.amax(1, keepdim=True)
    known = errors <= tolerance * largest
    below = sizes + residuals < largest  # this end cannot be the largest
    return largest.squeeze(1), (known | below).all(1)


def exact_differences(x: list[Tensor], y: list[Tensor], bound: int) -> Tensor:
    """Return ``||D_x - D_y||_F`` of float64 layers from the differences, some rows at a time."""
    n = len(x[0])
    layers = [layer - layer[0] for layer in (*x, *y)]
    layers = [layer - layer.mean(0) for layer in layers]
    lengths = [layer.square().sum(1) for layer in layers]
    step = max(1, min(n, bound // (8 * n * (len(layers) + 3))))
    squares = x[0].new_zeros(len(x), len(y))
    for rows in torch.arange(n, device=x[0].device).split(step):
        distances = [_between(*of_layer, rows) for of_layer in zip(layers, lengths, strict=True)]
        for i, of_x in enumerate(distances[: len(x)]):
            for j, of_y in enumerate(distances[len(x) :]):
                squares[i, j] += (of_x - of_y).square_().sum()
    return squares.sqrt()


def _between(layer: Tensor, lengths: Tensor, rows: Tensor) -> Tensor:
    """Return the distances ``[rows, n]`` of some centred rows from all."""
    both = lengths[rows, None] + lengths
    squares = torch.addmm(both, layer[rows], layer.T, alpha=-2).clamp_(min=0)
    squares[torch.arange(len(rows), device=rows.device), rows] = 0.0
    return squares.sqrt_()
