"""The operators for representational dissimilarities: names, shapes of results, CUDA.

On a CUDA device they are operations of torch (`simcore._ops.rsa_composed`).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from simcore._ops.declared import compose, operator
from simcore._ops.rsa_composed import OPERATORS


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


compose(OPERATORS)
