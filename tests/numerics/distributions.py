"""Pairs of layers as networks have them, each a few lines, seeded.

A distribution draws two layers ``[n, p]`` of float64 numbers. A test rounds them to a dtype; the
right value is that of the rounded numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from sklearn.datasets import load_breast_cancer

Array = np.ndarray
Draw = Callable[[np.random.Generator, int, int], tuple[Array, Array]]
SINKS = np.s_[::20]  # the rows that are sinks, where there are many


@dataclass(frozen=True)
class Distribution:
    """A name, the column of the table that it counts for, and how two layers are drawn."""

    name: str
    group: str
    draw: Draw

    def layers(self, n: int = 300, p: int = 32) -> tuple[Array, Array]:
        """Return two layers, the same ones for one n and p in every process."""
        return self.draw(np.random.default_rng([crc32(self.name.encode()), n, p]), n, p)

    def __str__(self) -> str:
        return self.name


DISTRIBUTIONS: dict[str, Distribution] = {}


def _in(group: str, **draws: Draw) -> None:
    for name, draw in draws.items():
        DISTRIBUTIONS[name] = Distribution(name, group, draw)


def share(name, cases):
    """Return some of the cases: the distributions of a group take all of them together."""
    if name == "narrower":  # takes no measure of equal widths, and stands for no other
        return cases
    group = DISTRIBUTIONS[name].group
    names = [n for n, one in DISTRIBUTIONS.items() if one.group == group and n != "narrower"]
    return cases[names.index(name) :: len(names)]


def alike(r, n, p):
    """Two layers whose neurons share six features, with the same columns but for noise."""
    x = r.standard_normal((n, 6)) @ r.standard_normal((6, p)) / 3 + r.standard_normal((n, p))
    return x, x + 0.7 * r.standard_normal((n, p))


def alike_of(parts):
    return parts[0], parts[0] + 0.7 * parts[1]


def apart(r, n, p):
    return r.standard_normal((n, p)), r.standard_normal((n, p))


def rotation(r, p):
    return np.linalg.qr(r.standard_normal((p, p)))[0]


def each(change, draw=alike):
    return lambda r, n, p: tuple(change(layer) for layer in draw(r, n, p))


def shared(part, draw=apart):
    """Draw, then lay the same part, an index and its values, into both layers."""

    def drawn(r, n, p):
        x, y = draw(r, n, p)
        index, values = part(r, n, p)
        x[index] = y[index] = values
        return x, y

    return drawn


def massive(factor):
    return lambda r, n, p: (np.s_[:, 0], factor * r.standard_normal(n))


def sink(height, rows=np.s_[0], columns=np.s_[3]):
    return lambda r, n, p: ((rows, columns), height)


def sink_row(height):
    return lambda r, n, p: (np.s_[0], height * r.standard_normal(p))


def layer_norm(x):
    """Rows of mean 0 and variance 1: the columns have a null dimension."""
    x = x - x.mean(1, keepdims=True)
    return x / np.sqrt(x.var(1, keepdims=True) + 1e-5)


def softmax(x):
    weights = np.exp(x - x.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


def spectrum(values):
    """Two layers of a given spectrum, each turned by a rotation of its own."""

    def drawn(r, n, p):
        return tuple((one * values(np.arange(p))) @ rotation(r, p) for one in alike(r, n, p))

    return drawn


def low_rank(noise):
    """A quarter of the dimensions, and noise in all of them."""

    def drawn(r, n, p):
        k = p // 4
        sides = (r.standard_normal((n, k)) @ r.standard_normal((k, p)) for _ in range(2))
        return tuple(np.float32(side) + noise * r.standard_normal((n, p)) for side in sides)

    return drawn


def tokens(sinks=0.0, draw=alike):
    """Rows of a vocabulary by Zipf's law, so that they repeat, and a sink token."""

    def drawn(r, n, p):
        rank = np.minimum(r.zipf(1.3, n) - 1, n // 2)
        x, y = (table[rank] for table in draw(r, n, p))
        x[rank == 0, 1] += sinks
        y[rank == 0, 1] += sinks
        return x, y

    return drawn


def step(size, column=1.0):
    """A residual stream before and after a small step, with one column longer than the others."""

    def drawn(r, n, p):
        x = r.standard_normal((n, p))
        x[:, 0] *= column
        return x, x + size * r.standard_normal((n, p))

    return drawn


def classes(spread, r, n, p, count=4):
    """Classes collapsed to points, each layer with points of its own."""
    labels, points = np.arange(n) % count, 3 * r.standard_normal((2, count, p))
    return tuple(one[labels] + spread * r.standard_normal((n, p)) for one in points)


def breast_cancer(r, n, p):
    """Measurements as they are: columns of 1e-3 beside columns of 1e3."""
    data = load_breast_cancer().data
    return data[:n, :10].copy(), data[:n, 10:20].copy()


def one_hot(r, n, p):
    """Tokens as they come, beside a layer of them."""
    x = np.eye(p)[r.integers(0, p, n)]
    return x, x @ r.standard_normal((p, p)) + r.standard_normal((n, p))


def nearly_one_hot(r, n, p):
    """Tokens of two layers, which differ within a class by less than float32 cosines resolve."""
    return tuple(np.eye(p)[r.integers(0, p, n)] + 1e-6 * r.standard_normal((n, p)) for _ in "xy")


def with_columns(columns):
    """Draw, then put other columns into the first layer alone."""

    def drawn(r, n, p):
        x, y = alike(r, n, p)
        for at, values in columns(x).items():
            x[:, at] = values
        return x, y

    return drawn


def _six_decades(x):
    return x * 10 ** np.linspace(-3, 3, x.shape[1])


def _one_space(r, n, p):
    z = r.standard_normal((n, p))
    return _six_decades(z), z @ r.standard_normal((p, p))


_in(
    "plain",
    features=alike,
    normal=lambda r, n, p: alike_of(r.standard_normal((2, n, p))),
    unrelated=apart,
    narrower=lambda r, n, p: (alike(r, n, p)[0], r.standard_normal((n, p // 2))),
    uniform=each(lambda x: 1 / (1 + np.exp(-x))),
)
_in("rotated", rotated=lambda r, n, p: ((x := r.standard_normal((n, p))), x @ rotation(r, p)))
_in(
    "massive column",
    massive_500=lambda r, n, p: (apart(r, n, p)[0] * np.r_[500, np.ones(p - 1)], apart(r, n, p)[1]),
    massive_500_shared=shared(massive(500)),
    massive_5000_shared=shared(massive(5000)),
    massive_5000_alike=shared(massive(5000), alike),
)
_in("sink columns", sink_columns_3000=shared(sink(3000, SINKS), alike))
_in(
    "sink 1e2 to 1e3",
    sink_100=shared(sink(100.0), alike),
    sink_1000=shared(sink(1000.0), alike),
    sink_row_1000=shared(sink_row(1000.0), alike),
    sinks_1000=shared(sink(1000.0, SINKS, np.s_[:4]), alike),
)
_in(
    "sink 1e4 to 1e5",
    sink_10000=shared(sink(1e4), alike),
    sink_100000=shared(sink(1e5), alike),
    sink_row_10000=shared(sink_row(1e4), alike),
    sink_row_100000=shared(sink_row(1e5), alike),
)
_in(
    "LayerNorm",
    layer_norm=each(layer_norm),
    layer_norm_gains=each(lambda x: layer_norm(x) * np.geomspace(0.05, 20, x.shape[1])),
)
_in(
    "offset",
    offset_10=each(lambda x: x + 10),
    offset_1000=each(lambda x: x + 1000),
    offset_of_columns=each(lambda x: x + np.linspace(-300, 300, x.shape[1])),
)
_in(
    "spectrum",
    spectrum_1=spectrum(lambda i: 1 / (i + 1)),
    spectrum_2=spectrum(lambda i: 1 / (i + 1) ** 2),
    spectrum_exp=spectrum(lambda i: np.exp(-i / 2)),
)
_in("low rank", rank=low_rank(0), rank_4=low_rank(1e-4), rank_6=low_rank(1e-6))
_in(
    "ReLU",
    relu=each(lambda x: np.maximum(x, 0)),
    relu_sparse=each(lambda x: np.maximum(x, 0) * (np.arange(len(x)) % 3 == 0)[:, None]),
    relu_dead=each(lambda x: np.maximum(x, 0) * (np.arange(x.shape[1]) % 5 > 0)),
)
_in("Zipf", zipf=tokens(), zipf_sinks=tokens(800.0))
_in(
    "heavy tails",
    student_1=lambda r, n, p: alike_of(r.standard_t(1.1, (2, n, p))),
    student_3=lambda r, n, p: alike_of(r.standard_t(3, (2, n, p))),
    lognormal=each(np.exp),
)
_in(
    "scale",
    tiny=each(lambda x: x * 1e-30),
    small=each(lambda x: x * 1e-12),
    large=each(lambda x: x * 1e12),
    huge=each(lambda x: x * 1e30),
)
_in("softmax", softmax=each(softmax), softmax_sharp=each(lambda x: softmax(6 * x)))
_in("one-hot", one_hot=one_hot)
_in("residual", step_2=step(1e-2), step_5=step(1e-5), step_massive=step(1e-2, 300.0))
_in("integers", integers=each(lambda x: np.round(3 * x)))
_in(
    "column scales",
    six_decades=each(_six_decades),
    six_decades_one_space=_one_space,
    breast_cancer=breast_cancer,
)
_in(
    "collapsed",
    collapsed=lambda *size: classes(1e-4, *size),
    collapsed_near=lambda *size: classes(1e-2, *size),
)
_in(
    "tight classes",
    two_tight_classes=lambda *size: classes(1e-5, *size, count=2),
    nearly_one_hot=nearly_one_hot,
)
_in(
    "duplicates",
    duplicated_columns=with_columns(lambda x: {1: x[:, 0], 3: -2 * x[:, 2]}),
    constant_columns=with_columns(lambda x: {1: 0.0, 4: 7.0}),
)
