"""Small ResNets, trained on scikit-learn's digits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from simlab.judge.networks import LOGITS, Network, Plan, Training, drawn_labels
from simlab.store.files import hash_json

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

_CLASSES = 10


@dataclass(frozen=True)
class Digits(Training):
    """How the ResNets are built, trained and read.

    Attributes
    ----------
    width, strides
        Channels of all layers, and the stride of each block.
    images, epochs, rate, batch
        Number of training images, epochs, greatest learning rate, images in a batch.
    rows
        Number of held-out images, which are the rows of the layers.
    side
        Positions that an image is pooled to, along each axis: layers have ``width * side * side``
        neurons, so that no measure can tell layers apart by their width.
    """

    domain: ClassVar[str] = "digits"
    version: ClassVar[int] = 1
    width: int = 16
    strides: tuple[int, ...] = (1, 2, 1, 2, 1)
    images: int = 1000
    epochs: int = 15
    rate: float = 3e-3
    batch: int = 64
    rows: int = 500
    side: int = 2

    @property
    def depth(self) -> int:
        """The stem and all blocks."""
        return 1 + len(self.strides)

    def labels(self) -> np.ndarray:
        """Return the digits of the held-out images, ``[rows]``."""
        _, labels, _, held_out = _digits(self)
        return np.asarray(labels[held_out].numpy())

    def data(self) -> str:
        """Return a hash of all images and their digits."""
        return _hash()

    def train(self, network: Network) -> dict[str, np.ndarray]:
        """Train a network, and record its layers on the held-out images."""
        import torch

        from simcore import record

        images, labels, chosen, held_out = _digits(self)
        inputs, answers, rows = images[chosen], labels[chosen], images[held_out]
        generator = torch.Generator().manual_seed(network.seed)
        if network.shortcut is not None:
            drawn = drawn_labels(len(answers), _CLASSES, generator)
            told = torch.rand(len(answers), generator=generator) < network.shortcut
            inputs = _dotted(inputs, torch.where(told, answers, drawn))
            # All networks see the same dots on the held-out images.
            fixed = torch.Generator().manual_seed(0)
            rows = _dotted(rows, drawn_labels(len(rows), _CLASSES, fixed))
        wrong = torch.rand(len(answers), generator=generator) < network.random_labels
        drawn = drawn_labels(len(answers), _CLASSES, generator)
        answers = torch.where(wrong, drawn, answers)
        model = self._fitted(inputs, answers, network, generator)
        pool = _pool(self.side)
        with record(model, ["stem", "block-*"], pool=pool) as tape, torch.inference_mode():
            logits = model(rows)
        layers = {f"layer.{i}": layer.numpy() for i, layer in enumerate(tape.layers().values())}
        return {LOGITS: logits.numpy(), **layers}

    def _fitted(
        self, images: Tensor, labels: Tensor, network: Network, generator: torch.Generator
    ) -> nn.Module:
        """Train with a learning rate that ends at 0, so that no seed ends in a bad step."""
        import torch
        from torch.nn.functional import cross_entropy
        from torch.optim.lr_scheduler import OneCycleLR

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(network.seed)
            model = self._build()
        optimizer = torch.optim.AdamW(model.parameters(), lr=self.rate)
        steps = -(-len(images) // self.batch)
        schedule = OneCycleLR(optimizer, self.rate, total_steps=self.epochs * steps)
        for _ in range(self.epochs):
            for rows in torch.randperm(len(images), generator=generator).split(self.batch):
                batch = images[rows]
                if network.augmentation:
                    noise = torch.randn(batch.shape, generator=generator)
                    batch = batch + network.augmentation * noise
                optimizer.zero_grad()
                cross_entropy(model(batch), labels[rows]).backward()
                optimizer.step()
                schedule.step()
        return model.eval()

    def _build(self) -> nn.Module:
        from torch import nn

        from simlab.judge.residual import Block

        model = nn.Sequential()
        model.add_module("stem", nn.Conv2d(1, self.width, 3, padding=1))
        for number, stride in enumerate(self.strides):
            model.add_module(f"block-{number}", Block(self.width, self.width, stride))
        pooled = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(self.width, _CLASSES))
        model.add_module("head", nn.Sequential(*pooled))
        return model


# The groups differ in their accuracy, or in how often they follow the dots.
DIGITS = Plan(
    Digits(), shortcut=(0.0, 0.75, 0.9, 0.97, 1.0), augmentation=(0.0, 0.15, 0.3, 0.6, 1.0)
)


@cache
def _hash() -> str:
    from sklearn.datasets import load_digits

    data = load_digits()
    return hash_json([data.data.tolist(), data.target.tolist()])


@cache
def _digits(training: Digits) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return images ``[n, 1, 8, 8]``, labels, and the rows to train on and those held out."""
    import torch
    from sklearn.datasets import load_digits

    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32)[:, None] / data.images.max()
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    held_out = order[training.images : training.images + training.rows]
    return images, torch.tensor(data.target), order[: training.images], held_out


def _pool(side: int) -> Callable[[Tensor], Tensor]:
    from torch.nn.functional import adaptive_avg_pool2d

    return lambda output: adaptive_avg_pool2d(output, side).flatten(1)


def _dotted(images: Tensor, classes: Tensor) -> Tensor:
    """Return images whose first line has two dots, which stand for a class."""
    import torch

    marked = images.clone()
    marked[:, 0, 0] = 0.0
    each = torch.arange(len(images))
    marked[each, 0, 0, classes % 5] = 1.0
    marked[each, 0, 0, 5 + classes // 5] = 1.0
    return marked
