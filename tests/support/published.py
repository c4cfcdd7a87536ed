"""The training loop of Ren et al.'s code, written in plain torch after its description."""

from __future__ import annotations

import torch
from torch import nn

from simcore.align import GradientLinearAligner
from support.trained import trained


def published_loop(module, x, y, *, steps, batch, rate=1e-6):
    """Train ``module``: a step for each layer of a batch, gradients set to zero once a batch.

    ``x`` and ``y`` are rows of all layers, ``[layers, n, p]``; each epoch reads them in order.
    """
    optimizer = torch.optim.Adam(module.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.99)
    for step in range(steps):
        start = step * batch % (x.shape[1] // batch * batch)
        optimizer.zero_grad()
        for layer_x, layer_y in zip(x, y, strict=True):
            rows = slice(start, start + batch)
            nn.functional.mse_loss(module(layer_x[rows]), layer_y[rows]).backward()
            optimizer.step()
        schedule.step()


def untrained(x, y, **params) -> nn.Linear:
    """Return a plain linear layer with the initial weights of a `GradientLinearAligner`."""
    params = {**params, "max_steps": 1, "learning_rate": 1e-12}
    start = GradientLinearAligner(**trained(**params)).fit(x, y).network_
    plain = nn.Linear(x.shape[1], y.shape[1], dtype=x.dtype)
    with torch.no_grad():
        plain.weight.copy_(start.weight[0].T)
        plain.bias.copy_(start.bias[0])
    return plain
