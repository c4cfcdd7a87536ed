"""The operators for representational dissimilarities, and their composed forms.

CUDA devices use the composed forms, in torch's own operations. These run on any device: tests
compare them on CPU tensors with the twins. Only the check of the entries waits for the device.
"""

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor

from simcore._grid.accuracy import TOLERANCE, computed_again, ranks_are_lost, within
from simcore._grid.derivative import with_gradients
from simcore._grid.inputs import check_finite, row_blocks
from simcore._grid.memory import memory_bound, require_memory
from simcore._grid.progress import reported
from simcore._grid.side import Sides
from simcore._ops.composed import in_full_float32
from simcore._ops.declared import compose, is_composed, operator
from simcore._ops.hsic_derivatives import differentiable_hsic_terms
from simcore._ops.neighbours import tied_pairs
from simcore._ops.tiles import rows_that_fit, tiles

EPS = torch.finfo(torch.float64).eps
TIE = 16 * EPS  # of the mean dissimilarity: closer ones are equal, as kTie in csrc/cpu/rsa
MOST_PAIRS = 2**31  # ranks are int32, as in csrc/cpu/rsa
SORTING_BYTES = 64  # of a dissimilarity while it is ranked: sorted values, places, sort's workspace
# Dissimilarities of random rows vary by 1 / sqrt(p): for larger p float32 keeps few of its digits.
WIDEST_FLOAT32 = 4096
# Dissimilarities count only if their variance is this many times the variance that rounding gives
# them. At the limit, rounding lowers a correlation by up to 1 / 32.
LEAST_SPREAD = 16
# Covariances [Lx, Ly]; variances [Lx] and [Ly]; then for all layers (x, then y) the variance of the
# dissimilarities and the part of it that rounding explains.
Moments = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def unit_rows(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return unit rows, their inverse lengths, and the exponents that scaled them."""
    # Unit rows ``[n, p]`` are float64, less their mean, and of length 1. Before, they were
    # multiplied by ``2**-exponent`` ``[n, 1]``, and then by the inverse length ``[n, 1]``. Constant
    # rows give nan.
    wide = x.double()
    exponents = torch.frexp(wide.abs().amax(1, keepdim=True)).exponent  # [n, 1]
    scaled = torch.ldexp(wide, -exponents)
    centred = scaled - scaled.mean(1, keepdim=True)
    centred = centred - centred.mean(1, keepdim=True)  # what rounding left of the mean
    inverse = centred.square().sum(1, keepdim=True).rsqrt()  # [n, 1]
    return centred * inverse, inverse, exponents


def composed_rows(
    x: Tensor, dtype: torch.dtype, name: str = "X[0]"
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute ``simcore::standardised_rows``."""
    # csrc/cpu/rsa/standard_rows.cpp derives the formulas. Entries are not checked, because that
    # would wait for the device: the caller checks all layers at once.
    n, blocks = len(x), row_blocks(x)
    constant = (x == x[:, :1]).all(1, keepdim=True)  # [n, 1]
    z = torch.empty(x.shape, dtype=torch.float64, device=x.device)
    c = torch.empty(x.shape, dtype=dtype, device=x.device)
    of_blocks = [part.split(len(blocks[0])) for part in (constant, z, c)]
    scales = []  # exponents, and the squared error of an entry over its square, [rows, 1] each
    for values, still, unit in zip(blocks, *of_blocks[:2], strict=True):
        found, inverse, exponents = unit_rows(values)
        unit.copy_(found.masked_fill_(still, 0.0))
        error = (torch.finfo(x.dtype).eps / 2 * inverse).square() / 3
        scales.append((-exponents, error.masked_fill_(still, 0.0)))
    mean = torch.stack([unit.sum(0) for unit in of_blocks[1]]).sum(0) / n  # [p]
    by_centred = (2 * EPS) ** 2 / 3
    rows, columns, products = [], [], []
    for values, still, unit, centred, (power, error) in zip(
        blocks, *of_blocks, scales, strict=True
    ):
        t = torch.ldexp(values.double(), power).square_().mul_(error) + unit.square() * by_centred
        squares = (unit - mean).masked_fill_(still, 0.0)
        centred.copy_(squares)
        squares.square_()
        rows.append(torch.stack([squares.sum(1), t.sum(1)]))  # [2, rows]
        columns.append(torch.stack([squares.sum(0), t.sum(0)]))  # [2, p]
        products.append((squares * t).sum())  # []
    lengths, errors = torch.cat(rows, 1)  # [n] each
    crossed = torch.stack(columns).sum(0).prod(0).sum()  # []
    by_length = 2 * (by_centred * (1 + x.shape[1] / 8192)) ** 2
    rounding = 2 / (n * (n - 1)) * (n * torch.stack(products).sum() + crossed)
    rounding = rounding + errors.var(correction=0) / 2 + by_length
    return c, (lengths / 2).masked_fill(constant[:, 0], torch.nan), rounding


def composed_moments(
    x: Sequence[Tensor], y: Sequence[Tensor], max_memory: int, near: Sequence[int] = ()
) -> tuple[Tensor, ...]:
    """Compute ``simcore::rank_moments``: one layer after another is ranked, in float64."""
    # As on the CPU, the ranks of all layers are held, as whole numbers. The layers at the places
    # ``near``, of x and then of y, are ranked by `distances`.
    layers = [*x, *y]
    n, count = len(layers[0]), len(layers)
    pairs = n * (n - 1) // 2
    if pairs >= MOST_PAIRS:
        raise ValueError(f"X[0]: wanted at most 65536 rows to rank their dissimilarities, got {n}")
    check_finite(x, "X")
    check_finite(y, "Y")
    widest = max(layer.shape[1] for layer in layers)
    held = 4 * count * pairs + SORTING_BYTES * pairs + 56 * n * widest
    bound = memory_bound(max_memory, layers[0])
    rows = rows_that_fit(bound, held, 48 * n, n, "ranks of all dissimilarities")
    ranks = torch.empty((count, pairs), dtype=torch.int32, device=layers[0].device)
    spreads, roundings = [], []
    for place, (layer, out) in reported(enumerate(zip(layers, ranks, strict=True))):
        c, halves, rounding = composed_rows(layer, torch.float64)
        unit = halves.mean()  # nan for a layer with a constant row
        values = dissimilarities(c, halves, rows)  # [pairs]
        known = unit > 0
        spread = (values - 2 * n / (n - 1) * unit).square().mean() / unit.square()
        spreads.append(torch.where(known, spread, torch.nan))
        roundings.append(rounding / unit.square())
        tie = TIE * 2 * unit
        if place in near:
            values, tie = distances(c)
        _write_centred_ranks(values, tie, out)
        out.mul_(known)
    room = (bound - held + SORTING_BYTES * pairs) // (8 * count + 8)
    xy, xx, yy = _covariances(ranks, len(x), max(1, min(pairs, room)))  # [Lx, Ly], [Lx], [Ly]
    return xy, xx, yy, torch.stack(spreads), torch.stack(roundings)


def dissimilarities(c: Tensor, halves: Tensor, rows: int) -> Tensor:
    """Return ``|c_i|^2 / 2 + |c_j|^2 / 2 - c_i'c_j`` of all i < j, ``[n (n - 1) / 2]``."""
    n = len(c)
    values = c.new_empty(n * (n - 1) // 2)
    at = 0
    for tile in tiles(n, rows):
        block = (halves[tile, None] + halves).sub_(c[tile] @ c.T)  # [rows, n]
        i, j = torch.triu_indices(len(block), n, tile.start + 1, device=c.device)  # pairs i < j
        values[at : at + len(i)] = block[i, j]
        at += len(i)
    return values


def distances(c: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``|c_i - c_j|`` of all i < j, and up to which difference they are equal."""
    # Differences of rows keep the digits of small dissimilarities, which products lose. The error
    # of a distance is that of unit rows, whatever its size.
    return torch.pdist(c), c.new_tensor(TIE)


def _write_centred_ranks(values: Tensor, rounding: Tensor, out: Tensor) -> None:
    """Write ``2 rank - (count + 1)`` of all values; neighbours within ``rounding`` share a rank."""
    count = len(values)
    ordered, places = values.sort()  # [count] each
    place = torch.arange(count, dtype=torch.int32, device=values.device)
    apart = torch.ones(count + 1, dtype=torch.bool, device=values.device)
    apart[1:-1] = ordered.diff() > rounding
    first = place.where(apart[:-1], 0).cummax(0).values
    last = (place + 1).where(apart[1:], count).flip(0).cummin(0).values.flip(0)
    out[places] = (first - count) + last  # in this order: first + last may be beyond int32


def centred_ranks(values: Tensor, rounding: Tensor) -> Tensor:
    """Return what `_write_centred_ranks` writes, as float64: whole numbers."""
    ranks = torch.empty(len(values), dtype=torch.int32, device=values.device)
    _write_centred_ranks(values, rounding, ranks)
    return ranks.double()


def _covariances(ranks: Tensor, count_x: int, depth: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the covariances and variances of ranks [0, count_x) and the others, or themselves."""
    count, pairs = ranks.shape
    total = torch.zeros((count, count), dtype=torch.float64, device=ranks.device)
    for part in tiles(pairs, depth):
        wide = ranks[:, part].double()  # [L, part]
        total += wide @ wide.T
    total = (total.triu() + total.triu(1).T) / (4.0 * pairs) / pairs / pairs
    of_x, of_y = total.diagonal()[:count_x], total.diagonal()[count_x:]  # [Lx], [Ly]
    if count == count_x:
        return total, of_x.clone(), of_x.clone()
    return total[:count_x, count_x:].clone(), of_x.clone(), of_y.clone()


@operator
def standardised_rows(
    x: Tensor, dtype: torch.dtype, name: str = "X[0]"
) -> tuple[Tensor, Tensor, Tensor]:
    halves = x.new_empty((x.shape[0],), dtype=torch.float64)
    return x.new_empty(x.shape, dtype=dtype), halves, x.new_empty((), dtype=torch.float64)


@operator
def rank_moments(
    x: Sequence[Tensor], y: Sequence[Tensor], max_memory: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    rows, columns, layers = len(x), len(y) or len(x), len(x) + len(y)
    shapes = ((rows, columns), (rows,), (columns,), (layers,), (layers,))
    xy, xx, yy, spread, share = (x[0].new_empty(shape, dtype=torch.float64) for shape in shapes)
    return xy, xx, yy, spread, share


OPERATORS: dict[str, Callable[..., object]] = {
    "standardised_rows": composed_rows,
    "rank_moments": in_full_float32(composed_moments),
}
compose(OPERATORS)


def differentiable_rows(layer: Tensor, dtype: torch.dtype, name: str) -> tuple[Tensor, ...]:
    """Return `standardised_rows` of a layer, with the derivatives of its rows and their lengths."""
    rows, halves, rounding = standardised_rows(layer.detach(), dtype, name)
    rows, halves = with_gradients("rsa_grid", (rows, halves), [layer], _gradients)
    return rows, halves, rounding


def _gradients(
    layers: list[Tensor], grads: Sequence[Tensor], wanted: Sequence[bool]
) -> list[Tensor]:
    """Return the gradient by a layer, given those by its standardised rows c and by |c|^2 / 2."""
    z, inverse, exponents = unit_rows(layers[0])
    constant = (layers[0] == layers[0][:, :1]).all(1, keepdim=True)
    z = torch.where(constant, 0.0, z)
    grad = grads[0].double() + grads[1][:, None] * (z - z.mean(0))
    grad = grad - grad.mean(0)  # c are the rows z less their mean
    grad = inverse * (grad - z * (z * grad).sum(1, keepdim=True))
    grad = torch.ldexp(grad - grad.mean(1, keepdim=True), -exponents)
    return [torch.where(constant, 0.0, grad)]


def moments(sides: Sides, correlation: str) -> Moments:
    """Return the moments of the dissimilarities, or of their ranks."""
    for name, layer in zip(sides.labels, sides.layers, strict=True):
        _check_columns(layer, name)
    return _pearson_moments(sides) if correlation == "pearson" else _moments_of_ranks(sides)


def _check_columns(layer: Tensor, name: str) -> None:
    if layer.shape[1] < 2:
        raise ValueError(f"{name}: wanted at least 2 columns to correlate rows, got 1")


def dtype_by_width(layer: Tensor) -> torch.dtype:
    """Return the dtype that a layer is computed in: float64 also for wide float32 layers."""
    wide = layer.shape[1] > WIDEST_FLOAT32
    return torch.float64 if wide or layer.dtype == torch.float64 else torch.float32


def _pearson_moments(sides: Sides) -> Moments:
    """Return the moments of the dissimilarities, in units of the mean of the layer's a_i."""
    # With c_i and ``a_i = |c_i|^2 / 2`` of `standardised_rows`, dissimilarities are ``a_i + a_j -
    # c_i'c_j``. The rows of ``c c'`` sum to 0. The sum over i, j of the products of two layers'
    # dissimilarities is therefore the sum of the products of their ``c c'``, which is HSIC, plus
    # terms that depend on the a_i alone.
    layers, n, first, second = sides.layers, sides.n, slice(len(sides.x)), sides.columns
    dtypes = [dtype_by_width(layer) for layer in layers]
    held = sum(x.numel() * dtype.itemsize for x, dtype in zip(layers, dtypes, strict=True))
    # The products take as much again.
    require_memory(2 * held, sides.bound, "standardised copies of the layers")
    if is_composed(sides.device):  # the operator of the CPU checks its layer itself
        sides.check_finite()
    standardised = [
        differentiable_rows(layer, dtype, name)
        for layer, dtype, name in zip(layers, dtypes, sides.labels, strict=True)
    ]
    rows, halves, rounding = zip(*standardised, strict=True)
    others = [] if sides.same else list(rows[second])
    options = "linear", "biased", 1.0, "auto", sides.bound - held
    xy, xx, yy = differentiable_hsic_terms(list(rows[first]), others, *options)
    a = torch.stack(halves)
    constant = a.isnan().any(1)  # a row has no variance
    a = torch.where(constant[:, None], 1.0, a)
    unit = a.mean(1)
    v = a - unit[:, None]

    def moment(hsic: Tensor, products: Tensor, units: Tensor) -> Tensor:
        total = (n - 1.0) ** 2 * hsic + 2.0 * n * products
        return (total / units - 4.0 * n * n / (n - 1.0)) / (n * (n - 1.0))

    xx = moment(xx, v[first].square().sum(1), unit[first].square())
    yy = moment(yy, v[second].square().sum(1), unit[second].square())
    # The sums hold products as large as the squared mean, whose rounding is no variance.
    eps = xy.new_tensor([torch.finfo(dtype).eps for dtype in dtypes])
    return (
        moment(xy, v[first] @ v[second].T, unit[first][:, None] * unit[second]),
        xx,
        yy,
        xx if sides.same else torch.cat([xx, yy]),
        (torch.stack(rounding) / unit.square() + eps).masked_fill(constant, torch.nan),
    )


def _moments_of_ranks(sides: Sides) -> Moments:
    """Return the moments of the ranks, of nearly equal rows by their distances."""
    x, y = sides.x.layers, sides.y.layers
    moments = rank_moments(x, y, sides.bound)
    variances = torch.cat(moments[1:3]) if y else moments[1]
    pairs = sides.n * (sides.n - 1) // 2
    lost = [
        i
        for i in ranks_are_lost(variances, pairs).nonzero().flatten().tolist()
        if ranks_are_lost(variances[i], pairs, tied_pairs((x + y)[i]))
    ]
    for i in lost:
        computed_again("rsa_grid", sides.labels[i])
    return cast(Moments, composed_moments(x, y, sides.bound, lost) if lost else moments)


def correlations_of_matrices(sides: Sides, correlation: str) -> tuple[Tensor, Tensor]:
    """Return the correlations of layers among which there are matrices, and which have any."""
    stacked, known = standardised_triangles(sides, correlation)
    grid = within(stacked[: len(sides.x)] @ stacked[sides.columns].T, -1.0, 1.0, TOLERANCE)
    if sides.same:
        grid.fill_diagonal_(1.0)
    return grid, known


def standardised_triangles(sides: Sides, correlation: str) -> tuple[Tensor, Tensor]:
    """Return all layers' dissimilarities, or ranks, with mean 0 and length 1, and if they vary."""
    triangles, defined = [], []
    for name, layer in zip(sides.labels, sides.matrices, strict=True):
        values, ties, known = (
            _computed(layer, name, correlation)
            if isinstance(layer, Tensor)
            else _given(layer.values)
        )
        if correlation == "spearman":
            values = centred_ranks(values, ties)
        values = values - values.mean()
        triangles.append(values / torch.where(known, torch.linalg.vector_norm(values), 1.0))
        defined.append(known)
    return torch.stack(triangles), torch.stack(defined)


def _given(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return dissimilarities, how near equal ones are, and whether they vary."""
    rounding = torch.finfo(torch.float64).eps * values.abs().max()
    known = values.var(correction=0) > LEAST_SPREAD * rounding.square()
    return values, values.new_zeros(()), known


def _computed(layer: Tensor, name: str, correlation: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return the same as `_given` of a layer ``[n, p]``; for ranks, the rows' distances."""
    _check_columns(layer, name)
    c, halves, rounding = composed_rows(layer, torch.float64)
    n, unit = len(layer), halves.mean()  # nan for a layer with a constant row
    values = dissimilarities(c, halves, n)
    spread = (values - 2 * n / (n - 1) * unit).square().mean()
    known = (spread > LEAST_SPREAD * rounding) & (unit > 0)
    values, tie = (values, TIE * 2 * unit) if correlation == "pearson" else distances(c)
    return torch.where(known, values, 0.0), tie, known
