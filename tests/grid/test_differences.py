"""Distances of nearly equal layers, beside the differences themselves in float64."""

import numpy as np
import pytest
import torch

from simcore import (
    aligned_cosine_grid,
    distance_correlation_grid,
    gulp_grid,
    procrustes_grid,
    rsm_difference_grid,
)
from simcore._grid.accuracy import RELATIVE, TOLERANCE, watch


def shared_massive_column(r):
    """Two layers that have one column in common, 5,000 times the others."""
    x, y = r.standard_normal((2, 300, 32))
    x[:, 0] = y[:, 0] = 5000 * r.standard_normal(300)
    return x, y


def residual_step(r):
    x = r.standard_normal((300, 32))
    return x, x + 1e-2 * r.standard_normal((300, 32))


def sink_row(r):
    x = r.standard_normal((300, 32))
    y = x + 0.7 * r.standard_normal((300, 32))
    x[0, 3] = y[0, 3] = 1e4
    return x, y


DRAWN = {f.__name__: f for f in (shared_massive_column, residual_step, sink_row)}


def drawn(name):
    x, y = DRAWN[name](np.random.default_rng(0))
    return np.float32(x), np.float32(y)


def distances(x):
    x = np.float64(x)
    return np.linalg.norm(x[:, None] - x, axis=2)


def unit(x):
    x = np.float64(x) - np.float64(x).mean(0)
    return x / np.linalg.norm(x)


def frobenius(x, y):
    return np.linalg.norm(distances(x) - distances(y))


def spectral(x, y):
    return np.abs(np.linalg.eigvalsh(distances(x) - distances(y))).max()


def nuclear(x, y):
    return np.linalg.svd(x.T @ y, compute_uv=False).sum()


def procrustes(x, y):
    return np.sqrt(2 - 2 * nuclear(unit(x), unit(y)))


def size_and_shape(x, y):
    x, y = (np.float64(t) - np.float64(t).mean(0) for t in (x, y))
    return np.sqrt((x**2).sum() + (y**2).sum() - 2 * nuclear(x, y))


def gulp(x, y):
    def whitened(t):
        t = unit(t)
        values, vectors = np.linalg.eigh(t.T @ t)
        return t @ (vectors / np.sqrt(values + 0.01))

    x, y = whitened(x), whitened(y)
    return np.linalg.norm(x @ x.T - y @ y.T) ** 2


def aligned(x, y):
    x, y = np.float64(x), np.float64(y)
    u, _, vt = np.linalg.svd(x.T @ y)
    turned = x @ u @ vt
    lengths = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    return ((turned * y).sum(1) / lengths).mean()


def correlated(x, y):
    def centred(t):
        d = distances(t)
        return d - d.mean(0) - d.mean(1)[:, None] + d.mean()

    a, b = centred(x), centred(y)
    return np.sqrt((a * b).sum() / np.sqrt((a**2).sum() * (b**2).sum()))


# A grid, its value by numpy, how far it may be off, and the layers that it computes again.
MEASURES = {
    "rsm": (rsm_difference_grid, {}, frobenius, {"rel": RELATIVE}, set(DRAWN)),
    "rsm spectral": (
        rsm_difference_grid,
        {"norm": "spectral"},
        spectral,
        {"rel": RELATIVE},
        {"shared_massive_column"},
    ),
    "procrustes": (
        procrustes_grid,
        {"form": "distance"},
        procrustes,
        {"rel": 0, "abs": TOLERANCE},
        set(DRAWN),
    ),
    "size-and-shape": (
        procrustes_grid,
        {"form": "size-and-shape"},
        size_and_shape,
        {"rel": RELATIVE},
        set(DRAWN),
    ),
    "gulp": (gulp_grid, {"ridge": 0.01}, gulp, {"rel": RELATIVE}, set(DRAWN)),
    "aligned cosine": (
        aligned_cosine_grid,
        {},
        aligned,
        {"rel": 0, "abs": TOLERANCE},
        {"shared_massive_column", "sink_row"},
    ),
}


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("name", DRAWN)
def test_nearly_equal_layers(measure, name):
    grid_of, options, by_numpy, allowed, lost = MEASURES[measure]
    x, y = drawn(name)
    want = pytest.approx(by_numpy(x, y), **allowed)
    order = np.random.default_rng(1).permutation(len(x))
    with watch() as again:
        grid = grid_of([x, y], **options)
    assert bool(again) == (name in lost)
    assert all(found.endswith(": X[0], X[1]") for found in again)
    turned = grid_of([x[order]], [y[order]], **options)
    assert (grid[0, 1], grid[1, 0], turned[0, 0]) == (want, want, want)
    assert (grid[0, 0] == 1) if measure == "aligned cosine" else (grid[0, 0] == 0)


@pytest.mark.parametrize("measure", MEASURES)
def test_unlike_layers_are_computed_once(measure):
    grid_of, options, by_numpy, allowed, _ = MEASURES[measure]
    r = np.random.default_rng(2)
    x = np.float32(r.standard_normal((200, 48)))
    y = np.float32(x + 0.7 * r.standard_normal((200, 48)))
    with watch() as again:
        got = grid_of([x], [y], **options)[0, 0]
    assert not again
    assert got == pytest.approx(by_numpy(x, y), **allowed)


def test_distance_correlation_of_far_and_of_equal_rows():
    """A sink row takes float64; tokens that repeat are exactly 0 apart in float32."""
    r = np.random.default_rng(3)
    other = np.float32(r.standard_normal((400, 200)))
    sink = other + np.float32(r.standard_normal((400, 200)))
    sink[0] *= 1e5
    tokens = np.float32(np.eye(200)[r.integers(0, 200, 400)])
    for layer, lost in ((sink, ["distance_correlation_grid: X[0]"]), (tokens, [])):
        with watch() as again:
            got = distance_correlation_grid([layer], [other])[0, 0]
        assert again == lost
        assert got == pytest.approx(correlated(layer, other), rel=0, abs=TOLERANCE / 4)


def test_gradient_of_distance_correlation_that_cancels():
    x, y = drawn("shared_massive_column")
    gradients = []
    for dtype in (torch.float32, torch.float64):
        layer = torch.tensor(x, dtype=dtype, requires_grad=True)
        distance_correlation_grid([layer], [torch.tensor(y, dtype=dtype)]).sum().backward()
        gradients.append(layer.grad.double())
    error = (gradients[0] - gradients[1]).norm() / gradients[1].norm()
    assert error < 1e-6
