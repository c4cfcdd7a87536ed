"""Gradients of float32 layers are those of float64 layers of the same numbers."""

import warnings
from functools import cache
from math import inf, isnan
from zlib import crc32

import numpy as np
import pytest
import torch

from numerics.cases import BY_NAME, CASES, RELATIVE
from numerics.contract import Verdict, assert_kept, drawn, recomputed
from numerics.distributions import DISTRIBUTIONS, share
from numerics.layer import Layer

EVERY = pytest.mark.parametrize("name", DISTRIBUTIONS)
HELD = (1e-36, 1e38)  # what float32 holds: the gradients of HSIC leave it
ROOT = 1e-5  # a smaller root of a difference is rounding in float64 too, and has no direction
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
    """Return the value, and its gradients by both layers, in float64."""
    leaves = [layer.detach().clone().requires_grad_() for layer in layers]
    value = value_of(case, *leaves)
    value.sum().backward()
    return value.item(), [leaf.grad.double() for leaf in leaves]


def compared(cases, place, x, y, a, b):
    """Yield the verdict of the gradients of each case: norms of errors, relative to the norm."""
    spread = float((x.double() - x.double().mean(0)).norm())
    for case in (case for case in cases if case.takes(a, b)):
        with recomputed() as again:
            _, found = gradients(case, x, y)
        value, right = gradients(case, x.double(), y.double())
        size = {1: spread, 4: abs(value)}.get(case.record.degree, 1.0)  # of the terms of the value
        if isnan(value) or (case.record.distance and value < ROOT * size):
            continue
        for side, one, two in zip("xy", found, right, strict=True):
            unit = float(two.abs().max()) or 1.0
            if unit < HELD[0] or unit > HELD[1]:
                continue
            norm = float((two / unit).norm()) or 1.0
            error = float(((one - two) / unit).norm()) / norm
            bound = RELATIVE + FLOAT64 * size / (norm * unit * spread)
            error = inf if isnan(error) else error
            what = f"gradient by {side} of {case}"
            yield Verdict(what, place, error, 0.0, error, bound, True, tuple(again), ())


def sample(name):
    """Return three cases that the name of the distribution draws."""
    cases = differentiable()
    return [cases[(crc32(name.encode()) + 7 * i) % len(cases)] for i in range(3)]


@EVERY
def test_a_sample_of_gradients_is_right(name):
    assert_kept(compared(sample(name), name, *drawn(name, n=200)))


@pytest.mark.slow
@EVERY
def test_gradients_of_float32_layers_are_right(name):
    assert_kept(compared(share(name, differentiable()), name, *drawn(name, n=200)))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", ["cka", "cka kernel=linear estimator=unbiased", "procrustes"])
def test_gradients_have_the_unit_of_their_layer(name, scale):
    x, y, *layers = drawn("features", n=100, p=16)
    assert_kept(compared([BY_NAME[name]], f"scale {scale}", x * scale, y * scale, *layers))


@pytest.mark.parametrize("height", [400, 800])
def test_gradients_beside_opposite_sinks(height):
    """They have nearly all of the variance, so that CKA is 1 less 1e-5 to 1e-3."""
    rng = np.random.default_rng(0)
    x, noise = rng.standard_normal((2, 600, 20))
    layers = [x, x + 0.5 * noise]
    for layer in layers:
        layer[1:3, 0] = height, -height
    cases = [BY_NAME[f"cka method=feature estimator={one}"] for one in ("biased", "unbiased")]
    tensors = [torch.from_numpy(layer).float() for layer in layers]
    sides = [Layer(one.double().numpy(), "float32") for one in tensors]
    assert_kept(compared(cases, f"sinks of {height}", *tensors, *sides))
