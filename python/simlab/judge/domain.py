"""Train a network of the benchmark: its rows with their change, the optimiser, and the record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

LOGITS = "logits"


@dataclass(frozen=True)
class Network:
    """A network of the benchmark: its seed, and the change of its training rows."""

    seed: int
    random_labels: float = 0.0  # share of the training rows whose label is drawn at random
    # Share of the training rows with a mark that tells their class; the marks of all others, and of
    # the held-out rows, are drawn at random. None: rows have no mark.
    shortcut: float | None = None
    # Strength of the noise that each training row gets, drawn anew in each epoch.
    augmentation: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Training(ABC):
    """How the networks of a domain are built, trained and read."""

    domain: ClassVar[str]
    version: ClassVar[int] = 1  # raise it where networks of the same fields come out otherwise
    classes: ClassVar[int]
    epochs: int
    rate: float  # the greatest learning rate
    batch: int = 64  # rows in a batch
    rows: int = 500  # held-out rows, which are the rows of the layers

    @property
    @abstractmethod
    def depth(self) -> int:
        """The number of layers of a network."""

    @abstractmethod
    def labels(self) -> np.ndarray:
        """Return the classes of the held-out rows, ``[rows]``."""

    @abstractmethod
    def data(self) -> str:
        """Return a hash of the training rows and the held-out rows."""

    @abstractmethod
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the training rows, their classes, and the held-out rows."""

    @abstractmethod
    def marked(self, inputs: Tensor, classes: Tensor) -> Tensor:
        """Return rows with a mark that stands for a class."""

    @abstractmethod
    def disturbed(self, batch: Tensor, strength: float, generator: torch.Generator) -> Tensor:
        """Return a batch with noise."""

    @abstractmethod
    def build(self) -> nn.Module:
        """Return a network with new weights."""

    @abstractmethod
    def answer(self, model: nn.Module, batch: Tensor) -> Tensor:
        """Return the logits of a batch."""

    @abstractmethod
    def read(self, model: nn.Module, inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the logits of rows, and every layer ``[rows, neurons]``."""

    def train(self, network: Network) -> dict[str, np.ndarray]:
        """Return `LOGITS` and the layers of a trained network, ``layer.0`` and so on."""
        import torch

        inputs, answers, rows = self.tensors()
        generator = torch.Generator().manual_seed(network.seed)
        if network.shortcut is not None:
            drawn = self._drawn(len(answers), generator)
            told = torch.rand(len(answers), generator=generator) < network.shortcut
            inputs = self.marked(inputs, torch.where(told, answers, drawn))
            # All networks see the same marks on the held-out rows.
            fixed = torch.Generator().manual_seed(0)
            rows = self.marked(rows, self._drawn(len(rows), fixed))
        wrong = torch.rand(len(answers), generator=generator) < network.random_labels
        drawn = self._drawn(len(answers), generator)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(network.seed)  # of the weights and of dropout
            model = self._fitted(inputs, torch.where(wrong, drawn, answers), network, generator)
        with torch.inference_mode():
            logits, layers = self.read(model, rows)
        numbered = {f"layer.{number}": layer.numpy() for number, layer in enumerate(layers)}
        return {LOGITS: logits.numpy(), **numbered}

    def _fitted(
        self, inputs: Tensor, labels: Tensor, network: Network, generator: torch.Generator
    ) -> nn.Module:
        """Train with a learning rate that ends at 0, so that no seed ends in a bad step."""
        import torch
        from torch.nn.functional import cross_entropy
        from torch.optim.lr_scheduler import OneCycleLR

        model = self.build().train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=self.rate)
        steps = -(-len(inputs) // self.batch)
        schedule = OneCycleLR(optimizer, self.rate, total_steps=self.epochs * steps)
        for _ in range(self.epochs):
            for rows in torch.randperm(len(inputs), generator=generator).split(self.batch):
                batch = inputs[rows]
                if network.augmentation:
                    batch = self.disturbed(batch, network.augmentation, generator)
                optimizer.zero_grad()
                cross_entropy(self.answer(model, batch), labels[rows]).backward()
                optimizer.step()
                schedule.step()
        return model.eval()

    def _drawn(self, count: int, generator: torch.Generator) -> Tensor:
        """Return classes that are drawn at random, ``[count]``."""
        import torch

        return torch.randint(self.classes, (count,), generator=generator)
