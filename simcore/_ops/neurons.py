"""The operators for correlations of single neurons: names, and shapes of results.

All but `best_assignments`, which is for the host, are composed of torch's operations on every
device (`simcore._ops.partners_composed`, `simcore._ops.neurons_composed`).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from simcore._extension import PURE
from simcore._ops import neurons_composed, partners_composed
from simcore._ops.declared import compose, operator


# Mean over neurons of max_k' |pearson(x_k, y_k')|: grid [Lx, Ly] float64; with keep also, for every
# neuron of every layer of x (rows, layers one after another) and every layer of y, that value
# (float64, nan where undefined) and the first such k' (int64, -1), else without rows. y empty: x
# with itself.
@operator
def best_partners(
    x: Sequence[Tensor], y: Sequence[Tensor], keep: bool, max_memory: int
) -> tuple[Tensor, Tensor, Tensor]:
    columns = len(y) or len(x)
    shape = (sum(layer.shape[1] for layer in x) if keep else 0, columns)
    grid = x[0].new_empty((len(x), columns), dtype=torch.float64)
    best = x[0].new_empty(shape, dtype=torch.float64)
    return grid, best, x[0].new_empty(shape, dtype=torch.int64)


# Mean over neurons of ||y_j' x_k|| / ||x_k||, centred columns: [Lx, Ly] float64.
@operator
def multiple_correlations(x: Sequence[Tensor], y: Sequence[Tensor], max_memory: int) -> Tensor:
    return x[0].new_empty((len(x), len(y)), dtype=torch.float64)


# Layers whose neurons are matched, [Lx, Ly] float64; y empty: x with itself. matching "best" (score
# "correlation": mean of both directions' best) | "one-to-one" (score "correlation": mean of the
# assignment; "distance": of the layers, not centred; "angular": its angle).
@operator
def match_neurons(
    x: Sequence[Tensor], y: Sequence[Tensor], matching: str, score: str, max_memory: int
) -> Tensor:
    return x[0].new_empty((len(x), len(y) or len(x)), dtype=torch.float64)


# Declared in csrc/torch/schema.cpp.
@operator
def best_assignments(gains: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    return gains.new_empty(gains.shape[:2], dtype=torch.int64)


compose({**partners_composed.OPERATORS, **neurons_composed.OPERATORS}, ("CPU", "CUDA"))
if PURE:
    compose({"best_assignments": neurons_composed.best_assignments}, ("CPU",))
