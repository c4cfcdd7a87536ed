"""The operators for nearest rows: names, shapes of results, CUDA.

On a CUDA device they are operations of torch (`simcore._ops.neighbours_composed`).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from simcore._ops.declared import compose, operator
from simcore._ops.neighbours_composed import OPERATORS


@operator
def nearest_rows(
    x: Sequence[Tensor],
    k: int,
    metric: str,
    max_memory: int,
    name: str = "X",
    with_values: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    n, valued = len(x[0]), len(x) if with_values else 0
    index = x[0].new_empty((len(x), n, k), dtype=torch.int32)
    values = x[0].new_empty((valued, n, k), dtype=torch.float64)
    return index, values, x[0].new_empty((valued, n), dtype=torch.float64)


@operator
def list_similarity(x: Tensor, y: Tensor, measure: str, max_memory: int) -> Tensor:
    return x.new_empty((len(x), len(y) or len(x)), dtype=torch.float64)


@operator
def second_order_similarity(
    x: Sequence[Tensor], y: Sequence[Tensor], index_x: Tensor, index_y: Tensor, max_memory: int
) -> Tensor:
    return x[0].new_empty((len(x), len(y) or len(x)), dtype=torch.float64)


@operator
def cknna_terms(
    index_x: Tensor,
    values_x: Tensor,
    own_x: Tensor,
    index_y: Tensor,
    values_y: Tensor,
    own_y: Tensor,
    estimator: str,
    max_memory: int,
) -> tuple[Tensor, Tensor, Tensor]:
    rows, columns = len(index_x), len(index_y) or len(index_x)
    shapes = ((rows, columns), (rows,), (columns,))
    xy, xx, yy = (values_x.new_empty(shape) for shape in shapes)
    return xy, xx, yy


compose(OPERATORS)
