"""The networks that measures are judged on: small ResNets, trained on scikit-learn's digits.

Each network is a job of its own in the cache folder, so that an interrupted command continues. The
jobs are not those of a sweep: a sweep fine-tunes checkpoints on tasks as they are, and has no words
for images with a dot, with noise or with random labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from simlab.store.files import hash_json, writing
from simlab.store.jobs import run_job

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

_ARRAYS = "layers.safetensors"
_LOGITS = "logits"
_CLASSES = 10
_VERSION = 1  # of the training: raise it where networks of the same fields come out otherwise


@dataclass(frozen=True)
class Training:
    """How every network is built, trained and read.

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

    width: int = 16
    strides: tuple[int, ...] = (1, 2, 1, 2, 1)
    images: int = 1000
    epochs: int = 15
    rate: float = 3e-3
    batch: int = 64
    rows: int = 500
    side: int = 2


@dataclass(frozen=True)
class Network:
    """A network of the benchmark: its seed, and the change of its training images.

    Attributes
    ----------
    random_labels
        Share of the training images whose label is drawn at random.
    shortcut
        Share of the training images whose dot tells their class; the dots of all others, and of the
        held-out images, are drawn at random. None: images have no dot.
    noise
        Standard deviation of the noise that each training image gets, drawn anew in each epoch, for
        images between 0 and 1.
    """

    seed: int
    random_labels: float = 0.0
    shortcut: float | None = None
    noise: float = 0.0


@dataclass(frozen=True)
class Recorded:
    """What a trained network says of the held-out images.

    Attributes
    ----------
    layers
        The stem and all blocks, ``[rows, neurons]`` float32 each.
    logits
        ``[rows, classes]``.
    accuracy
        Share of the held-out images that are classified right.
    """

    layers: list[np.ndarray]
    logits: np.ndarray
    accuracy: float


RANDOM_LABELS, SHORTCUT, AUGMENTATION = "random labels", "shortcut", "augmentation"


@dataclass(frozen=True)
class Plan:
    """Which networks the benchmark trains.

    Attributes
    ----------
    seeds
        Number of networks that differ in their seed alone.
    members
        Number of networks in each group.
    levels
        The strengths of each change of the training, one group for each. Groups without a change
        are made of the first networks of `seeds`.
    """

    training: Training = field(default_factory=Training)
    seeds: int = 10
    members: int = 5
    random_labels: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    shortcut: tuple[float, ...] = (0.0, 0.75, 0.9, 0.97, 1.0)
    noise: tuple[float, ...] = (0.0, 0.15, 0.3, 0.6, 1.0)

    @property
    def plain(self) -> list[Network]:
        """The networks that differ in their seed alone."""
        return [Network(seed) for seed in range(self.seeds)]

    @property
    def groups(self) -> dict[str, list[list[Network]]]:
        """The groups of networks of each change; no two networks share a seed."""
        changes = (
            (RANDOM_LABELS, "random_labels", self.random_labels),
            (SHORTCUT, "shortcut", self.shortcut),
            (AUGMENTATION, "noise", self.noise),
        )
        found: dict[str, list[list[Network]]] = {}
        for number, (name, parameter, levels) in enumerate(changes, 1):
            found[name] = [
                [
                    Network(1000 * number + 100 * place + seed, **{parameter: level})
                    if level or parameter == "shortcut"
                    else Network(seed)
                    for seed in range(self.members)
                ]
                for place, level in enumerate(levels)
            ]
        return found

    @property
    def networks(self) -> list[Network]:
        """Every network once."""
        grouped = (one for groups in self.groups.values() for group in groups for one in group)
        return list(dict.fromkeys([*self.plain, *grouped]))

    @property
    def key(self) -> str:
        """The hash of all that the networks depend on."""
        return hash_json([_inputs(network, self.training) for network in self.networks])


def recorded(
    plan: Plan, folder: Path, advance: Callable[[int], None] = lambda count: None
) -> dict[Network, Recorded]:
    """Return what every network says; train the networks that `folder` does not have.

    Parameters
    ----------
    advance
        Function that is called with 1 after each network.
    """
    found = {}
    for network in plan.networks:
        inputs = _inputs(network, plan.training)
        place = folder / hash_json(inputs)[:16]

        def make(partial: Path, network: Network = network) -> None:
            with _one_thread():
                arrays = _train(network, plan.training)
            _write(partial / _ARRAYS, arrays)

        run_job(place, inputs, make)
        found[network] = _read(place / _ARRAYS, plan.training)
        advance(1)
    return found


