"""Agreement with values that other people's implementations gave (tests/oracle/README.md)."""

import json
from pathlib import Path

import numpy as np
import pytest
import tolerance

from simcore import cka_grid, reference

ORACLE = Path(__file__).parent / "oracle"
FILES = ("wu2020_a", "wu2020_b")
# key of the values: options of cka_grid, agreement that the oracle's README states
MEASURES = {
    "cka_linear_biased": ({}, tolerance.ORACLE),
    "cka_linear_biased_gram": ({}, tolerance.ORACLE),
    "cka_linear_unbiased": ({"estimator": "unbiased"}, tolerance.ORACLE),
    "cka_rbf_biased_bandwidth1": ({"kernel": "rbf"}, tolerance.ORACLE_MEDIAN),
}


def load(name):
    """The layers of one oracle file in order, and its values."""
    data = np.load(ORACLE / f"{name}.npz")
    count = sum(key.startswith("layer_") for key in data.files)
    values = json.loads((ORACLE / f"{name}.json").read_text())
    return [data[f"layer_{index}"] for index in range(count)], values


def expected(values, key):
    """One grid of the oracle; null (not computed) becomes nan."""
    return np.array(values[key], dtype=np.float64)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("key", MEASURES)
@pytest.mark.parametrize("implementation", [cka_grid, reference.cka_grid], ids=["op", "twin"])
def test_agrees_with_other_implementations(implementation, key, name):
    layers, values = load(name)
    options, agreement = MEASURES[key]
    want = expected(values, key)
    assert want.shape == (len(layers), len(layers))
    computed = ~np.isnan(want)
    assert computed.any()
    got = implementation(layers, **options)
    np.testing.assert_allclose(got[computed], want[computed], rtol=0, atol=agreement)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("key", MEASURES)
def test_cross_grids_are_blocks_of_the_oracle(key, name):
    layers, values = load(name)
    options, agreement = MEASURES[key]
    got = cka_grid(layers[:2], layers[1:], **options)
    np.testing.assert_allclose(got, expected(values, key)[:2, 1:], rtol=0, atol=agreement)
