"""CKA and HSIC as one would write them in a hurry, in the dtype of the input.

`tolerance.allowed` compares the error of the op in float32 with the error of these functions. With
`uncentered=True` they compute the wrong formulas of other packages, which the op must not have.
They are plain torch, so that automatic differentiation gives gradients to compare with.
"""

from __future__ import annotations

import torch


def gram(x: torch.Tensor, kernel: str, *, uncentered: bool = False) -> torch.Tensor:
    if not uncentered:
        x = x - x.mean(dim=0)
    if kernel == "linear":
        return x @ x.T
    distances = torch.stack([(x - row).square().sum(dim=1) for row in x])
    # torch's median takes the lower of the middle two; the definition takes their mean.
    ordered = distances.flatten().sort().values
    median = (ordered[(ordered.numel() - 1) // 2] + ordered[ordered.numel() // 2]) / 2
    return torch.exp(-distances / (2 * median))


def biased(k: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    n = len(k)
    k = k - k.mean(dim=0, keepdim=True)
    k = k - k.mean(dim=1, keepdim=True)
    return (k * m).sum() / (n - 1) ** 2


def unbiased(k: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    n = len(k)
    off = 1 - torch.eye(n, dtype=k.dtype)
    k, m = k * off, m * off
    sums = k.sum() * m.sum() / ((n - 1) * (n - 2))
    rows = 2 / (n - 2) * (k.sum(dim=0) * m.sum(dim=0)).sum()
    return ((k * m).sum() + sums - rows) / (n * (n - 3))


ESTIMATORS = {"biased": biased, "unbiased": unbiased}


def grams(x, y, kernel, uncentered):
    rows = [gram(layer, kernel, uncentered=uncentered) for layer in x]
    return rows, rows if y is None else [gram(v, kernel, uncentered=uncentered) for v in y]


def pairs(rows, columns, estimator):
    hsic = ESTIMATORS[estimator]
    return torch.stack([torch.stack([hsic(k, m) for m in columns]) for k in rows])


def hsic_grid(x, y=None, *, kernel="linear", estimator="biased", uncentered=False):
    return pairs(*grams(x, y, kernel, uncentered), estimator)


def cka_grid(x, y=None, *, kernel="linear", estimator="biased", uncentered=False):
    rows, columns = grams(x, y, kernel, uncentered)
    hsic = ESTIMATORS[estimator]
    xx, yy = (torch.stack([hsic(k, k) for k in side]).sqrt() for side in (rows, columns))
    return pairs(rows, columns, estimator) / (xx[:, None] * yy)
