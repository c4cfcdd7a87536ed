"""CKA grids as one writes them in plain torch, each as fast as ten lines can be.

All functions centre first, take a stack ``[L, n, p]`` and return ``[L, L]`` in its dtype,
or in float64 (`gram_pairs`).
"""

from __future__ import annotations

import torch
from torch import Tensor


def _normalize(hsic: Tensor) -> Tensor:
    scale = hsic.diagonal().sqrt()
    return hsic / (scale[:, None] * scale[None, :])


def _u_center(grams: Tensor) -> Tensor:
    """U-centre, so that the unbiased HSIC is a plain inner product (Szekely & Rizzo 2014)."""
    n = grams.shape[-1]
    grams.diagonal(dim1=-2, dim2=-1).zero_()
    rows = grams.sum(dim=-1) / (n - 2)
    total = rows.sum(dim=-1) / (n - 1)
    grams -= rows[:, :, None] + rows[:, None, :] - total[:, None, None]
    grams.diagonal(dim1=-2, dim2=-1).zero_()
    return grams


def gram(x: Tensor) -> Tensor:
    """Gram once per layer, then one matrix product: L n^2 floats of memory."""
    x = x - x.mean(dim=1, keepdim=True)
    flat = torch.bmm(x, x.mT).flatten(1)
    return _normalize(flat @ flat.T)


def float16_product(a: Tensor, b: Tensor) -> Tensor:
    """Return ``A B'`` of two float16 batches in float32."""
    if a.device.type == "cuda":
        return torch.bmm(a, b.mT, out_dtype=torch.float32)
    return a.float() @ b.float().mT


def _pair(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return two float16 factors; the symmetric part of their product is ``x x'`` to 22 bits.

    ``[h, h]`` and ``[h, 2 l]`` for ``x = h + l``: without ``l l'``, which is below those bits.
    """
    high = x.half()
    return torch.cat([high, high], -1), torch.cat([high, ((x - high) * 2).half()], -1)


def _to_one(square: Tensor) -> Tensor:
    """Return the power of two that brings numbers of this mean square near 1."""
    return torch.exp2(-square.sqrt().log2().round())


def gram_pairs(x: Tensor, depth: int = 65536) -> Tensor:
    """`gram` by products of float16 pairs: what cuBLAS does of the arithmetic of our kernels.

    Diagonals, which would lose their low bits to the scale of the other entries, are added apart;
    sums over more than ``depth`` pairs of rows are of float64.
    """
    x = x - x[:, :1]
    x = x - x.mean(dim=1, keepdim=True)
    x = x * _to_one(x.square().mean(dim=(1, 2), keepdim=True))
    norms = x.double().square().sum(dim=2)
    grams = float16_product(*_pair(x))
    grams.diagonal(dim1=1, dim2=2).zero_()
    scale = _to_one(grams.square().mean(dim=(1, 2), keepdim=True))
    flat = (grams * scale).flatten(1)
    parts = torch.nn.functional.pad(flat, (0, -flat.shape[1] % depth)).unflatten(1, (-1, depth))
    hsic = float16_product(*_pair(parts.transpose(0, 1))).sum(dim=0, dtype=torch.float64)
    diagonals = norms * scale.flatten()[:, None]
    return _normalize((hsic + hsic.T) / 2 + diagonals @ diagonals.T)


def gram_unbiased(x: Tensor) -> Tensor:
    """`gram` with the unbiased estimator."""
    x = x - x.mean(dim=1, keepdim=True)
    flat = _u_center(torch.bmm(x, x.mT)).flatten(1)
    return _normalize(flat @ flat.T)


def gram_rbf(x: Tensor) -> Tensor:
    """`gram` with the RBF kernel; torch's median takes the lower of the middle two."""
    x = x - x.mean(dim=1, keepdim=True)
    k = torch.bmm(x, x.mT)
    norms = k.diagonal(dim1=-2, dim2=-1)
    k = (norms[:, :, None] + norms[:, None, :] - 2 * k).clamp_(min=0)
    median = k.flatten(1).median(dim=1).values
    k = torch.exp_(k.mul_(-0.5 / median[:, None, None]))
    k -= k.mean(dim=1, keepdim=True)
    k -= k.mean(dim=2, keepdim=True)
    return _normalize(k.flatten(1) @ k.flatten(1).T)


def tiled(x: Tensor, rows: int = 128) -> Tensor:
    """Row blocks of all Grams against the columns from the diagonal on: half the work, less memory.

    A block right of the diagonal stands for its mirror image too, so its products count twice.
    """
    x = x - x.mean(dim=1, keepdim=True)
    hsic = x.new_zeros(len(x), len(x))
    for start in range(0, x.shape[1], rows):
        block = x[:, start : start + rows]
        flat = torch.bmm(block, block.mT).flatten(1)
        hsic += flat @ flat.T
        rest = x[:, start + rows :]
        if rest.shape[1]:
            flat = torch.bmm(block, rest.mT).flatten(1)
            hsic += 2 * (flat @ flat.T)
    return _normalize(hsic)


def tiled_small(x: Tensor) -> Tensor:
    """`tiled` for many layers: its blocks stay within a few hundred megabytes."""
    return tiled(x, rows=32)


def feature(x: Tensor) -> Tensor:
    """All cross-covariances of all layers in one product: [L p, L p] floats of memory."""
    count, n, width = x.shape
    x = x - x.mean(dim=1, keepdim=True)
    wide = x.permute(1, 0, 2).reshape(n, count * width)
    covariance = wide.T @ wide
    blocks = covariance.view(count, width, count, width)
    return _normalize(blocks.square().sum(dim=(1, 3)))


def feature_rows(x: Tensor) -> Tensor:
    """`feature` one layer against the later ones at a time: half the work, less memory."""
    x = x - x.mean(dim=1, keepdim=True)
    hsic = x.new_zeros(len(x), len(x))
    for i, layer in enumerate(x):
        hsic[i, i:] = torch.matmul(layer.T, x[i:]).square().sum(dim=(1, 2))
    return _normalize(hsic + hsic.triu(1).T)


def feature_chunks(x: Tensor, rows: int = 4096) -> Tensor:
    """`feature_rows` of 16-bit layers, ``rows`` rows of which are float32 at a time."""
    count, n, width = x.shape
    chunks = range(0, n, rows)
    mean = sum(x[:, at : at + rows].float().sum(dim=1) for at in chunks) / n
    covariance = torch.zeros(count, count, width, width)
    for at in chunks:
        chunk = x[:, at : at + rows].float() - mean[:, None]
        for i, layer in enumerate(chunk):
            covariance[i, i:] += torch.matmul(layer.T, chunk[i:])
    hsic = covariance.square().sum(dim=(2, 3))
    return _normalize(hsic + hsic.triu(1).T)
