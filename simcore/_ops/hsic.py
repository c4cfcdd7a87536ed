"""The operators for HSIC and for sums over Gram matrices: names, shapes of results, CUDA.

On a CUDA device `hsic_terms` is either composed of torch's products (`simcore._ops.hsic_composed`)
or `gram_terms`, which is kernels.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from simcore._ops.hsic_composed import OPERATORS
from simcore._ops.rows_composed import OPERATORS as ROWS

hsic_terms = torch.ops.simcore.hsic_terms
gram_terms = torch.ops.simcore.gram_terms
permuted_gram_products = torch.ops.simcore.permuted_gram_products
gram_power_sums = torch.ops.simcore.gram_power_sums
median_squared_distances = torch.ops.simcore.median_squared_distances
uniformity = torch.ops.simcore.uniformity
mean_rows = torch.ops.simcore.mean_rows
row_pairs = torch.ops.simcore.row_pairs


@torch.library.register_fake("simcore::hsic_terms")
def _fake_hsic_terms(
    x: Sequence[Tensor],
    y: Sequence[Tensor],
    kernel: str,
    estimator: str,
    bandwidth: float,
    method: str,
    max_memory: int,
    precision: str = "highest",
) -> tuple[Tensor, Tensor, Tensor]:
    rows, columns = len(x), len(y) or len(x)
    shapes = ((rows, columns), (rows,), (columns,))
    xy, xx, yy = (x[0].new_empty(shape, dtype=torch.float64) for shape in shapes)
    return xy, xx, yy


@torch.library.register_fake("simcore::gram_terms")
def _fake_gram_terms(
    x: Sequence[Tensor],
    y: Sequence[Tensor],
    kernel: str,
    estimator: str,
    bandwidth: float,
    max_memory: int,
    precision: str,
) -> tuple[Tensor, Tensor, Tensor]:
    return _fake_hsic_terms(x, y, kernel, estimator, bandwidth, "gram", max_memory, precision)


@torch.library.register_fake("simcore::permuted_gram_products")
def _fake_permuted_gram_products(
    x: Tensor, y: Tensor, rows: Tensor, weights: Tensor | None = None
) -> Tensor:
    return x.new_empty((rows.shape[0], x.shape[2], y.shape[2]), dtype=torch.float64)


@torch.library.register_fake("simcore::gram_power_sums")
def _fake_gram_power_sums(
    x: Sequence[Tensor], y: Sequence[Tensor], estimator: str, max_memory: int
) -> tuple[Tensor, ...]:
    rows, columns, layers = len(x), len(y) or len(x), len(x) + len(y)
    shapes = ((rows, columns), (rows,), (columns,), (layers, x[0].shape[0]), (layers,), (layers,))
    return tuple(x[0].new_empty(shape, dtype=torch.float64) for shape in shapes)


@torch.library.register_fake("simcore::median_squared_distances")
def _fake_median_squared_distances(x: Sequence[Tensor], y: Sequence[Tensor]) -> Tensor:
    return x[0].new_empty((len(x) + len(y),), dtype=torch.float64)


@torch.library.register_fake("simcore::uniformity")
def _fake_uniformity(x: Sequence[Tensor], max_memory: int) -> Tensor:
    return x[0].new_empty((len(x),), dtype=torch.float64)


@torch.library.register_fake("simcore::mean_rows")
def _fake_mean_rows(
    x: Sequence[Tensor], with_cosines: bool, max_memory: int, name: str = "X"
) -> tuple[Tensor, Tensor, Tensor]:
    count = len(x) if with_cosines else 0
    length, cosine = (x[0].new_empty((i,), dtype=torch.float64) for i in (len(x), count))
    return length, cosine, x[0].new_empty((count,), dtype=torch.int64)


@torch.library.register_fake("simcore::row_pairs")
def _fake_row_pairs(
    x: Sequence[Tensor], y: Sequence[Tensor], measure: str, max_memory: int
) -> tuple[Tensor, Tensor, Tensor]:
    shape = len(x), len(y) or len(x)
    sums, counts = (x[0].new_empty(shape, dtype=torch.float64) for _ in range(2))
    return sums, counts, x[0].new_empty((len(x) + len(y),), dtype=torch.int64)


for _name, _function in {**OPERATORS, **ROWS}.items():
    torch.library.impl(f"simcore::{_name}", "CUDA")(_function)
