"""Fake kernels of the operators in csrc/torch/schema.cpp, second derivatives of couplings."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from simcore import _C as _C  # loading the extension registers the operators
from simcore import _spectral_cuda as spectral_cuda

hsic_terms = torch.ops.simcore.hsic_terms
permuted_gram_products = torch.ops.simcore.permuted_gram_products
gram_power_sums = torch.ops.simcore.gram_power_sums
median_squared_distances = torch.ops.simcore.median_squared_distances
principal_components = torch.ops.simcore.principal_components
nuclear_norms = torch.ops.simcore.nuclear_norms
best_partners = torch.ops.simcore.best_partners
multiple_correlations = torch.ops.simcore.multiple_correlations
pwcca = torch.ops.simcore.pwcca
standardised_rows = torch.ops.simcore.standardised_rows
rank_moments = torch.ops.simcore.rank_moments
attention_similarity = torch.ops.simcore.attention_similarity
affine_coupling = torch.ops.simcore.affine_coupling
affine_coupling_backward = torch.ops.simcore.affine_coupling_backward


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


@torch.library.register_fake("simcore::principal_components")
def _fake_principal_components(
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


@torch.library.register_fake("simcore::nuclear_norms")
def _fake_nuclear_norms(
    x: Sequence[Tensor], y: Sequence[Tensor], max_memory: int
) -> tuple[Tensor, Tensor, Tensor]:
    rows, columns = len(x), len(y) or len(x)
    xy, norm_x, norm_y = (
        x[0].new_empty(shape, dtype=torch.float64)
        for shape in ((rows, columns), (rows,), (columns,))
    )
    return xy, norm_x, norm_y


@torch.library.register_fake("simcore::small_svd")
def _fake_small_svd(m: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    batch, _, columns = m.shape
    return torch.empty_like(m), m.new_empty(batch, columns), m.new_empty(batch, columns, columns)


@torch.library.register_fake("simcore::best_partners")
def _fake_best_partners(
    x: Sequence[Tensor], y: Sequence[Tensor], keep: bool, max_memory: int
) -> tuple[Tensor, Tensor, Tensor]:
    columns = len(y) or len(x)
    shape = (sum(layer.shape[1] for layer in x) if keep else 0, columns)
    grid = x[0].new_empty((len(x), columns), dtype=torch.float64)
    best = x[0].new_empty(shape, dtype=torch.float64)
    return grid, best, x[0].new_empty(shape, dtype=torch.int64)


@torch.library.register_fake("simcore::multiple_correlations")
def _fake_multiple_correlations(
    x: Sequence[Tensor], y: Sequence[Tensor], max_memory: int
) -> Tensor:
    return x[0].new_empty((len(x), len(y)), dtype=torch.float64)


@torch.library.register_fake("simcore::pwcca")
def _fake_pwcca(
    u_x: Sequence[Tensor], weighted_x: Sequence[Tensor], u_y: Sequence[Tensor], max_memory: int
) -> Tensor:
    return u_x[0].new_empty((len(u_x), len(u_y) or len(u_x)), dtype=torch.float64)


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


@torch.library.register_fake("simcore::attention_similarity")
def _fake_attention_similarity(
    x: Sequence[Tensor],
    y: Sequence[Tensor],
    sentences: int,
    measure: str,
    causal: bool,
    max_memory: int,
) -> Tensor:
    shape = (len(x) // sentences, len(y or x) // sentences)
    return x[0].new_empty(shape, dtype=torch.float64)


def _coupling_dtype(x: Tensor, params: Tensor) -> torch.dtype:
    return torch.promote_types(torch.promote_types(x.dtype, params.dtype), torch.float32)


@torch.library.register_fake("simcore::affine_coupling")
def _fake_affine_coupling(
    x: Tensor, params: Tensor, clamp: float, inverse: bool
) -> tuple[Tensor, Tensor]:
    dtype = _coupling_dtype(x, params)
    return x.new_empty(x.shape, dtype=dtype), x.new_empty(x.shape[:-1], dtype=dtype)


@torch.library.register_fake("simcore::affine_coupling_backward")
def _fake_affine_coupling_backward(
    grad_y: Tensor,
    grad_log_det: Tensor,
    kept: Tensor,
    params: Tensor,
    clamp: float,
    inverse: bool,
) -> tuple[Tensor, Tensor]:
    dtype = _coupling_dtype(kept, params)
    return kept.new_empty(kept.shape, dtype=dtype), params.new_empty(params.shape, dtype=dtype)


def _keep_for_coupling(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    *tensors, ctx.clamp, ctx.inverse = inputs
    ctx.save_for_backward(*tensors)


def _backward_affine_coupling_backward(ctx: Any, a: Tensor, grad_params: Tensor) -> Any:
    """The second derivative, in differentiable operations.

    The first (csrc/torch/coupling_autograd.cpp) is ``(v e, (v x e + l) w, v)``, or inverse
    ``(v e, -(v y + l) w, -v e)``, as functions of ``v = grad_y``, ``l = grad_log_det``, what was
    kept and ``s_raw``; ``e = exp(s)``, inverse ``exp(-s)``, and ``w = ds / ds_raw``. ``(a, b, c)``
    are the cotangents of these three.
    """
    v, l, kept, params = (t.to(a.dtype) for t in ctx.saved_tensors)
    b, c = grad_params.chunk(2, dim=-1)
    s_raw = params.chunk(2, dim=-1)[0]
    l = l.unsqueeze(-1)
    tanh = torch.tanh(s_raw / ctx.clamp)
    w = 1 - tanh.square()
    w_slope = -2 / ctx.clamp * tanh * w
    if ctx.inverse:
        e = torch.exp(-ctx.clamp * tanh)
        a = a - c
        grad_v, grad_l, grad_kept = a * e - b * kept * w, -b * w, -b * v * w
        grad_s_raw = -a * v * e * w - b * (v * kept + l) * w_slope
    else:
        e = torch.exp(ctx.clamp * tanh)
        grad_v, grad_l, grad_kept = a * e + b * kept * e * w + c, b * w, b * v * e * w
        grad_s_raw = a * v * e * w + b * (v * kept * e * w.square() + (v * kept * e + l) * w_slope)
    grad_params = torch.cat([grad_s_raw, torch.zeros_like(grad_s_raw)], dim=-1)
    return grad_v, grad_l.sum(-1), grad_kept, grad_params, None, None


torch.library.register_autograd(
    "simcore::affine_coupling_backward",
    _backward_affine_coupling_backward,
    setup_context=_keep_for_coupling,
)


for _name, _function in spectral_cuda.OPERATORS.items():
    torch.library.impl(f"simcore::{_name}", "CUDA")(_function)
