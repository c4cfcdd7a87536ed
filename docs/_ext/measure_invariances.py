"""What each measure ignores, computed: a layer X beside T(X), for the changes T of layers.

X is a layer of `ROWS` rows: rectified units with random weights on images of digits, in units in
which two rows are 1 apart on average. Beside it stand Y, another such layer of the same images, and
random numbers with the means and standard deviations of X's neurons (chance). A measure ignores a
change of one of its two arguments if ``m(T(X), Y) = m(X, Y)`` up to rounding. ``m(X, T(X))`` is
what the pictures show. Numbers are the same in each build.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from measure_variants import Variant
from sklearn.datasets import load_digits

from simcore._measures.record import CONTAINS

ROWS, WIDTH = 200, 24
SENTENCES, HEADS, WORDS = 40, 4, 7
CLASSES = 5
MOST = 1e-5  # changes above this, in units of the largest change, are no rounding
CHANCE = "independent"
Change = Callable[[Any, np.random.Generator], Any]


def _rotation(rng: np.random.Generator) -> np.ndarray:
    return np.linalg.qr(rng.standard_normal((WIDTH, WIDTH)))[0]


def _linear(rng: np.random.Generator) -> np.ndarray:
    return _rotation(rng) * np.geomspace(0.2, 5, WIDTH) @ _rotation(rng)


def _softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def _sharper(layer: list[np.ndarray], rng: np.random.Generator) -> list[np.ndarray]:
    squares = [weights**2 for weights in layer]
    return [weights / weights.sum(-1, keepdims=True) for weights in squares]


def _mixed(layer: list[np.ndarray], rng: np.random.Generator) -> list[np.ndarray]:
    shares = rng.dirichlet(np.ones(HEADS), HEADS)
    return [np.einsum("gh,hij->gij", shares, weights) for weights in layer]


LAYERS: dict[str, Change] = {
    "translation": lambda x, rng: x + rng.uniform(-1, 1, WIDTH),
    "isotropic scaling": lambda x, rng: 3 * x,
    "scaling of neurons": lambda x, rng: x * rng.permutation(np.geomspace(0.2, 5, WIDTH)),
    "signs of neurons": lambda x, rng: x * rng.choice([-1.0, 1.0], WIDTH),
    "permutation of neurons": lambda x, rng: x[:, rng.permutation(WIDTH)],
    "orthogonal map": lambda x, rng: x @ _rotation(rng),
    "invertible linear map": lambda x, rng: x @ _linear(rng),
    "scaling of rows": lambda x, rng: x * rng.uniform(0.5, 2, (ROWS, 1)),
    "permutation of rows": lambda x, rng: x[rng.permutation(ROWS)],
}
ATTENTION: dict[str, Change] = {
    "permutation of heads": lambda a, rng: [s[::-1] for s in a],
    "a head twice": lambda a, rng: [np.concatenate([s, s[:1]]) for s in a],
    "mixture of heads": _mixed,
    "sharper weights": _sharper,
    "sentences permuted": lambda a, rng: [a[i] for i in rng.permutation(SENTENCES)],
}
PREDICTIONS: dict[str, Change] = {
    "constant per example": lambda p, rng: p + rng.normal(size=(ROWS, 1)),
    "scaling of logits": lambda p, rng: 3 * p,
    "constant per class": lambda p, rng: p + np.linspace(-2, 2, CLASSES),
    "classes permuted": lambda p, rng: np.roll(p, 1, axis=1),
    "examples permuted": lambda p, rng: p[rng.permutation(ROWS)],
}
CHANGES: dict[str, Mapping[str, Change]] = {
    "layers": LAYERS,
    "attention": ATTENTION,
    "predictions": PREDICTIONS,
}


@dataclass(frozen=True)
class Found:
    """Values of one measure.

    Attributes
    ----------
    itself, chance
        The value of X with itself and with an independent layer.
    second, first
        The values ``m(X, T(X))`` and ``m(T(X), X)`` for each change.
    ignores_second, ignores_first
        The changes of that argument that the measure ignores.
    """

    itself: float
    chance: float
    second: Mapping[str, float]
    first: Mapping[str, float]
    ignores_second: frozenset[str]
    ignores_first: frozenset[str]


def _units(seed: int) -> np.ndarray:
    """Return a layer of rectified units with random weights, on images of digits."""
    rng = np.random.default_rng(seed)
    pixels = load_digits().data[:ROWS]
    layer = np.maximum(
        (pixels - pixels.mean(axis=0)) @ rng.standard_normal((pixels.shape[1], WIDTH)), 0
    )
    return layer / np.sqrt(2 * layer.var(axis=0).sum())


def _representations() -> list[np.ndarray]:
    x, y = _units(1), _units(2)
    noise = np.random.default_rng(3).standard_normal(x.shape)
    return [x, y, x.mean(axis=0) + noise * x.std(axis=0)]


def _attention() -> list[list[np.ndarray]]:
    """Return random attention; that of Y leans towards that of X."""
    rng = np.random.default_rng(4)
    x, y, noise = 2 * rng.standard_normal((3, SENTENCES, HEADS, WORDS, WORDS))
    return [list(_softmax(logits)) for logits in (x, (x + y) / 2, noise)]


def _predictions() -> list[np.ndarray]:
    """Return random logits; those of Y lean towards those of X."""
    x, y, noise = 2 * np.random.default_rng(5).standard_normal((3, ROWS, CLASSES))
    return [x, (x + y) / 2, noise]


@functools.cache
def samples(kind: str) -> tuple[Any, ...]:
    """Return X, Y, an independent layer, and T(X) for every change T of this kind of layers."""
    makers = {"layers": _representations, "attention": _attention, "predictions": _predictions}
    x, y, independent = makers[kind]()
    changed = [
        change(x, np.random.default_rng([6, i])) for i, change in enumerate(CHANGES[kind].values())
    ]
    return (x, y, independent, *changed)


def largest(changes: frozenset[str]) -> list[str]:
    """Return the changes that no other one of them contains, in the order of the tables."""
    contained = frozenset().union(*(CONTAINS.get(change, ()) for change in changes))
    every = [name for kind in CHANGES.values() for name in kind]
    return [name for name in every if name in changes - contained]


@functools.cache
def computed(variant: Variant) -> Found:
    """Return the values of a measure, and what it ignores."""
    layers = samples(variant.kind)
    beside_x, beside_y = variant(layers[:2], layers)
    before_y = beside_y if variant.known.symmetric else variant(layers, layers[1:2])[:, 0]
    before_x = beside_x if variant.known.symmetric else variant(layers, layers[:1])[:, 0]
    names = list(CHANGES[variant.kind])
    rows = range(3, 3 + len(names))
    unit = np.abs(beside_x - beside_x[0]).max()
    found = {}
    for side, values in (("second", beside_y), ("first", before_y)):
        moved = {
            name: abs(values[i] - values[0]) / unit for name, i in zip(names, rows, strict=True)
        }
        unsure = [name for name, change in moved.items() if variant.least < change < MOST]
        if unsure:
            raise ValueError(f"{variant.label}: {unsure} move it by {[moved[n] for n in unsure]}")
        found[side] = frozenset(name for name, change in moved.items() if change <= variant.least)
    return Found(
        itself=float(beside_x[0]),
        chance=float(beside_x[2]),
        second={name: float(beside_x[i]) for name, i in zip(names, rows, strict=True)},
        first={name: float(before_x[i]) for name, i in zip(names, rows, strict=True)},
        ignores_second=found["second"],
        ignores_first=found["first"],
    )
