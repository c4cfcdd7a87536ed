"""Does the value of a measure depend on things that it should not depend on?

Layers of two networks are compared as they are, and changed: with a part of their rows or neurons,
with a neuron of large values, with one number added to all neurons, and with the rows of one
network permuted, so that nothing is left in common. The *change* of the values is their mean
absolute difference, in standard deviations of the measure over layers of different networks: 0 is
no dependence, and at 1 the change is as large as the differences that the measure is there for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from simlab.judge.candidates import Candidate

PAIRS = ((0, 1), (2, 3))  # of networks
ROWS, NEURONS, OUTLIER, OFFSET = "rows", "neurons", "outlier", "offset"
INDEPENDENT = "independent rows"
PART = 4  # a quarter of the rows
OUTLIER_SIZE, OFFSET_SIZE = 30.0, 10.0  # standard deviations
Layers = Sequence[np.ndarray]


def changes(
    candidate: Candidate, networks: Sequence[Layers], spread: float
) -> Iterator[tuple[str, str, float, int]]:
    """Yield test, score and value of each dependence, and how many pairs have no value.

    `networks` are the layers [n, p] of networks that differ in their seed alone, and `spread` is
    the standard deviation of the measure over layers of different networks.
    """
    rng = np.random.default_rng(0)
    rows = len(networks[0][0])
    few = np.sort(rng.permutation(rows)[: rows // PART])
    pairs = [(networks[a], networks[b]) for a, b in PAIRS if max(a, b) < len(networks)]
    permuted = [(x, [layer[rng.permutation(rows)] for layer in y]) for x, y in pairs]
    whole = _values(candidate, pairs)

    def change(values: np.ndarray, before: np.ndarray) -> tuple[float, int]:
        undefined = _undefined(values + before)
        if undefined:
            return np.nan, undefined
        moved = float(np.abs(values - before).mean())
        if spread:
            return moved / spread, 0
        return np.inf if moved else 0.0, 0

    ways = {
        ROWS: lambda layer: layer[few],
        NEURONS: lambda layer: _half(layer, rng),
        OUTLIER: lambda layer: _with_outlier(layer, rng),
        OFFSET: lambda layer: layer + OFFSET_SIZE * layer.std(0).max(),
    }
    for name, way in ways.items():
        changed = [tuple([way(layer) for layer in side] for side in pair) for pair in pairs]
        yield name, "change", *change(_values(candidate, changed), whole)
    unrelated = _values(candidate, permuted)
    fewer = [tuple([layer[few] for layer in side] for side in pair) for pair in permuted]
    undefined = _undefined(unrelated)
    yield INDEPENDENT, "value", np.nan if undefined else float(unrelated.mean()), undefined
    yield INDEPENDENT, "change", *change(_values(candidate, fewer), unrelated)


def _values(candidate: Candidate, pairs: Sequence[tuple[Layers, ...]]) -> np.ndarray:
    return np.stack([candidate.grid(x, y) for x, y in pairs])


def _undefined(values: np.ndarray) -> int:
    return int((~np.isfinite(values)).sum())


def _half(layer: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return layer[:, np.sort(rng.permutation(layer.shape[1])[: layer.shape[1] // 2])]


def _with_outlier(layer: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return a layer one of whose neurons has the values of another one, many times as large."""
    spreads = layer.std(0)
    largest = int(spreads.argmax())
    changed = layer.copy()
    place = int(rng.integers(layer.shape[1]))
    centred = layer[:, place] - layer[:, place].mean()
    own = spreads[place] or 1.0
    changed[:, place] = OUTLIER_SIZE * spreads[largest] * centred / own
    return changed
