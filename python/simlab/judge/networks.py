"""The networks that measures are judged on: which there are, and what each says of held-out rows.

Each network is a job of its own in the cache folder, so that an interrupted command continues. The
jobs are no jobs of a sweep: a sweep fine-tunes checkpoints on tasks as they are, and has no words
for rows with a shortcut, with noise or with random labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simlab.judge.domain import LOGITS, Network, Training
from simlab.store.files import hash_json, writing
from simlab.store.jobs import run_job

_ARRAYS = "layers.safetensors"
RANDOM_LABELS, SHORTCUT, AUGMENTATION = "random labels", "shortcut", "augmentation"


@dataclass(frozen=True)
class Recorded:
    """The layers and answers of a trained network on the held-out rows."""

    layers: list[np.ndarray]  # every layer, float32 [rows, neurons]
    logits: np.ndarray  # [rows, classes]
    accuracy: float  # share of the held-out rows that are classified right


@dataclass(frozen=True)
class Plan:
    """Which networks of a domain the benchmark trains.

    Each strength of a change of the training makes a group. Groups without a change are made of the
    first networks of `seeds`.
    """

    training: Training
    seeds: int = 10  # number of networks that differ in their seed alone
    members: int = 5  # number of networks in each group
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
        changes = {
            RANDOM_LABELS: ("random_labels", self.random_labels),
            SHORTCUT: ("shortcut", self.shortcut),
            AUGMENTATION: ("augmentation", self.augmentation),
        }
        return {
            name: [
                [
                    Network(1000 * number + 100 * place + seed, **{parameter: level})
                    if level or name == SHORTCUT
                    else Network(seed)
                    for seed in range(self.members)
                ]
                for place, level in enumerate(levels)
            ]
            for number, (name, (parameter, levels)) in enumerate(changes.items(), 1)
        }

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
    """Return the layers and answers of every network; train those that `folder` does not have.

    `advance` is called with 1 after each network.
    """
    found = {}
    for network in plan.networks:
        inputs = _inputs(network, plan.training)
        place = folder / hash_json(inputs)[:16]

        def make(partial: Path, network: Network = network) -> None:
            with _one_thread():
                arrays = plan.training.train(network)
            _write(partial / _ARRAYS, arrays)

        run_job(place, inputs, make)
        found[network] = _read(place / _ARRAYS, plan.training)
        advance(1)
    return found


def _inputs(network: Network, training: Training) -> dict[str, Any]:
    fields: dict[str, Any] = asdict(training)
    about = {"domain": training.domain, "version": training.version, "data": training.data()}
    return {**about, **asdict(network), "training": fields}


def _write(path: Path, arrays: dict[str, np.ndarray]) -> None:
    from safetensors.numpy import save_file

    with writing(path):
        save_file(arrays, path)


def _read(path: Path, training: Training) -> Recorded:
    from safetensors.numpy import load_file

    arrays = load_file(path)
    layers = [arrays[f"layer.{number}"] for number in range(training.depth)]
    right = arrays[LOGITS].argmax(1) == training.labels()
    return Recorded(layers, arrays[LOGITS], float(right.mean()))


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
