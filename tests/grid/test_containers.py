"""Layers in any container, and arrays of other libraries; tensors that are refused by name."""

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr

from simcore import (
    Gram,
    cka_grid,
    hsic_grid,
    knn_grid,
    procrustes_grid,
    rsa_grid,
    stats,
    svcca_grid,
)
from support.cases import Case, exact, layers

X = layers(Case(30, widths=(5, 5, 5)))
ARRAYS = exact(X)


def permuted(x):
    return stats.permutation_test(x, permutations=5, seed=0).pvalue


GRIDS = (cka_grid, hsic_grid, svcca_grid, rsa_grid, knn_grid, procrustes_grid, permuted)
EVERY = pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: grid.__name__)


class Stored:
    """A data set on a disk, as h5py and zarr have it."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype)


class Exchanged:
    """An array of a library that exchanges memory by dlpack alone."""

    def __init__(self, values):
        self.values = values

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


CONTAINERS = {
    "generator": lambda: (layer for layer in ARRAYS),
    "map": lambda: map(np.asarray, ARRAYS),
    "values of a dictionary": lambda: dict(enumerate(ARRAYS)).values(),
    "data frames": lambda: [pd.DataFrame(layer) for layer in ARRAYS],
    "one labelled array": lambda: xr.DataArray(np.stack(ARRAYS)),
    "labelled arrays by name": lambda: xr.Dataset(
        {str(i): ((f"n{i}", f"p{i}"), layer) for i, layer in enumerate(ARRAYS)}
    ),
    "stored arrays": lambda: [Stored(layer) for layer in ARRAYS],
    "exchanged arrays": lambda: [Exchanged(layer) for layer in ARRAYS],
}


@pytest.mark.parametrize("name", CONTAINERS)
@EVERY
def test_layers_in_any_container(grid, name):
    got = grid(CONTAINERS[name]())
    assert isinstance(got, np.ndarray)
    np.testing.assert_allclose(got, grid(ARRAYS), atol=1e-12)


def test_matrices_in_any_container():
    grams = [Gram(pd.DataFrame(layer @ layer.T)) for layer in ARRAYS]
    got = cka_grid((gram for gram in grams), dict(enumerate(ARRAYS)).values())
    assert isinstance(got, np.ndarray)
    assert got.shape == (3, 3)


NESTED = torch.nested.nested_tensor([X[0], X[1][:9]])
REFUSED = {
    "quantised": ([torch.quantize_per_tensor(X[0].float(), 0.1, 0, torch.qint8)], "dequantize"),
    "nested": ([X[0], NESTED], r"X\[1\]: wanted a dense tensor, got a nested one"),
    "nested layers": (NESTED, "X: wanted a dense tensor, got a nested one; `.unbind"),
    "one frame": (pd.DataFrame(ARRAYS[0]), r"X: wanted one \[L, n, p\] array .* \[x\] is a list"),
    "a frame of words": ([pd.DataFrame({"a": ["b"] * 30})], r"X\[0\]: wanted a floating-point"),
}


@pytest.mark.parametrize("name", REFUSED)
@EVERY
def test_what_is_no_layer_is_named(grid, name):
    given, message = REFUSED[name]
    with pytest.raises((TypeError, ValueError), match=message):
        grid(given)
