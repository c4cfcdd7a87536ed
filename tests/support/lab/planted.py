"""Networks whose layers say what they are, and measures of them whose scores are known."""

from __future__ import annotations

import numpy as np

from simlab.judge.candidates import Candidate
from simlab.judge.digits import Digits
from simlab.judge.domain import Network
from simlab.judge.networks import Plan, Recorded
from simlab.judge.scores import Material

ROWS, DEPTH = 40, 4
TINY = Digits(width=4, strides=(2, 1, 1), images=64, epochs=1, batch=32, rows=ROWS, side=1)
PLAN = Plan(
    training=TINY,
    seeds=5,
    members=3,
    random_labels=(0.0, 1.0),
    shortcut=(0.0, 1.0),
    augmentation=(0.0, 1.0),
)


def planted(plan: Plan = PLAN) -> Material:
    """Return networks whose layers hold their depth, group and number of errors in the first row.

    Network k errs in the first k rows, so that the answers of two networks differ as much as their
    accuracies.
    """
    groups = {
        network: number
        for tested in plan.groups.values()
        for number, group in enumerate(tested)
        for network in group
    }
    labels = plan.training.labels()
    found = {}
    for number, network in enumerate(plan.networks):
        wrong = np.arange(ROWS) < number * number  # no two pairs differ by one number
        logits = 9.0 * np.eye(10)[np.where(wrong, (labels + 1) % 10, labels)]
        layers = [
            _layer(network, depth, groups.get(network, 0), number * number)
            for depth in range(DEPTH)
        ]
        found[network] = Recorded(layers, logits, 1 - wrong.mean())
    return Material(plan, found)


def _layer(network: Network, depth: int, group: int, errors: int) -> np.ndarray:
    rng = np.random.default_rng(100 * network.seed + depth)
    layer = rng.standard_normal((ROWS, 8))
    layer[0, :3] = depth, group, errors
    return layer


def perfect(x: np.ndarray, y: np.ndarray) -> float:
    """Similarity by group first, then by depth, then by errors."""
    depth, group, errors = np.abs(x[0, :3] - y[0, :3])
    return float(-(1e6 * group + 1e3 * depth + errors))


def undefined(x: np.ndarray, y: np.ndarray) -> float:
    """Return no number."""
    return float("nan")


def constant(x: np.ndarray, y: np.ndarray) -> float:
    """Return one number."""
    return 0.5


class Random:
    """Random numbers."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def __call__(self, x: np.ndarray, y: np.ndarray) -> float:
        """Return the next number."""
        return float(self.rng.random())


def candidate(function, distance: bool = False) -> Candidate:
    """Return a function of two layers as a measure that is judged."""
    from pathlib import Path

    from simlab.judge.functions import as_grid

    name = getattr(function, "__name__", "random")
    return Candidate(name, distance, as_grid(function, Path("planted.py")), None)
