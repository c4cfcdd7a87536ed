"""One training loop for many independent maps: every parameter has a leading batch dimension.

The pairs share the order of the rows and the optimiser's steps, and nothing else: slice ``[b]`` of
a parameter gets its gradient from pair b alone, and Adam works entry by entry. A pair that is
trained in a batch therefore gives the same map as if it were trained alone, up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from simcore._grid.options import check_choice, check_count, check_number

Optimizer = Literal["adam", "adamw"]
OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
Schedule = Literal["cosine", "exponential"]
Init = Literal["default", "xavier"]
Range = tuple[str, Callable[[float], bool]]  # in words, and as a test
SHARE: Range = ("a share in [0, 1)", lambda v: 0 <= v < 1)
RANGES: dict[str, Range] = {
    "learning_rate": ("more than 0", lambda v: v > 0),
    "weight_decay": ("at least 0", lambda v: v >= 0),
    "warmup": SHARE,
    "decay": ("a factor in (0, 1]", lambda v: 0 < v <= 1),
    "validation_share": SHARE,
}


@dataclass(frozen=True, kw_only=True)
class Training:
    """The training of an `INNAligner`, `MLPAligner` or `GradientLinearAligner`.

    Parameters
    ----------
    optimizer : {"adamw", "adam"}
        `torch.optim.AdamW` or `torch.optim.Adam`.
    learning_rate : float, optional
        Largest learning rate; default: 2e-3 for `INNAligner`, 1e-3 for `MLPAligner`, 3e-3 for
        `GradientLinearAligner`.
    weight_decay : float
        Weight decay of the optimiser, at least 0.
    schedule : {"cosine", "exponential"}
        "cosine": the rate rises linearly and then falls to 0 as half a cosine. "exponential": the
        rate is multiplied by `decay` after every group of steps.
    warmup : float
        Share of all steps over which the rate of "cosine" rises, in [0, 1).
    decay : float
        Factor of "exponential", in (0, 1].
    max_epochs : int
        Largest number of epochs.
    max_steps : int or None
        Number of steps after which training ends, in place of `max_epochs`.
    batch_size : int
        Rows of a step. Rows that do not fill a last batch are left out of the epoch.
    group : int
        Number of successive steps whose gradients add up: they are set to zero once per group. In
        Ren et al.'s code a group is the steps of all layers on the same examples.
    shuffle : bool
        Whether every epoch draws a new order of the rows.
    patience : int
        Number of epochs without a smaller loss on the held-out rows after which training stops.
    validation_share : float
        Share of the rows of `fit` that are held out to decide when to stop, in [0, 1); the state of
        their smallest loss is kept. With 0, training does not stop early, and the last state is
        kept.
    normalize : bool
        Whether the columns of X and Y are scaled to mean 0 and variance 1 for the training.
    init : {"default", "xavier"}
        "xavier" draws all weights and biases from normal distributions of variance
        ``2 / (inputs + outputs)`` instead; the initial map of an `INNAligner` then is not the
        identity.
    seed : int
        Seed of initial weights, held-out rows and row order. The same seed gives the same bits on
        the same machine.
    device : str or torch.device, optional
        Device of the training; default: the device of X. Results are returned on the device of X.

    Raises
    ------
    TypeError, ValueError
        In `fit`: a value out of range.

    Examples
    --------
    >>> from simcore.align import INNAligner, MLPAligner, Training
    >>> short = Training(max_epochs=20)
    >>> aligners = [INNAligner(training=short), MLPAligner(training=short)]
    """

    optimizer: Optimizer = "adamw"
    learning_rate: float | None = None
    weight_decay: float = 1e-2
    schedule: Schedule = "cosine"
    warmup: float = 0.1
    decay: float = 0.99
    max_epochs: int = 100
    max_steps: int | None = None
    batch_size: int = 128
    group: int = 1
    shuffle: bool = True
    patience: int = 20
    validation_share: float = 0.1
    normalize: bool = True
    init: Init = "default"
    seed: int = 0
    device: str | torch.device | None = None

    def _checked(self, learning_rate: float) -> Training:
        """Return the training with numbers as Python's, and a rate where it has none."""
        check_choice(self.optimizer, "optimizer", Optimizer)
        check_choice(self.schedule, "schedule", Schedule)
        check_choice(self.init, "init", Init)
        for name in ("max_epochs", "batch_size", "group", "patience"):
            check_count(getattr(self, name), name)
        if self.max_steps is not None:
            check_count(self.max_steps, "max_steps")
        check_count(self.seed, "seed", least=None)
        rate = learning_rate if self.learning_rate is None else self.learning_rate
        numbers = {"weight_decay": self.weight_decay, "warmup": self.warmup, "decay": self.decay}
        numbers |= {"learning_rate": rate, "validation_share": self.validation_share}
        checked = {
            name: check_number(value, name, *RANGES[name]) for name, value in numbers.items()
        }
        return replace(self, **checked)  # type: ignore[arg-type]

    def _factor(self, step: int, total: int) -> float:
        """Return the learning rate at ``step`` of ``total`` as a factor of `learning_rate`."""
        if self.schedule == "exponential":
            return float(self.decay ** (step // self.group))
        return rate(step, total, self.warmup)


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
        mean over an epoch's steps and starts with epoch 1. ``heldout`` is empty where no rows are
        held out.
    best_epoch : int
        The epoch whose state is kept: the one with the smallest held-out loss, or the last one
        where no rows are held out.
    stopped : {"patience", "epochs", "steps", "nan"}
        The reason why training ended.
    """

    train: tuple[float, ...]
    heldout: tuple[float, ...]
    best_epoch: int
    stopped: str


class _Best:
    """The state to keep of every pair, and the pairs that are still in training."""

    def __init__(self, network: nn.Module, pairs: int, losses: Tensor | None, training: Training):
        self.network, self.patience = network, training.patience
        self.end = "epochs" if training.max_steps is None else "steps"
        self.state = {name: p.detach().clone() for name, p in network.named_parameters()}
        self.judged = losses is not None
        self.losses: list[float] = [math.inf] * pairs if losses is None else losses.tolist()
        self.epochs = [0] * pairs
        wrong = [self.judged and not math.isfinite(loss) for loss in self.losses]
        self.stopped = ["nan" if bad else None for bad in wrong]
        self.train: list[list[float]] = [[] for _ in range(pairs)]
        self.heldout = [[loss] if self.judged else [] for loss in self.losses]

    @property
    def finished(self) -> bool:
        return all(self.stopped)

    def update(self, epoch: int, train: Tensor, heldout: Tensor | None) -> None:
        """Record the losses of one epoch, ``[B]`` each, and the states of pairs that improved."""
        # Where no rows are held out, every epoch of finite weights is an improvement.
        judged = self._finite().tolist() if heldout is None else heldout.tolist()
        for pair, (train_loss, loss) in enumerate(zip(train.tolist(), judged, strict=True)):
            if self.stopped[pair]:
                continue
            self.train[pair].append(train_loss)
            if self.judged:
                self.heldout[pair].append(loss)
            if not (math.isfinite(train_loss) and math.isfinite(loss)):
                self.stopped[pair] = "nan"
            elif not self.judged or loss < self.losses[pair]:
                self.losses[pair], self.epochs[pair] = loss, epoch
                for name, parameter in self.network.named_parameters():
                    self.state[name][pair].copy_(parameter.detach()[pair])
            elif epoch - self.epochs[pair] >= self.patience:
                self.stopped[pair] = "patience"

    def _finite(self) -> Tensor:
        """Return 0 for each pair whose weights are finite, else nan."""
        sums = [
            p.detach().flatten(1).sum(1, dtype=torch.float64) for p in self.network.parameters()
        ]
        return torch.stack(sums).sum(0) * 0.0

    def restore(self) -> list[Log]:
        """Load the kept states into the network and return the logs."""
        with torch.no_grad():
            for name, parameter in self.network.named_parameters():
                parameter.copy_(self.state[name])
        return [
            Log(tuple(train), tuple(heldout), epoch, stopped or self.end)
            for train, heldout, epoch, stopped in zip(
                self.train, self.heldout, self.epochs, self.stopped, strict=True
            )
        ]


def train(
    network: nn.Module,  # a map of [B, n, p] to [B, n, q] whose parameters are all [B, ...]
    data: Data,
    heldout: Data | None,  # the rows that decide when to stop
    training: Training,  # checked
    report: Callable[[float], None],  # called with the finished share of the steps
) -> list[Log]:
    """Train every pair's slice of ``network`` to the state of its smallest held-out loss."""
    # Without held-out rows, the last state is kept. A pair stops if its loss is no longer finite;
    # the others go on.
    n = data.x.shape[1]
    size = min(training.batch_size, n)
    steps = n // size  # a smaller last batch would count its rows more than others
    total = steps * training.max_epochs if training.max_steps is None else training.max_steps
    optimizer = OPTIMIZERS[training.optimizer](
        network.parameters(), lr=training.learning_rate, weight_decay=training.weight_decay
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: training._factor(step, total)
    )
    order = torch.Generator().manual_seed(training.seed)
    judge = _judge(network, heldout)
    best = _Best(network, len(data.x), judge(), training)
    for epoch, start in enumerate(range(0, total, steps), 1):
        if best.finished:
            break
        rows = _order(n, order if training.shuffle else None).to(data.x.device)
        count = min(steps, total - start)
        losses = data.x.new_zeros(len(data.x))
        for step in range(count):
            if (start + step) % training.group == 0:
                optimizer.zero_grad()
            loss = data.losses(network, rows[step * size : (step + 1) * size])
            loss.sum().backward()
            optimizer.step()
            schedule.step()
            losses += loss.detach() / count
        best.update(epoch, losses, judge())
        report((start + count) / total)
    return best.restore()


def _judge(network: nn.Module, heldout: Data | None) -> Callable[[], Tensor | None]:
    """Return a function that gives the held-out losses ``[B]``, or None without such rows."""

    def losses() -> Tensor | None:
        with torch.no_grad():
            return None if heldout is None else heldout.losses(network)

    return losses


def _order(n: int, generator: torch.Generator | None) -> Tensor:
    """Return the order of the rows in one epoch; without a generator, the order as given."""
    return torch.arange(n) if generator is None else torch.randperm(n, generator=generator)


def rate(step: int, total: int, warmup: float) -> float:
    """Return the learning rate at ``step`` over its peak: linear warm-up, cosine decay to 0."""
    first = warmup * total
    if step < first:
        return (step + 1) / (first + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - first) / max(total - first, 1)))
