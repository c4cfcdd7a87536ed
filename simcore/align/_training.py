"""One training loop for many independent maps: every parameter has a leading batch dimension.

The pairs share the order of the rows and the optimiser's steps, and nothing else: slice ``[b]`` of
a parameter gets its gradient from pair b alone, and Adam works entry by entry. A pair that is
trained in a batch therefore gives the same map as if it were trained alone, up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from simcore._grid.options import check_choice, check_count

OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


@dataclass(frozen=True)
class Recipe:
    """The options of training; see the parameters of `INNAligner` and `MLPAligner`."""

    optimizer: str
    learning_rate: float
    weight_decay: float
    warmup: float
    max_epochs: int
    batch_size: int
    patience: int
    seed: int

    def check(self) -> None:
        """Raise a TypeError or ValueError that names the first parameter out of range."""
        check_choice(self.optimizer, "optimizer", tuple(OPTIMIZERS))
        for name in ("max_epochs", "batch_size", "patience"):
            check_count(getattr(self, name), name)
        check_count(self.seed, "seed", least=None)
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate: wanted more than 0, got {self.learning_rate!r}")
        if not self.weight_decay >= 0:
            raise ValueError(f"weight_decay: wanted at least 0, got {self.weight_decay!r}")
        if not 0 <= self.warmup < 1:
            raise ValueError(f"warmup: wanted a share in [0, 1), got {self.warmup!r}")


@dataclass(frozen=True)
class Data:
    """Rows ``x [B, n, p]`` and ``y [B, n, q]`` of B pairs, and error weights ``[B, 1, q]``."""

    x: Tensor
    y: Tensor
    weights: Tensor

    def losses(self, network: nn.Module, rows: Tensor | slice = slice(None)) -> Tensor:
        """Return the weighted mean squared error of every pair, ``[B]``."""
        errors = network(self.x[:, rows]) - self.y[:, rows]
        return (errors.square() * self.weights).mean((1, 2))


@dataclass(frozen=True)
class Log:
    """The course of the training of one pair.

    Attributes
    ----------
    train, heldout : tuple of float
        Losses by epoch. ``heldout`` starts with epoch 0, the untrained network; ``train`` holds the
        mean over an epoch's steps and starts with epoch 1.
    best_epoch : int
        The epoch of the smallest held-out loss, whose state is kept.
    stopped : {"patience", "epochs", "nan"}
        The reason why training ended.
    """

    train: tuple[float, ...]
    heldout: tuple[float, ...]
    best_epoch: int
    stopped: str


class _Best:
    """The best state of every pair so far, and the pairs that are still in training."""

    def __init__(self, network: nn.Module, losses: Tensor, patience: int) -> None:
        self.network, self.patience = network, patience
        self.state = {name: p.detach().clone() for name, p in network.named_parameters()}
        self.losses: list[float] = losses.tolist()
        self.epochs = [0] * len(losses)
        self.stopped = [None if math.isfinite(loss) else "nan" for loss in self.losses]
        self.train: list[list[float]] = [[] for _ in losses]
        self.heldout = [[loss] for loss in self.losses]

    @property
    def finished(self) -> bool:
        """Whether no pair is left in training."""
        return all(self.stopped)

    def update(self, epoch: int, train: Tensor, heldout: Tensor) -> None:
        """Record the losses of one epoch, ``[B]`` each, and the states of pairs that improved."""
        pairs = zip(train.tolist(), heldout.tolist(), strict=True)
        for pair, (train_loss, heldout_loss) in enumerate(pairs):
            if self.stopped[pair]:
                continue
            self.train[pair].append(train_loss)
            self.heldout[pair].append(heldout_loss)
            if not (math.isfinite(train_loss) and math.isfinite(heldout_loss)):
                self.stopped[pair] = "nan"
            elif heldout_loss < self.losses[pair]:
                self.losses[pair], self.epochs[pair] = heldout_loss, epoch
                for name, parameter in self.network.named_parameters():
                    self.state[name][pair].copy_(parameter.detach()[pair])
            elif epoch - self.epochs[pair] >= self.patience:
                self.stopped[pair] = "patience"

    def restore(self) -> list[Log]:
        """Load the best states into the network and return the logs."""
        with torch.no_grad():
            for name, parameter in self.network.named_parameters():
                parameter.copy_(self.state[name])
        return [
            Log(tuple(train), tuple(heldout), epoch, stopped or "epochs")
            for train, heldout, epoch, stopped in zip(
                self.train, self.heldout, self.epochs, self.stopped, strict=True
            )
        ]


def train(
    network: nn.Module,
    data: Data,
    heldout: Data,
    recipe: Recipe,
    report: Callable[[float], None],
) -> list[Log]:
    """Train every pair's slice of ``network`` to the state of its smallest held-out loss.

    The learning rate rises linearly over the first ``warmup`` share of all steps and falls to 0 as
    half a cosine. A pair stops if its loss is no longer finite; the others go on.

    Parameters
    ----------
    network : Module
        A map of ``[B, n, p]`` to ``[B, n, q]`` whose parameters are all ``[B, ...]``.
    data, heldout : Data
        The rows to learn from, and the rows that decide when to stop.
    report : callable
        A function that is called with the finished share of the epochs.
    """
    n = data.x.shape[1]
    size = min(recipe.batch_size, n)
    steps = n // size  # a smaller last batch would count its rows more than others
    optimizer = OPTIMIZERS[recipe.optimizer](
        network.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: rate(step, steps * recipe.max_epochs, recipe.warmup)
    )
    order = torch.Generator().manual_seed(recipe.seed)
    with torch.no_grad():
        best = _Best(network, heldout.losses(network), recipe.patience)
    for epoch in range(1, recipe.max_epochs + 1):
        if best.finished:
            break
        total = data.x.new_zeros(len(data.x))
        rows = torch.randperm(n, generator=order).to(data.x.device)
        for step in range(steps):
            losses = data.losses(network, rows[step * size : (step + 1) * size])
            optimizer.zero_grad()
            losses.sum().backward()
            optimizer.step()
            schedule.step()
            total += losses.detach() / steps
        with torch.no_grad():
            best.update(epoch, total, heldout.losses(network))
        report(epoch / recipe.max_epochs)
    return best.restore()


def rate(step: int, total: int, warmup: float) -> float:
    """Return the learning rate at ``step`` over its peak: linear warm-up, cosine decay to 0."""
    first = warmup * total
    if step < first:
        return (step + 1) / (first + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - first) / max(total - first, 1)))
