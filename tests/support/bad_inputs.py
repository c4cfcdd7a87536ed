"""Inputs that every grid refuses, and the words that its message must contain."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch

from support.cases import Case, layers

X = layers(Case(37, widths=(5, 6, 7)))
Y = layers(Case(37, widths=(8, 9)), seed=1)


def spoiled(layer, value, count):
    """Return a copy with ``count`` entries replaced by ``value``."""
    layer = layer.clone()
    layer.flatten()[:count] = value
    return layer


def with_layer(sequence, index, layer):
    return [*sequence[:index], layer, *sequence[index + 1 :]]


def rows(n, width=3, dtype=torch.float64):
    return torch.arange(n * width).reshape(n, width).to(dtype)


# name: (positional arguments, options, error, every word of its message)
LAYERS = {
    "X of different n": ((with_layer(X, 2, rows(41)),), {}, ValueError, "X 2 37 41"),
    "Y of different n": ((X, with_layer(Y, 1, rows(41))), {}, ValueError, "Y 1 37 41"),
    "no rows": (([rows(0)],), {}, ValueError, "X 0"),
    "X empty": (([],), {}, ValueError, "X"),
    "Y empty": ((X, []), {}, ValueError, "Y"),
    "X zero width": ((with_layer(X, 1, rows(37, 0)),), {}, ValueError, "X 1 37 0"),
    "Y zero width": ((X, with_layer(Y, 1, rows(37, 0))), {}, ValueError, "Y 1 37 0"),
    "X one axis": ((with_layer(X, 1, X[1][:, 0]),), {}, ValueError, "X 1 37"),
    "Y three axes": ((X, with_layer(Y, 0, Y[0][None])), {}, ValueError, "Y 0 37 8"),
    "one matrix for a list": ((X[0],), {}, ValueError, "X 37 5"),
    "integer layer": (
        (with_layer(X, 1, rows(37, dtype=torch.int64)),),
        {},
        TypeError,
        "X 1 float int64",
    ),
    "boolean layer": ((with_layer(X, 0, X[0] > 0),), {}, TypeError, "X 0 bool"),
    "complex layer": (
        (X, with_layer(Y, 1, Y[1].to(torch.complex128))),
        {},
        TypeError,
        "Y 1 complex128",
    ),
    "numpy integers": (([np.arange(6).reshape(3, 2)],), {}, TypeError, "X 0 astype int64"),
    "numpy objects": (([np.array([[None], [None]])],), {}, TypeError, "X 0 object"),
    "no array": ((with_layer(X, 1, "layer"),), {}, TypeError, "X 1 str"),
    "no sequence": ((3.5,), {}, TypeError, "X float"),
    "X none": ((None,), {}, TypeError, "X NoneType"),
    "devices": ((with_layer(X, 2, X[2].to("meta")),), {}, ValueError, "X 2 cpu meta"),
    "max_memory zero": ((X,), {"max_memory": 0}, ValueError, "max_memory 0"),
    "max_memory negative": ((X,), {"max_memory": -5}, ValueError, "max_memory 5"),
    "max_memory too small": ((X,), {"max_memory": 1}, ValueError, "max_memory 1"),
}
ENTRIES = {
    "NaN": ((with_layer(X, 1, spoiled(X[1], math.nan, 3)),), {}, ValueError, "X 1 3 NaN"),
    "infinity": ((with_layer(X, 2, spoiled(X[2], math.inf, 4)),), {}, ValueError, "X 2 4"),
    "minus infinity": ((X, with_layer(Y, 1, spoiled(Y[1], -math.inf, 5))), {}, ValueError, "Y 1 5"),
}


def assert_refused(function, arguments, options, error, words):
    """Check that `function` raises ``error`` with a message that contains all ``words``."""
    with pytest.raises(error) as caught:
        function(*arguments, **options)
    message = str(caught.value)
    for word in words.split():
        assert re.search(rf"(?<!\w)(?<!\d\.){re.escape(word)}(?![\w])", message), (
            f"{word!r}: {message}"
        )
