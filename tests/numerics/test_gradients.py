"""Gradients of float32 layers are those of float64 layers of the same numbers."""

import warnings
from functools import cache
from zlib import crc32

import pytest

from numerics.cases import BY_NAME, CASES, RELATIVE
from numerics.contract import Verdict, assert_kept, drawn, recomputed
from numerics.distributions import DISTRIBUTIONS

EVERY = pytest.mark.parametrize("name", DISTRIBUTIONS)
HELD = (1e-36, 1e38)  # what float32 holds: the gradients of HSIC leave it
SCALES = (1e-20, 1e-12, 1e12, 1e18)
FLOAT64 = 1e-12  # of a gradient in units of its layer: what float64 may lose where terms cancel


def value_of(case, *layers):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a call without a derivative says so
        return case.run(*layers)


@cache
def differentiable():
    """Return the cases whose values have gradients."""
    x, y, _, _ = drawn("features", n=64, p=8)
    cases = [case for case in CASES if str(case) != "minibatch-cka" and case.record.name != "rtd"]
    return [case for case in cases if value_of(case, x.clone().requires_grad_(), y).requires_grad]


def gradients(case, *layers):
    """Return the gradients of a value by both layers, in float64."""
    leaves = [layer.detach().clone().requires_grad_() for layer in layers]
    value_of(case, *leaves).sum().backward()
    return [leaf.grad.double() for leaf in leaves]


def compared(cases, place, x, y):
    """Yield the verdict of the gradients of each case: norms of errors, relative to the norm."""
    for case in cases:
        with recomputed() as again:
            found = gradients(case, x, y)
        right = gradients(case, x.double(), y.double())
        for side, layer, one, two in zip("xy", (x, y), found, right, strict=True):
            unit = float(two.abs().max()) or 1.0
            if not HELD[0] < unit < HELD[1]:
                continue
            norm = float((two / unit).norm()) or 1.0
            error = float(((one - two) / unit).norm()) / norm
            spread = (layer.double() - layer.double().mean(0)).norm()
            bound = RELATIVE + FLOAT64 / (norm * unit * float(spread))
            error = error if error == error else float("inf")
            what = f"gradient by {side} of {case}"
            yield Verdict(what, place, error, 0.0, error, bound, True, tuple(again), ())


def sample(name):
    """Return three cases that the name of the distribution draws."""
    cases = differentiable()
    return [cases[(crc32(name.encode()) + 7 * i) % len(cases)] for i in range(3)]


@EVERY
def test_a_sample_of_gradients_is_right(name):
    x, y, _, _ = drawn(name, n=200)
    assert_kept(compared(sample(name), name, x, y))


@pytest.mark.slow
@EVERY
def test_gradients_of_float32_layers_are_right(name):
    x, y, _, _ = drawn(name)
    assert_kept(compared(differentiable(), name, x, y))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", ["cka", "cka kernel=linear estimator=unbiased", "procrustes"])
def test_gradients_have_the_unit_of_their_layer(name, scale):
    x, y, _, _ = drawn("features", n=100, p=16)
    assert_kept(compared([BY_NAME[name]], f"scale {scale}", x * scale, y * scale))
