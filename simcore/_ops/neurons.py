"""The operators for correlations of single neurons: names, shapes of results, CUDA.

On a CUDA device all are composed of torch's operations (`simcore._ops.partners_composed`,
`simcore._ops.neurons_composed`), except `best_assignments`, which is for the host.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from simcore._extension import PURE
from simcore._ops import neurons_composed, partners_composed
from simcore._ops.declared import compose, operator


@operator
def best_partners(
    x: Sequence[Tensor], y: Sequence[Tensor], keep: bool, max_memory: int
) -> tuple[Tensor, Tensor, Tensor]:
    columns = len(y) or len(x)
    shape = (sum(layer.shape[1] for layer in x) if keep else 0, columns)
    grid = x[0].new_empty((len(x), columns), dtype=torch.float64)
    best = x[0].new_empty(shape, dtype=torch.float64)
    return grid, best, x[0].new_empty(shape, dtype=torch.int64)


@operator
def multiple_correlations(x: Sequence[Tensor], y: Sequence[Tensor], max_memory: int) -> Tensor:
    return x[0].new_empty((len(x), len(y)), dtype=torch.float64)


@operator
def match_neurons(
    x: Sequence[Tensor], y: Sequence[Tensor], matching: str, score: str, max_memory: int
) -> Tensor:
    return x[0].new_empty((len(x), len(y) or len(x)), dtype=torch.float64)


@operator
def best_assignments(gains: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    return gains.new_empty(gains.shape[:2], dtype=torch.int64)


compose({**partners_composed.OPERATORS, **neurons_composed.OPERATORS})
if PURE:
    compose({"best_assignments": neurons_composed.best_assignments}, ("CPU",))
