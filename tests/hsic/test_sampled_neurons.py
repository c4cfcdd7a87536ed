"""CKA of the populations of which the neurons of a layer are a sample."""

import numpy as np
import pytest
import torch

from simcore import Gram, cka_grid, reference

N, WIDTH = 12, 6


def layers(count, seed=0, width=WIDTH, n=N, offset=0.0):
    """Return layers whose neurons are alike enough for a positive estimate."""
    rng = np.random.default_rng(seed)
    latent = rng.normal(size=(n, 2))
    noise = rng.normal(size=(count, n, width))
    return latent @ rng.normal(size=(count, 2, width)) + 0.3 * noise + offset


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("neurons", ["sampled", "paired"])
def test_the_sum_over_pairs_of_different_neurons(neurons, offset):
    options = {"estimator": "unbiased", "neurons": neurons}
    x, y = layers(3, 0, offset=offset), layers(2, 1)
    for sides in ((x,), (x, y)):
        want = reference.cka_grid(*sides, **options)
        assert np.isfinite(want).all()
        np.testing.assert_allclose(cka_grid(*sides, **options), want, atol=1e-10)
        half = [[layer.astype(np.float32) for layer in side] for side in sides]
        rounded = reference.cka_grid(*half, **options)
        np.testing.assert_allclose(cka_grid(*half, **options), rounded, atol=1e-4)
    wide = layers(1, 2, width=9)
    if neurons == "sampled":
        np.testing.assert_allclose(
            cka_grid(x, wide, **options), reference.cka_grid(x, wide, **options), atol=1e-10
        )


@pytest.mark.parametrize("neurons", ["sampled", pytest.param("paired", marks=pytest.mark.deep)])
def test_size_blocks_and_gradient(neurons):
    options = {"estimator": "unbiased", "neurons": neurons}
    x, y = layers(2, 0), layers(2, 1)
    want = cka_grid(x, y, **options)
    np.testing.assert_allclose(cka_grid(x * 1e90, y * 1e-90, **options), want, rtol=1e-10)
    np.testing.assert_allclose(cka_grid(x, y, max_memory=200_000, **options), want, rtol=1e-10)
    torch.testing.assert_close(
        torch.compile(cka_grid, backend="aot_eager")(*map(torch.from_numpy, (x, y)), **options),
        torch.from_numpy(want),
    )
    given = [torch.from_numpy(layer).requires_grad_() for layer in (*x, *y)]

    def grid(a, b, c, d):
        return cka_grid([a, b], [c, d], **options)

    assert torch.autograd.gradcheck(grid, given, fast_mode=True)


def test_blocks_of_neurons_add_up(monkeypatch):
    options = {"estimator": "unbiased", "neurons": "paired"}
    x, y = layers(2, 0), layers(2, 1)
    want = cka_grid(x, y, **options)
    monkeypatch.setattr("simcore._ops.sampled_neurons.memory_bound", lambda *_: 1)
    np.testing.assert_allclose(cka_grid(x, y, **options), want, rtol=1e-12)


def populations(rng, draws, width, n=60):
    """Return draws of neurons of two populations, and the CKA of the populations.

    A neuron is a direction of Gaussian latent variables, drawn from a Gaussian of its population.
    With their covariances A and B, HSIC is tr(A B).
    """
    spreads = np.array([[2.0, 1.0, 1.0, 0.5, 0.5], [0.5, 0.5, 1.0, 1.0, 2.0]])
    a, b = spreads**2
    for _ in range(draws):
        latent = rng.normal(size=(n, 5))
        yield [latent @ (spread[:, None] * rng.normal(size=(5, width))) for spread in spreads]
    yield (a @ b) / np.sqrt((a @ a) * (b @ b))


@pytest.mark.parametrize(("width", "draws", "bias"), [(4, 400, 0.08), (12, 100, 0.03)])
def test_the_value_does_not_depend_on_the_number_of_neurons(width, draws, bias):
    *drawn, truth = populations(np.random.default_rng(0), draws, width)
    x, y = zip(*drawn, strict=True)
    terms = {"all": np.zeros(3), "sampled": np.zeros(3)}
    for left, right in zip(x, y, strict=True):
        whole = reference.hsic_grid([left, right], estimator="unbiased") / width**2
        terms["all"] += [whole[0, 1], whole[0, 0], whole[1, 1]]
        own = [reference.hsic_of_different_neurons(v) / width**2 for v in (left, right)]
        terms["sampled"] += [whole[0, 1], *own]
    got = {name: xy / np.sqrt(xx * yy) for name, (xy, xx, yy) in terms.items()}
    assert got["sampled"] == pytest.approx(truth, abs=0.03)
    assert got["all"] < truth - bias


def test_a_layer_and_itself():
    x, noise = layers(1)[0], np.random.default_rng(3).normal(size=(N, WIDTH))
    options = {"estimator": "unbiased"}
    for neurons in ("sampled", "paired"):
        assert cka_grid([x], [x], neurons=neurons, **options).item() == 1
        assert cka_grid([x], neurons=neurons, **options).item() == 1
    assert cka_grid([x], [x.copy()], neurons="paired", **options).item() == pytest.approx(1)
    near = [x + 0.01 * noise]
    assert cka_grid([x], near, neurons="paired", **options).item() == pytest.approx(1, abs=1e-3)
    # As if other neurons gave the same values: more alike than one population can be.
    assert cka_grid([x], near, neurons="sampled", **options).item() > 1.1


@pytest.mark.parametrize(
    ("sides", "options", "message"),
    [
        ((layers(1),), {"neurons": "some"}, "neurons: wanted 'all', 'sampled' or 'paired'"),
        ((layers(1),), {"neurons": "sampled", "estimator": "biased"}, "neurons: wanted 'all' for"),
        ((layers(1),), {"neurons": "paired", "kernel": "rbf"}, "neurons: wanted 'all' for kernel"),
        ((layers(1, width=1),), {"neurons": "sampled"}, r"X\[0\]: wanted at least 2 columns"),
        (
            (layers(1), layers(1, width=4)),
            {"neurons": "paired"},
            r"Y\[0\]: wanted 6 columns as in X\[0\] for neurons='paired', got 4",
        ),
        (([Gram(np.eye(5))],), {"neurons": "sampled"}, "neurons: wanted 'all' where a layer is a"),
    ],
)
def test_refused(sides, options, message):
    with pytest.raises(ValueError, match=message):
        cka_grid(*sides, **{"estimator": "unbiased", **options})
