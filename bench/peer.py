"""The peer: pytorch-cka (bench/requirements.txt), the fastest package for CKA grids.

The peer has only the unbiased minibatch estimator and does not centre; its batch is all rows.
"""

from __future__ import annotations

import functools
import importlib.util

import torch
from torch import Tensor, nn


@functools.cache
def is_installed() -> bool:
    """Return True if the peer can be imported; else the first call prints a line."""
    found = importlib.util.find_spec("cka") is not None
    if not found:
        print("pytorch-cka is not installed and left out: make bench installs it", flush=True)
    return found


def from_features(x: Tensor) -> Tensor:
    """Call the peer's function for features that were extracted before, ``[L, n, p]``."""
    from cka import cka_from_features

    return cka_from_features(x, x)


class _Layers(nn.Module):
    """A model whose layers put out given features, so that its hooks see them at no cost."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.features = x
        self.layers = nn.ModuleList(nn.Identity() for _ in x)

    def forward(self, _: Tensor) -> None:
        for layer, features in zip(self.layers, self.features, strict=True):
            layer(features)


def through_hooks(x: Tensor) -> Tensor:
    """Call the peer's main function: hooks on a model, here a model that hands out ``x``."""
    from cka import compute_cka

    model = _Layers(x)
    names = [f"layers.{i}" for i in range(len(x))]
    batch = torch.empty(x.shape[1], 1)
    (grid,) = compute_cka(model, model, [[batch]], layers=names, device="cpu", progress=False)
    return grid
