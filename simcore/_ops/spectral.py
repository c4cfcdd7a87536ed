"""The operators that decompose layers and their cross-products: names, shapes of results, CUDA.

On the CPU these operators are written in C++ (csrc/torch); on a CUDA device they are batches of
torch's own matrix products (`simcore._ops.spectral_batched`, `simcore._ops.aligned_composed`).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from simcore._ops.aligned_composed import OPERATORS as ALIGNED
from simcore._ops.declared import compose, operator
from simcore._ops.spectral_batched import OPERATORS


@operator
def principal_components(
    x: Sequence[Tensor], standardize: bool
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    u, s, vt = [], [], []
    for layer in x:
        n, p = layer.shape
        dtype = torch.float64 if layer.dtype == torch.float64 else torch.float32
        u.append(layer.new_empty((n, min(n, p)), dtype=dtype))
        s.append(layer.new_empty((min(n, p),), dtype=torch.float64))
        vt.append(layer.new_empty((min(n, p), p), dtype=dtype))
    return u, s, vt


@operator
def nuclear_norms(
    x: Sequence[Tensor], y: Sequence[Tensor], max_memory: int
) -> tuple[Tensor, Tensor, Tensor]:
    rows, columns = len(x), len(y) or len(x)
    xy, norm_x, norm_y = (
        x[0].new_empty(shape, dtype=torch.float64)
        for shape in ((rows, columns), (rows,), (columns,))
    )
    return xy, norm_x, norm_y


@operator
def small_svd(m: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    batch, _, columns = m.shape
    return torch.empty_like(m), m.new_empty(batch, columns), m.new_empty(batch, columns, columns)


@operator
def pwcca(
    u_x: Sequence[Tensor], weighted_x: Sequence[Tensor], u_y: Sequence[Tensor], max_memory: int
) -> tuple[Tensor, Tensor]:
    shape = len(u_x), len(u_y) or len(u_x)
    values, errors = (u_x[0].new_empty(shape, dtype=torch.float64) for _ in range(2))
    return values, errors


@operator
def aligned_cosines(
    x: Sequence[Tensor], y: Sequence[Tensor], max_memory: int
) -> tuple[Tensor, Tensor]:
    shape = len(x), len(y) or len(x)
    values, errors = (x[0].new_empty(shape, dtype=torch.float64) for _ in range(2))
    return values, errors


compose({**OPERATORS, **ALIGNED})
