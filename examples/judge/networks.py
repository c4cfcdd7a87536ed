"""Which networks measures are judged on, how they are trained, and what they say of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import joblib
import numpy as np
import torch
from rich.progress import track
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, relu

VERSION = 1  # raise it where the same networks or the same measures come out otherwise
CHANGES = ("random labels", "shortcut", "augmentation")


class Block(nn.Module):
    """Two convolutions beside a shortcut, in the ResNets here and in those of the studies."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(before, after, 3, stride, padding=1)
        self.two = nn.Conv2d(after, after, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(after) for _ in range(2))
        self.shortcut = nn.Conv2d(before, after, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return [b, after, height / stride, width / stride]."""
        inner = relu(self.norms[0](self.one(x)))
        return relu(self.shortcut(x) + self.norms[1](self.two(inner)))


@dataclass(frozen=True)
class Network:
    """A network of the benchmark: its seed, and the change of its training rows."""

    seed: int
    random_labels: float = 0.0  # share of the training rows whose label is drawn at random
    # Share of the training rows with a mark that tells their class; the marks of all others, and of
    # the held-out rows, are drawn at random. None: rows have no mark.
    shortcut: float | None = None
    augmentation: float = 0.0  # strength of the noise of training rows, drawn anew in each epoch


class Recorded(NamedTuple):
    """The layers [rows, neurons] and logits of a network on the held-out rows, and its accuracy."""

    layers: list[np.ndarray]
    logits: np.ndarray
    accuracy: float


@dataclass(frozen=True, kw_only=True)
class Domain:
    """Which networks there are, and how they are built, trained and read.

    A domain has the methods `tensors` (training rows, their classes, held-out rows, their classes),
    `marked` (rows with a mark for a class), `disturbed` (a batch with noise), `build` (a new
    network), `answer` (logits of a batch) and `read` (logits and every layer of rows).
    """

    name: ClassVar[str]
    classes: ClassVar[int]
    epochs: int
    rate: float  # the greatest learning rate
    batch: int = 64  # rows in a batch
    rows: int = 500  # held-out rows, which are the rows of the layers
    seeds: int = 10  # number of networks that differ in their seed alone
    members: int = 5  # number of networks in each group: each strength of a change makes a group
    random_labels: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    shortcut: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    augmentation: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)

    @property
    def plain(self) -> list[Network]:
        """The networks that differ in their seed alone."""
        return [Network(seed) for seed in range(self.seeds)]

    @property
    def groups(self) -> dict[str, list[list[Network]]]:
        """The groups of networks of each change; no two networks share a seed."""
        found = {}
        for number, name in enumerate(CHANGES, 1):
            field, found[name] = name.replace(" ", "_"), []
            for place, level in enumerate(getattr(self, field)):
                seeds = [1000 * number + 100 * place + seed for seed in range(self.members)]
                changed = [Network(seed, **{field: level}) for seed in seeds]
                unchanged = not level and name != "shortcut"
                found[name].append(self.plain[: self.members] if unchanged else changed)
        return found

    def data(self) -> str:
        """Return a hash of all rows."""
        return joblib.hash([VERSION, *(part.numpy() for part in self.tensors())])

    def recorded(self, memory: joblib.Memory) -> dict[Network, Recorded]:
        """Return what every network says; train those that are not in memory."""
        data = self.data()
        grouped = (one for groups in self.groups.values() for group in groups for one in group)
        networks = dict.fromkeys([*self.plain, *grouped])
        kept = memory.cache(train)
        return {one: kept(self, one, data) for one in track(networks, f"{self.name}: networks")}


def train(domain: Domain, network: Network, data: str) -> Recorded:
    """Return what a trained network says; `data`, the hash of all rows, is for the cache."""
    inputs, answers, rows, right = domain.tensors()
    generator = torch.Generator().manual_seed(network.seed)

    def drawn(count: int, generator: torch.Generator) -> Tensor:
        return torch.randint(domain.classes, (count,), generator=generator)

    if network.shortcut is not None:
        others = drawn(len(answers), generator)
        told = torch.rand(len(answers), generator=generator) < network.shortcut
        inputs = domain.marked(inputs, torch.where(told, answers, others))
        # All networks see the same marks on the held-out rows.
        rows = domain.marked(rows, drawn(len(rows), torch.Generator().manual_seed(0)))
    wrong = torch.rand(len(answers), generator=generator) < network.random_labels
    labels = torch.where(wrong, drawn(len(answers), generator), answers)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # more would only wait for each other in networks this small
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(network.seed)  # of the weights and of dropout
        model = _fitted(domain, inputs, labels, network.augmentation, generator)
    with torch.inference_mode():
        logits, layers = domain.read(model, rows)
    torch.set_num_threads(threads)
    accuracy = float((logits.argmax(1) == right).double().mean())
    return Recorded([layer.numpy() for layer in layers], logits.numpy(), accuracy)


def _fitted(domain: Domain, inputs: Tensor, labels: Tensor, noise: float, generator) -> nn.Module:
    """Train with a learning rate that ends at 0, so that no seed ends in a bad step."""
    model = domain.build().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=domain.rate)
    steps = domain.epochs * -(-len(inputs) // domain.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, domain.rate, total_steps=steps)
    for _ in range(domain.epochs):
        for rows in torch.randperm(len(inputs), generator=generator).split(domain.batch):
            batch = domain.disturbed(inputs[rows], noise, generator) if noise else inputs[rows]
            optimizer.zero_grad()
            cross_entropy(domain.answer(model, batch), labels[rows]).backward()
            optimizer.step()
            schedule.step()
    return model.eval()
