"""The operators of permutation tests and intervals in torch's own operations.

CUDA devices use them. The functions run on any device: tests compare them on CPU tensors with the
kernels of the CPU. Nothing in them waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from simcore._grid.progress import reported
from simcore._ops.composed import centred_columns, in_full_float32
from simcore._ops.declared import compose
from simcore._ops.gram_composed import median
from simcore._ops.hsic import hsic_terms
from simcore._ops.hsic_gradients import widest_dtype

SLAB_BYTES = 2**26  # of reordered Gram entries, or of the rows of one Gram matrix, at a time


def _slabs(n: int, bytes_of_row: int) -> Iterator[slice]:
    step = max(1, SLAB_BYTES // max(1, bytes_of_row))
    return (slice(start, min(start + step, n)) for start in range(0, n, step))


def permuted_gram_products(
    x: Tensor, y: Tensor, rows: Tensor, weights: Tensor | None = None
) -> Tensor:
    """Compute ``simcore::permuted_gram_products``, one draw after another."""
    n, item = len(x), x.element_size()
    entries = n * y.shape[2] + x.shape[2] * y.shape[2]
    out = x.new_zeros((len(rows), x.shape[2], y.shape[2]), dtype=torch.float64)
    for draw, numbers in enumerate(rows):
        order = numbers.long()  # of all draws they would take twice the memory of `rows`
        for slab in _slabs(n, entries * item):
            reordered = y[order[slab, None], order]  # [rows, n, Ly]
            if weights is not None:
                w = weights[draw].to(x.dtype)
                reordered = reordered * (w[slab, None] * w)[:, :, None]
            out[draw] += torch.bmm(x[slab].mT, reordered).sum(0, dtype=torch.float64)
    return out


def _features(layers: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the centred and scaled columns of each layer, and the power of two divided by."""
    dtype = widest_dtype(layers)
    for layer in layers:
        centred, power = centred_columns(layer)
        yield centred.to(dtype), power


def gram_power_sums(
    x: Sequence[Tensor], y: Sequence[Tensor], estimator: str, max_memory: int
) -> tuple[Tensor, ...]:
    """Compute ``simcore::gram_power_sums``, some rows of one Gram matrix at a time."""
    xy, xx, yy = hsic_terms(x, y, "linear", estimator, 1.0, "auto", max_memory)
    layers = [*x, *y]
    n = len(layers[0])
    squares = xy.new_zeros((len(layers), n))
    cubes, exponents = xy.new_zeros(len(layers)), xy.new_zeros(len(layers))
    for place, (features, power) in enumerate(_features(layers)):
        for rows in _slabs(n, n * features.element_size()):
            k = features[rows] @ features.T
            k.diagonal(rows.start).zero_()
            square = k.square()
            squares[place, rows] = square.sum(1, dtype=torch.float64)
            cubes[place] += square.mul_(k).sum(dtype=torch.float64)
        exponents[place] = power.log2().round()
    return xy, xx, yy, squares, cubes, exponents


def median_squared_distances(x: Sequence[Tensor], y: Sequence[Tensor]) -> Tensor:
    """Compute ``simcore::median_squared_distances`` in float64, one layer after another."""
    parts = map(centred_columns, [*x, *y])
    return torch.stack([median(features) * power.square() for features, power in parts])


def uniformity(x: Sequence[Tensor], max_memory: int) -> Tensor:
    """Compute ``simcore::uniformity``, some rows of one layer's distances at a time."""
    values = []
    for features, power in _features(x):
        n = len(features)
        lengths = features.double().square().sum(1).to(features.dtype)
        largest = torch.finfo(features.dtype).max
        scale = (2 * power.square()).clamp(max=largest).to(features.dtype)
        total = power.new_zeros(())
        for rows in _slabs(n, 2 * n * features.element_size()):
            distances = (features[rows] @ features.T).mul_(-2)
            distances.add_(lengths[rows, None]).add_(lengths).clamp_(min=0)
            distances.diagonal(rows.start).zero_()
            total += distances.mul_(-scale).exp_().sum(dtype=torch.float64)
        values.append((total / n**2).log())
    return torch.stack(values)


def mean_rows(
    x: Sequence[Tensor], with_cosines: bool, max_memory: int, name: str = "X"
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute ``simcore::mean_rows``, some rows of one layer at a time. Entries are not checked."""
    lengths, cosines, zeros = [], [], []
    for layer in reported(x):
        slabs = [layer[rows] for rows in _slabs(len(layer), 24 * layer.shape[1])]
        # Entries are divided by n first, so that no sum overflows.
        mean = torch.stack([(slab.double() / len(layer)).sum(0) for slab in slabs]).sum(0)  # [p]
        length = _length(mean)
        lengths.append(length)
        if with_cosines:
            cosine, without = _mean_cosine(slabs, mean / length, length)
            cosines.append(cosine)
            zeros.append(without)
    norms = torch.stack(lengths)  # [L]
    if not with_cosines:
        return norms, norms.new_empty(0), norms.new_empty(0, dtype=torch.int64)
    return norms, torch.stack(cosines), torch.stack(zeros)


def _length(row: Tensor) -> Tensor:
    """Return the length of a row of any scale."""
    largest = row.abs().max()
    unit = torch.where(largest > 0, largest, 1.0)
    return unit * torch.linalg.vector_norm(row / unit)


def _mean_cosine(
    slabs: Sequence[Tensor], direction: Tensor, length: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the mean cosine of rows to a direction, and the number of rows of zeros."""
    # ``length`` is the length of the mean row: nan where it is zero up to rounding.
    cosines, lengths, zeros = [], [], []
    for slab in slabs:
        rows = slab.double()
        largest = rows.abs().amax(1, keepdim=True)
        some = largest > 0
        rows = rows / torch.where(some, largest, 1.0)
        norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
        cosines.append(((rows @ direction)[:, None] / torch.where(some, norms, 1.0)).sum())
        lengths.append(_length((largest * norms).flatten()))
        zeros.append((~some).sum())
    n, without = sum(map(len, slabs)), torch.stack(zeros).sum()
    root_mean_square = _length(torch.stack(lengths)) / n**0.5
    defined = length > torch.finfo(slabs[0].dtype).eps * root_mean_square
    mean_cosine = torch.stack(cosines).sum() / (n - without)
    return torch.where(defined, mean_cosine.clamp(-1.0, 1.0), torch.nan), without


COMPOSED = (
    permuted_gram_products,
    gram_power_sums,
    median_squared_distances,
    uniformity,
    mean_rows,
)
OPERATORS: dict[str, Callable[..., object]] = {
    function.__name__: in_full_float32(function) for function in COMPOSED
}
compose(OPERATORS)
