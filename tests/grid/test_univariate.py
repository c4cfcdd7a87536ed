"""Distance correlation of layers of one column, in n log n operations."""

import numpy as np
import pytest
import torch

from simcore import distance_correlation_grid, reference
from support import tolerance
from support.cases import exact

KINDS = {
    "normal": lambda t: t,
    "ties": lambda t: (2 * t).round(),
    "two values": lambda t: (t > 0).double(),
    "heavy tails": lambda t: t**5,
    "an outlier and an offset": lambda t: torch.where(t == t.max(), 1e6, t) + 1000,
}


def columns(n, kind, count, seed):
    drawn = torch.randn(count, n, 1, generator=torch.Generator().manual_seed(seed)).double()
    return [KINDS[kind](layer) for layer in drawn]


@pytest.fixture
def no_matrices(monkeypatch):
    monkeypatch.delattr("simcore.distances.differentiable_hsic_terms")


@pytest.mark.usefixtures("no_matrices")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [7, 16, 17, 150])
def test_twin(n, kind):
    x = columns(n, kind, 3, 0)
    y = [x[1] + layer for layer in columns(n, "ties", 2, 1)]
    for other in (None, y):
        got = distance_correlation_grid(x, other)
        want = reference.distance_correlation_grid(exact(x), other and exact(other))
        tolerance.assert_close(got, want, torch.float64)
    assert distance_correlation_grid(x).diagonal().tolist() == [1.0] * 3
    wanted = distance_correlation_grid(x, y)
    small = 2 * (32 * n * 5 + 640 * max(16, 2 * n))  # a few columns of Y at a time
    assert torch.equal(distance_correlation_grid(x, y, max_memory=small), wanted)
    halves = [layer.to(torch.bfloat16) for layer in x]
    want = reference.distance_correlation_grid([layer.double().numpy() for layer in halves])
    tolerance.assert_close(distance_correlation_grid(halves), want, torch.float64)


@pytest.mark.usefixtures("no_matrices")
def test_constant_columns_and_entries_that_are_not_finite():
    x = columns(40, "normal", 2, 0)
    with pytest.warns(UserWarning, match=r"nan for X\[1\]: no variance"):
        grid = distance_correlation_grid([x[0], torch.full((40, 1), 0.1)], x)
    np.testing.assert_array_equal(grid.isnan(), [[False, False], [True, True]])
    with pytest.raises(ValueError, match=r"Y\[1\]: wanted finite values"):
        distance_correlation_grid(x, [x[0], x[1] / 0])


def test_gradients_are_those_of_matrices():
    x, y = columns(30, "ties", 2, 0)
    wide = torch.cat([x, torch.zeros_like(x)], 1)
    gradients = []
    for layer in (x, wide):
        layer.requires_grad_()
        distance_correlation_grid([layer], [y]).sum().backward()
        gradients.append(layer.grad[:, :1])
    tolerance.assert_close(*gradients, torch.float64)
