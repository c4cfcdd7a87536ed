"""The operators for representational dissimilarities: names, shapes of results, CUDA.

On a CUDA device they are operations of torch (`simcore._ops.rsa_composed`).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from simcore._ops.rsa_composed import OPERATORS

standardised_rows = torch.ops.simcore.standardised_rows
rank_moments = torch.ops.simcore.rank_moments


@torch.library.register_fake("simcore::standardised_rows")
def _fake_standardised_rows(
    x: Tensor, dtype: torch.dtype, name: str = "X[0]"
) -> tuple[Tensor, Tensor, Tensor]:
    halves = x.new_empty((x.shape[0],), dtype=torch.float64)
    return x.new_empty(x.shape, dtype=dtype), halves, x.new_empty((), dtype=torch.float64)


@torch.library.register_fake("simcore::rank_moments")
def _fake_rank_moments(
    x: Sequence[Tensor], y: Sequence[Tensor], max_memory: int
) -> tuple[Tensor, ...]:
    rows, columns, layers = len(x), len(y) or len(x), len(x) + len(y)
    shapes = ((rows, columns), (rows,), (columns,), (layers,), (layers,))
    return tuple(x[0].new_empty(shape, dtype=torch.float64) for shape in shapes)


for _name, _function in OPERATORS.items():
    torch.library.impl(f"simcore::{_name}", "CUDA")(_function)
