"""Small ResNets, trained on scikit-learn's digits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from simlab.judge.domain import Training
from simlab.judge.networks import Plan
from simlab.store.files import hash_json

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class Digits(Training):
    """How the ResNets are built, trained and read."""

    domain: ClassVar[str] = "digits"
    classes: ClassVar[int] = 10
    epochs: int = 15
    rate: float = 3e-3
    width: int = 16  # channels of all layers
    strides: tuple[int, ...] = (1, 2, 1, 2, 1)  # of each block
    images: int = 1000  # for training
    # Positions that an image is pooled to, along each axis: layers have `width * side * side`
    # neurons, so that no measure can tell layers apart by their width.
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

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return training images, their digits, and the held-out images."""
        images, labels, chosen, held_out = _digits(self)
        return images[chosen], labels[chosen], images[held_out]

    def marked(self, inputs: Tensor, classes: Tensor) -> Tensor:
        """Return images whose first line has two dots, which stand for a class."""
        import torch

        dotted = inputs.clone()
        dotted[:, 0, 0] = 0.0
        each = torch.arange(len(inputs))
        dotted[each, 0, 0, classes % 5] = 1.0
        dotted[each, 0, 0, 5 + classes // 5] = 1.0
        return dotted

    def disturbed(self, batch: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        """Return images with normal noise."""
        import torch

        return batch + strength * torch.randn(batch.shape, generator=generator)

    def build(self) -> nn.Module:
        """Return a ResNet with new weights."""
        from torch import nn

        from simlab.judge.residual import Block

        model = nn.Sequential()
        model.add_module("stem", nn.Conv2d(1, self.width, 3, padding=1))
        for number, stride in enumerate(self.strides):
            model.add_module(f"block-{number}", Block(self.width, self.width, stride))
        pooled = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(self.width, self.classes))
        model.add_module("head", nn.Sequential(*pooled))
        return model

    def answer(self, model: nn.Module, batch: Tensor) -> Tensor:
        """Return the logits of images."""
        logits: Tensor = model(batch)
        return logits

    def read(self, model: nn.Module, inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the logits of images, and the pooled layers."""
        from simcore import record

        with record(model, ["stem", "block-*"], pool=_pool(self.side)) as tape:
            logits = model(inputs)
        return logits, list(tape.layers().values())


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
