"""The operators for HSIC and for sums over Gram matrices: names, shapes of results, CUDA.

On a CUDA device `hsic_terms` is either composed of torch's products (`simcore._ops.hsic_composed`)
or `gram_terms`, which is kernels.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from simcore._ops.declared import compose, operator
from simcore._ops.hsic_composed import OPERATORS
from simcore._ops.rows_composed import OPERATORS as ROWS


def _terms(x: Sequence[Tensor], y: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    rows, columns = len(x), len(y) or len(x)
    shapes = ((rows, columns), (rows,), (columns,))
    xy, xx, yy = (x[0].new_empty(shape, dtype=torch.float64) for shape in shapes)
    return xy, xx, yy


@operator
def hsic_terms(
    x: Sequence[Tensor],
    y: Sequence[Tensor],
    kernel: str,
    estimator: str,
    bandwidth: float,
    method: str,
    max_memory: int,
    precision: str = "highest",
) -> tuple[Tensor, Tensor, Tensor]:
    return _terms(x, y)


@operator
def gram_terms(
    x: Sequence[Tensor],
    y: Sequence[Tensor],
    kernel: str,
    estimator: str,
    bandwidth: float,
    max_memory: int,
    precision: str,
) -> tuple[Tensor, Tensor, Tensor]:
    return _terms(x, y)


@operator
def permuted_gram_products(
    x: Tensor, y: Tensor, rows: Tensor, weights: Tensor | None = None
) -> Tensor:
    return x.new_empty((rows.shape[0], x.shape[2], y.shape[2]), dtype=torch.float64)


@operator
def gram_power_sums(
    x: Sequence[Tensor], y: Sequence[Tensor], estimator: str, max_memory: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    layers = len(x) + len(y)
    shapes = ((layers, x[0].shape[0]), (layers,), (layers,))
    squares, cubes, exponents = (x[0].new_empty(shape, dtype=torch.float64) for shape in shapes)
    return *_terms(x, y), squares, cubes, exponents


@operator
def median_squared_distances(x: Sequence[Tensor], y: Sequence[Tensor]) -> Tensor:
    return x[0].new_empty((len(x) + len(y),), dtype=torch.float64)


@operator
def uniformity(x: Sequence[Tensor], max_memory: int) -> Tensor:
    return x[0].new_empty((len(x),), dtype=torch.float64)


@operator
def mean_rows(
    x: Sequence[Tensor], with_cosines: bool, max_memory: int, name: str = "X"
) -> tuple[Tensor, Tensor, Tensor]:
    count = len(x) if with_cosines else 0
    length, cosine = (x[0].new_empty((i,), dtype=torch.float64) for i in (len(x), count))
    return length, cosine, x[0].new_empty((count,), dtype=torch.int64)


@operator
def row_pairs(
    x: Sequence[Tensor], y: Sequence[Tensor], measure: str, max_memory: int
) -> tuple[Tensor, Tensor, Tensor]:
    shape = len(x), len(y) or len(x)
    sums, counts = (x[0].new_empty(shape, dtype=torch.float64) for _ in range(2))
    return sums, counts, x[0].new_empty((len(x) + len(y),), dtype=torch.int64)


compose({**OPERATORS, **ROWS})