def held_out_labels(training: Training) -> np.ndarray:
    """Return the classes of the held-out images, ``[rows]``."""
    _, labels, _, held_out = _digits(training)
    return np.asarray(labels[held_out].numpy())


def _inputs(network: Network, training: Training) -> dict[str, object]:
    return {"set": "digits", "version": _VERSION, **asdict(network), "training": asdict(training)}


def _write(path: Path, arrays: dict[str, np.ndarray]) -> None:
    from safetensors.numpy import save_file

    with writing(path):
        save_file(arrays, path)


def _read(path: Path, training: Training) -> Recorded:
    from safetensors.numpy import load_file

    arrays = load_file(path)
    layers = [arrays[f"layer.{number}"] for number in range(1 + len(training.strides))]
    right = arrays[_LOGITS].argmax(1) == held_out_labels(training)
    return Recorded(layers, arrays[_LOGITS], float(right.mean()))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch use one thread: more would only wait for each other in networks this small."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _digits(training: Training) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return images ``[n, 1, 8, 8]``, labels, and the rows to train on and those held out."""
    import torch
    from sklearn.datasets import load_digits

    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32)[:, None] / data.images.max()
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    held_out = order[training.images : training.images + training.rows]
    return images, torch.tensor(data.target), order[: training.images], held_out


def _train(network: Network, training: Training) -> dict[str, np.ndarray]:
    import torch

    from simcore import record

    images, labels, chosen, held_out = _digits(training)
    inputs, answers, rows = images[chosen], labels[chosen], images[held_out]
    generator = torch.Generator().manual_seed(network.seed)
    if network.shortcut is not None:
        drawn = _drawn_labels(len(answers), generator)
        told = torch.rand(len(answers), generator=generator) < network.shortcut
        inputs = _dotted(inputs, torch.where(told, answers, drawn))
        # All networks see the same dots on the held-out images.
        rows = _dotted(rows, _drawn_labels(len(rows), torch.Generator().manual_seed(0)))
    wrong = torch.rand(len(answers), generator=generator) < network.random_labels
    answers = torch.where(wrong, _drawn_labels(len(answers), generator), answers)
    model = _fitted(inputs, answers, network, training, generator)
    pool = _pool(training.side)
    with record(model, ["stem", "block-*"], pool=pool) as tape, torch.inference_mode():
        logits = model(rows)
    layers = {f"layer.{i}": layer.numpy() for i, layer in enumerate(tape.layers().values())}
    return {_LOGITS: logits.numpy(), **layers}


def _pool(side: int) -> Callable[[Tensor], Tensor]:
    from torch.nn.functional import adaptive_avg_pool2d

    return lambda output: adaptive_avg_pool2d(output, side).flatten(1)


def _drawn_labels(count: int, generator: torch.Generator) -> Tensor:
    import torch

    return torch.randint(_CLASSES, (count,), generator=generator)


def _dotted(images: Tensor, classes: Tensor) -> Tensor:
    """Return images whose first line has two dots, which stand for a class: tens of places."""
    import torch

    marked = images.clone()
    marked[:, 0, 0] = 0.0
    each = torch.arange(len(images))
    marked[each, 0, 0, classes % 5] = 1.0
    marked[each, 0, 0, 5 + classes // 5] = 1.0
    return marked


def _fitted(
    images: Tensor,
    labels: Tensor,
    network: Network,
    training: Training,
    generator: torch.Generator,
) -> nn.Module:
    """Train a network with a learning rate that ends at 0, so that no seed ends in a bad step."""
    import torch
    from torch.nn.functional import cross_entropy
    from torch.optim.lr_scheduler import OneCycleLR

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(network.seed)
        model = _build(training)
    optimizer = torch.optim.AdamW(model.parameters(), lr=training.rate)
    steps = -(-len(images) // training.batch)
    schedule = OneCycleLR(optimizer, training.rate, total_steps=training.epochs * steps)
    for _ in range(training.epochs):
        for rows in torch.randperm(len(images), generator=generator).split(training.batch):
            batch = images[rows]
            if network.noise:
                batch = batch + network.noise * torch.randn(batch.shape, generator=generator)
            optimizer.zero_grad()
            cross_entropy(model(batch), labels[rows]).backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def _build(training: Training) -> nn.Module:
    from torch import nn

    from simlab.judge.residual import Block

    model = nn.Sequential()
    model.add_module("stem", nn.Conv2d(1, training.width, 3, padding=1))
    for number, stride in enumerate(training.strides):
        model.add_module(f"block-{number}", Block(training.width, training.width, stride))
    pooled = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(training.width, _CLASSES))
    model.add_module("head", nn.Sequential(*pooled))
    return model
